/* The steps of requests in a turn: routes.h says what.
 *
 * As with lw_steps, what is there belongs to one turn at a time; the loop thread empties it when it
 * first writes in a new one, storing the turn first, and a reader looks at the turn again after its
 * copy. Within a turn a copy may miss the last change or see half of it: a report off by one step
 * until the next look.
 */
#include "routes.h"

#include "steps/steps.h"

#define RELAXED memory_order_relaxed

/* --- the loop thread --- */

lw_slot *
lw_routes_slot(uint64_t slot_key)
{
    lw_slot *slot = lw_step_scope_slot();
    return slot && slot->key == slot_key ? slot : NULL;
}

bool
lw_routes_open(lw_slot *slot, uint64_t request)
{
    return atomic_load_explicit(&slot->routes.open_request, RELAXED) == request;
}

static uint64_t
current_turn(lw_slot *slot)
{
    return atomic_load_explicit(&slot->cell.turn, RELAXED);
}

/* Empties it when the turn is a new one. A step that runs goes on in the new turn. */
static void
turn_over(lw_routes *routes, uint64_t turn)
{
    if (atomic_load_explicit(&routes->turn, RELAXED) == turn) {
        return;
    }
    atomic_store_explicit(&routes->turn, turn, RELAXED);
    /* A reader that sees anything stored from here on sees the turn too, when it looks at it again.
     */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&routes->n, 0, RELAXED);
    atomic_store_explicit(&routes->longest_request, 0, RELAXED);
    atomic_store_explicit(&routes->longest_route, 0, RELAXED);
    atomic_store_explicit(&routes->longest_ns, 0, RELAXED);
}

static void
open_step(lw_routes *routes, uint64_t request, uint32_t route, lw_ns since_ns)
{
    atomic_store_explicit(&routes->open_route, route, RELAXED);
    atomic_store_explicit(&routes->open_since_ns, since_ns, RELAXED);
    atomic_store_explicit(&routes->open_request, request, memory_order_release);
}

void
lw_routes_enter(lw_slot *slot, uint64_t request, uint32_t route, lw_ns now_ns, lw_route_step *step)
{
    lw_routes *routes = &slot->routes;
    *step = (lw_route_step){
        .slot = slot,
        .slot_key = slot->key,
        .turn = current_turn(slot),
        .begin_ns = now_ns,
        .outer_request = atomic_load_explicit(&routes->open_request, RELAXED),
        .outer_route = atomic_load_explicit(&routes->open_route, RELAXED),
        .outer_since_ns = atomic_load_explicit(&routes->open_since_ns, RELAXED),
    };
    turn_over(routes, step->turn);
    open_step(routes, request, route, now_ns);
}

lw_ns
lw_routes_leave(const lw_route_step *step, uint64_t request, uint32_t route, lw_ns now_ns)
{
    lw_slot *slot = step->slot;
    lw_routes *routes = &slot->routes;
    if (slot->key != step->slot_key) { /* unwatched during the step, and already another's */
        return 0;
    }
    uint64_t turn = current_turn(slot);
    open_step(routes, step->outer_request, step->outer_route, step->outer_since_ns);
    turn_over(routes, turn);
    lw_ns begin_ns =
        step->turn == turn ? step->begin_ns : atomic_load_explicit(&slot->cell.since_ns, RELAXED);
    lw_ns ns = now_ns > begin_ns ? now_ns - begin_ns : 0;
    if (ns > atomic_load_explicit(&routes->longest_ns, RELAXED)) {
        atomic_store_explicit(&routes->longest_request, request, RELAXED);
        atomic_store_explicit(&routes->longest_route, route, RELAXED);
        atomic_store_explicit(&routes->longest_ns, ns, RELAXED);
    }
    return ns;
}

/* Takes `ns` from every route of the turn; those that have nothing left make room. */
static void
take_from_all(lw_routes *routes, lw_ns ns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < LW_TURN_ROUTES_MAX; i++) {
        uint32_t route = atomic_load_explicit(&routes->routes[i], RELAXED);
        lw_ns has_ns = atomic_load_explicit(&routes->ns[i], RELAXED);
        if (has_ns > ns) {
            atomic_store_explicit(&routes->routes[kept], route, RELAXED);
            atomic_store_explicit(&routes->ns[kept], has_ns - ns, RELAXED);
            kept++;
        }
    }
    atomic_store_explicit(&routes->n, kept, memory_order_release);
}

