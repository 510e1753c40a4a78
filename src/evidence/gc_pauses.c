/* Sums of the stamps that gc_clock.c makes. They count from the process's first stamp on and are
 * never reset, so whoever exports them takes differences. Written by the one thread that collects,
 * read by any: each number is an atomic of its own. */
#include "gc_pauses.h"

#include <stdatomic.h>

#define RELAXED memory_order_relaxed

static struct {
    _Atomic uint64_t count, ns, worst_ns;
} sums[LW_GC_GENERATIONS];

static _Atomic int32_t left_out; /* how many callers of leave_out(true) are not done */

void
lw_gc_pauses_add(int32_t generation, lw_ns ns)
{
    if (generation < 0 || generation >= LW_GC_GENERATIONS ||
        atomic_load_explicit(&left_out, RELAXED) > 0) {
        return;
    }
    uint64_t count = atomic_load_explicit(&sums[generation].count, RELAXED);
    uint64_t sum_ns = atomic_load_explicit(&sums[generation].ns, RELAXED);
    atomic_store_explicit(&sums[generation].count, count + 1, RELAXED);
    atomic_store_explicit(&sums[generation].ns, sum_ns + ns, RELAXED);
    if (ns > atomic_load_explicit(&sums[generation].worst_ns, RELAXED)) {
        atomic_store_explicit(&sums[generation].worst_ns, ns, RELAXED);
    }
}

void
lw_gc_pauses_leave_out(bool leave)
{
    atomic_fetch_add_explicit(&left_out, leave ? 1 : -1, RELAXED);
}

void
lw_gc_pauses_forget(void)
{
    for (int32_t i = 0; i < LW_GC_GENERATIONS; i++) {
        atomic_store_explicit(&sums[i].count, 0, RELAXED);
        atomic_store_explicit(&sums[i].ns, 0, RELAXED);
        atomic_store_explicit(&sums[i].worst_ns, 0, RELAXED);
    }
}

lw_gc_pause_sum
lw_gc_pauses(int32_t generation)
{
    return (lw_gc_pause_sum){
        .count = atomic_load_explicit(&sums[generation].count, RELAXED),
        .ns = atomic_load_explicit(&sums[generation].ns, RELAXED),
        .worst_ns = atomic_load_explicit(&sums[generation].worst_ns, RELAXED),
    };
}
