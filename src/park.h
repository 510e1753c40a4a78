/* Where a thread of loopwatch sleeps: a counter that others count up.
 *
 * The sleeper reads the counter, looks whether there is work, and waits only while the counter
 * still has that value, so no wake-up is lost. lw_park_wake() may be called by any thread, also a
 * loop thread in its hot path, with or without the GIL: it takes no lock. park_linux.c does it with
 * a futex; park_portable.c with a condition variable (there the waker takes its mutex for a
 * moment).
 */
#ifndef LW_PARK_H
#define LW_PARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

typedef struct lw_park {
    _Atomic uint32_t count;
} lw_park;

static inline uint32_t
lw_park_seen(lw_park *park)
{
    return atomic_load_explicit(&park->count, memory_order_acquire);
}

/* Sleeps until the counter moves from `seen` or the clock reaches `deadline_ns`, whichever is
 * first; may also return for no reason. True where the deadline was reached. */
bool lw_park_wait(lw_park *park, uint32_t seen, lw_ns deadline_ns);

/* Counts up and wakes every sleeper. */
void lw_park_wake(lw_park *park);

/* In a forked child, before anything else there sleeps or wakes: the parent's sleepers are not in
 * it. */
void lw_park_forget(void);

#endif
