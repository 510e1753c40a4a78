/* What lies between two looks: how long the thread was on a CPU and off it, and what each look says
 * of such time.
 *
 * The arithmetic under the rules of verdict.c. Pure: no clock is read, nothing is allocated, no
 * Python object is touched; any thread, no GIL.
 */
#ifndef LW_INTERVAL_H
#define LW_INTERVAL_H

#include "verdict.h"

#define LW_NO_CAUSE LW_CAUSES

/* One end of an interval: a sample, or the begin or end of the turn, which belongs to the sample
 * next to it. */
typedef struct lw_end {
    const lw_evidence *look; /* NULL: the begin or the end of the turn */
    lw_parts *parts;         /* of the sample that it belongs to */
    lw_cause on;             /* what time on a CPU is here: python, native or LW_NO_CAUSE */
    lw_cause off;            /* what time off it is here, or LW_NO_CAUSE */
    lw_cause on_beyond;      /* likewise at the nearest sample outward that tells it... */
    lw_cause off_beyond;     /* ...each of the two */
} lw_end;

/* The two accounts that the rules take from, and what the clocks moved. */
typedef struct lw_interval {
    lw_end ends[2];
    lw_ns on_ns, off_ns; /* what is left of the time on a CPU, and off it */
    lw_ns run_queue_ns;  /* with what later intervals owe, lw_interval_owes() */
    lw_ns throttled_ns, stopped_ns, gc_ns;
    lw_ns gil_begin_ns; /* the part of it in which the turn waited for its GIL */
    bool clocked;       /* a CPU clock tells on_ns; else the stands do */
    bool stands;        /* next to nothing of it was on a CPU */
} lw_interval;

/* Interval i of n + 1, the one before sample i, which ends at end_ns; fills in `at` and returns
 * where it begins. `owed_ns`: what the interval after it owes. */
lw_ns lw_interval_measure(const lw_turn_facts *turn, const lw_evidence *const *samples, uint32_t n,
                          uint32_t i, lw_ns end_ns, lw_ns owed_ns, lw_parts *parts,
                          lw_interval *at);

/* The kernel books a wait in the run queue when it ends: what does not fit in this interval began
 * before it. To be asked before the rules take from it. */
lw_ns lw_interval_owes(const lw_interval *at, lw_ns owed_ns);

#endif