void
lw_routes_add(lw_slot *slot, uint64_t turn, uint32_t route, lw_ns ns)
{
    lw_routes *routes = &slot->routes;
    if (!ns || atomic_load_explicit(&routes->turn, RELAXED) != turn) {
        return;
    }
    uint32_t n = atomic_load_explicit(&routes->n, RELAXED);
    lw_ns least_ns = LW_NS_NEVER;
    for (uint32_t i = 0; i < n; i++) {
        lw_ns has_ns = atomic_load_explicit(&routes->ns[i], RELAXED);
        if (atomic_load_explicit(&routes->routes[i], RELAXED) == route) {
            atomic_store_explicit(&routes->ns[i], has_ns + ns, RELAXED);
            return;
        }
        least_ns = has_ns < least_ns ? has_ns : least_ns;
    }
    if (n == LW_TURN_ROUTES_MAX) {
        lw_ns taken_ns = least_ns < ns ? least_ns : ns;
        take_from_all(routes, taken_ns);
        n = atomic_load_explicit(&routes->n, RELAXED);
        ns -= taken_ns;
        if (!ns) {
            return;
        }
    }
    atomic_store_explicit(&routes->routes[n], route, RELAXED);
    atomic_store_explicit(&routes->ns[n], ns, RELAXED);
    atomic_store_explicit(&routes->n, n + 1, memory_order_release);
}

void
lw_routes_name(lw_slot *slot, uint64_t request, uint32_t route)
{
    lw_routes *routes = &slot->routes;
    if (atomic_load_explicit(&routes->longest_request, RELAXED) == request) {
        atomic_store_explicit(&routes->longest_route, route, RELAXED);
    }
    if (lw_routes_open(slot, request)) {
        atomic_store_explicit(&routes->open_route, route, RELAXED);
    }
}

/* --- reading --- */

static uint32_t
least(const lw_turn_routes *routes)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i < routes->n; i++) {
        if (routes->routes[i].ns < routes->routes[found].ns) {
            found = i;
        }
    }
    return found;
}

/* Adds the step that runs to what has ended. */
static void
add_open(lw_turn_routes *out, uint64_t request, uint32_t route, lw_ns ns)
{
    if (ns > out->longest.ns) {
        out->request = request;
        out->longest = (lw_route_time){route, ns};
    }
    if (!route) {
        return;
    }
    uint32_t i = 0;
    while (i < out->n && out->routes[i].route != route) {
        i++;
    }
    if (i == LW_TURN_ROUTES_MAX) {
        i = least(out);
        if (out->routes[i].ns >= ns) {
            return;
        }
        out->routes[i] = (lw_route_time){route, 0};
    }
    else if (i == out->n) {
        out->routes[out->n++] = (lw_route_time){route, 0};
    }
    out->routes[i].ns += ns;
}

static void
limit(lw_ns *ns, lw_ns at_most_ns)
{
    *ns = *ns < at_most_ns ? *ns : at_most_ns;
}

void
lw_routes_collect(lw_slot *slot, uint64_t turn, lw_ns begin_ns, lw_ns now_ns, lw_turn_routes *out)
{
    lw_routes *routes = &slot->routes;
    *out = (lw_turn_routes){0};
    if (atomic_load_explicit(&routes->turn, memory_order_acquire) != turn) {
        return;
    }
    uint32_t n = atomic_load_explicit(&routes->n, memory_order_acquire);
    for (uint32_t i = 0; i < n && i < LW_TURN_ROUTES_MAX; i++) {
        out->routes[out->n++] = (lw_route_time){atomic_load_explicit(&routes->routes[i], RELAXED),
                                                atomic_load_explicit(&routes->ns[i], RELAXED)};
    }
    out->request = atomic_load_explicit(&routes->longest_request, RELAXED);
    out->longest = (lw_route_time){atomic_load_explicit(&routes->longest_route, RELAXED),
                                   atomic_load_explicit(&routes->longest_ns, RELAXED)};
    uint64_t open_request = atomic_load_explicit(&routes->open_request, memory_order_acquire);
    lw_ns since_ns = atomic_load_explicit(&routes->open_since_ns, RELAXED);
    if (open_request && since_ns < now_ns) {
        add_open(out, open_request, atomic_load_explicit(&routes->open_route, RELAXED),
                 now_ns - since_ns);
    }
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&routes->turn, RELAXED) != turn) {
        *out = (lw_turn_routes){0};
        return;
    }
    lw_ns longest_ns = now_ns > begin_ns ? now_ns - begin_ns : 0;
    limit(&out->longest.ns, longest_ns);
    for (uint32_t i = 0; i < out->n; i++) {
        limit(&out->routes[i].ns, longest_ns);
    }
}
