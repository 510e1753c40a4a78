/* What each turn's requests took of it: the native half of loopwatch.asgi, for the label on a stall.
 *
 * A request's coroutine runs in steps, from one suspension to the next. The loop thread notes each:
 * while it runs, whose it is; when it has ended, its time under the number of its route. A report of
 * a stall carries both, and the reporter makes a name of them.
 *
 * The route of a request is known once the program has routed it, within its first step or later:
 * until then its number is 0, and only the request's own id says whose step it was.
 *
 * LW_TURN_ROUTES_MAX routes of a turn are told apart. When one more comes, all lose as much as the
 * least of them has (the frequent-items scheme of Misra and Gries): nothing is ever counted too
 * high, and a route with half of the turn stays, with at most a ninth of the turn too little.
 */
#ifndef LW_ROUTES_H
#define LW_ROUTES_H

#include "slot.h"

/* --- the loop thread, around one step --- */

typedef struct lw_route_step {
    lw_slot *slot;
    uint64_t slot_key;
    uint64_t turn;
    lw_ns begin_ns;
    uint64_t outer_request; /* whose step this one runs inside of; 0: nobody's */
    uint32_t outer_route;
    lw_ns outer_since_ns;
} lw_route_step;

/* The slot of the loop that runs here, if that is the one of this key; else NULL. */
lw_slot *lw_routes_slot(uint64_t slot_key);

/* Whether a step of this request runs now. */
bool lw_routes_open(lw_slot *slot, uint64_t request);

void lw_routes_enter(lw_slot *slot, uint64_t request, uint32_t route, lw_ns now_ns,
                     lw_route_step *step);

/* Returns what the step took of the turn that goes on; the caller adds that to the route
 * (lw_routes_add) once there is one. */
lw_ns lw_routes_leave(const lw_route_step *step, uint64_t request, uint32_t route, lw_ns now_ns);

/* Time of this turn under a route's number. */
void lw_routes_add(lw_slot *slot, uint64_t turn, uint32_t route, lw_ns ns);

/* The request's route has become known. */
void lw_routes_name(lw_slot *slot, uint64_t request, uint32_t route);

/* --- reading; any thread, no GIL --- */

/* The turn so far, the step that runs until now_ns, no time longer than now_ns - begin_ns. Empty
 * where what is there is another turn's, or became so during the copy. Allocates nothing. */
void lw_routes_collect(lw_slot *slot, uint64_t turn, lw_ns begin_ns, lw_ns now_ns,
                       lw_turn_routes *out);

#endif
