/* How long collections stopped the program, by generation: what loopwatch.gc_pauses() tells. */
#ifndef LW_GC_PAUSES_H
#define LW_GC_PAUSES_H

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

#define LW_GC_GENERATIONS 3 /* as gc's callbacks number them, on each version */

typedef struct lw_gc_pause_sum {
    uint64_t count;
    lw_ns ns;
    lw_ns worst_ns;
} lw_gc_pause_sum;

/* A collection ended. One caller at a time: gc_clock.c. An unknown generation is not counted. */
void lw_gc_pauses_add(int32_t generation, lw_ns ns);

/* Any thread: collections that end from now on are not counted, or are again. The calls nest. */
void lw_gc_pauses_leave_out(bool leave);

/* In a forked child, before anything else runs there: it has had none. Async-signal-safe. */
void lw_gc_pauses_forget(void);

/* Any thread, no GIL. What is being added just now may be there in part. */
lw_gc_pause_sum lw_gc_pauses(int32_t generation);

#endif
