/* When a task should let the others have a turn, and for how long: what loopwatch.checkpoint() and
 * paced() ask. pace.c says how it is decided. Everything here runs on the loop's thread with the
 * GIL (or attached), and never raises.
 */
#ifndef LW_PACE_H
#define LW_PACE_H

#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "clock.h"

/* Turns of the loop that a yield gives to the others. What waits for a timer or a socket needs two
 * of them, the one that finds it ready and the one that it runs in, and its place in the second may
 * be after ours. */
#define LW_PACE_TURNS 3

/* One task's yield; part of what it awaits. Of two tasks that await one object, each may take the
 * other's answer, and a task that was cancelled while it waited leaves its wait to the next one that
 * awaits the object: a yield too many. (That an await begins cannot be seen: anext() with a default
 * asks for the iterator anew in each step.) Atomics, since the two may be of two threads. */
typedef struct lw_pace {
    _Atomic uint64_t ticket; /* the order of those that wait; 0: does not wait */
    _Atomic uint32_t turns;  /* that it has waited, the one to come included */
} lw_pace;

static inline bool
lw_pace_waits(lw_pace *pace)
{
    return atomic_load_explicit(&pace->ticket, memory_order_relaxed) != 0;
}

/* Whether the others have waited for budget_ns. */
bool lw_pace_due(lw_ns budget_ns);

/* It waits for its next turn of work... */
void lw_pace_begin(lw_pace *pace);

/* ...and was resumed: true, it waits on. */
bool lw_pace_resumed(lw_pace *pace, lw_ns budget_ns);

#endif
