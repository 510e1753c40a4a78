/* Which slot the watchdog is in: visit.h. */
#include "visit.h"

#include <time.h>

#include "process.h"

#define RELAXED memory_order_relaxed
#define NAP_NS (50 * LW_NS_PER_US)

static lw_slot *_Atomic visiting;

/* The state is read again once `visiting` is out, so that lw_visit_await_over() after a change of
 * state is enough for nobody to be inside. A slot that was inherited over a fork is not ours before
 * it is re-armed. */
bool
lw_visit_enter(lw_slot *slot)
{
    atomic_store_explicit(&visiting, slot, memory_order_seq_cst);
    lw_slot_state state = (lw_slot_state)atomic_load_explicit(&slot->state, memory_order_seq_cst);
    return (state == LW_SLOT_ACTIVE || state == LW_SLOT_RETIRING) &&
           atomic_load_explicit(&slot->fork_generation, RELAXED) ==
               atomic_load_explicit(&lw_fork_generation, RELAXED);
}

void
lw_visit_over(void)
{
    atomic_store_explicit(&visiting, NULL, memory_order_seq_cst);
}

void
lw_visit_await_over(lw_slot *slot)
{
    while (atomic_load_explicit(&visiting, memory_order_seq_cst) == slot) {
        nanosleep(&(struct timespec){0, (long)NAP_NS}, NULL);
    }
}

void
lw_visit_forget(void)
{
    atomic_store_explicit(&visiting, NULL, RELAXED);
}
