/* The rules: from what the clocks moved between looks to seconds for each cause.
 *
 * Pure arithmetic over plain data: no clock is read, nothing is allocated, no Python object is
 * touched; called by the watchdog without the GIL and by the tests. The reference twin is
 * tests/reference/verdict.py, and property tests hold the two against each other.
 */
#ifndef LW_VERDICT_H
#define LW_VERDICT_H

#include <stdint.h>

#include "evidence.h"

/* In the contract's order of precedence; the values are those of the records and of
 * loopwatch._stall.Verdict. */
typedef enum lw_cause {
    LW_SUSPENDED = 0,
    LW_NOT_SCHEDULED,
    LW_GIL,
    LW_GC,
    LW_PYTHON,
    LW_NATIVE,
    LW_LOCK,
    LW_BLOCKING_CALL,
    LW_MANY_CALLBACKS,
    LW_UNKNOWN,
    LW_CAUSES,
} lw_cause;

typedef struct lw_parts {
    lw_ns ns[LW_CAUSES];
} lw_parts;

/* The turn as a whole, beside its samples. */
typedef struct lw_turn_facts {
    lw_ns begin_ns, end_ns;
    lw_ns gil_begin_ns; /* the wait for the GIL at the begin of the turn, where the pulse measured
                           it (turn), else 0 */
    const lw_evidence
        *first; /* clocks before the begin or a bit after it, or NULL. Where the thread was not
                   looked at in time: known 0, at_ns the begin, stopped_ns as the watchdog knew it
                   before it woke last, so that a stop in which the turn began is seen */
    const lw_evidence *last; /* clocks at or just after the end, or NULL */
} lw_turn_facts;

/* Splits [begin_ns, end_ns] among the causes, and each cause among the samples that show it:
 * parts[i] is what sample i stands for. The time between two samples goes to whichever of the two
 * explains it (time on a CPU to the one that was on a CPU, a wait to the one that waited), half to
 * each where both or none do; what lies before the first belongs to it, and after the last to that.
 * All parts add up to end_ns - begin_ns exactly. Samples are in order of time; those outside the
 * turn stand for nothing. n may be 0: parts[0] then has what `first` and `last` tell, so there is
 * always one. */
void lw_judge(const lw_turn_facts *turn, const lw_evidence *const *samples, uint32_t n,
              lw_parts *parts);

/* The cause with the most, the first in order of precedence of equals. */
lw_cause lw_largest(const lw_parts *parts);

void lw_parts_add(lw_parts *sum, const lw_parts *parts);

const char *lw_cause_name(lw_cause cause);

#endif
