/* What the watchdog may spend on turns that are no stalls: pure arithmetic (its Python twin:
 * tests/reference/thrift.py).
 *
 * A turn is looked at long before it is a stall, and in a loop whose turns are all that long nearly
 * all of these looks are for nothing. So they are paid from an account that fills slowly: a program
 * that stalls now and then never empties it, and one with a thousand long turns does. Then a turn
 * is looked at later and less often (schedule.h), and its begin with fewer clocks.
 */
#ifndef LW_THRIFT_H
#define LW_THRIFT_H

#include <stdbool.h>

#include "clock.h"

#define LW_THRIFT_FULL_NS (20 * LW_NS_PER_MS) /* of CPU time: some 200 looks */
#define LW_THRIFT_PART 20000                  /* of wall time: 0.005 % of one core */

typedef struct lw_thrift {
    lw_ns spent_ns; /* what is missing; 0: it is full */
    lw_ns at_ns;    /* as of when */
} lw_thrift;

/* Whether there is anything left at now_ns. */
static inline bool
lw_thrift_allows(lw_thrift *thrift, lw_ns now_ns)
{
    lw_ns earned_ns = now_ns > thrift->at_ns ? (now_ns - thrift->at_ns) / LW_THRIFT_PART : 0;
    if (earned_ns) { /* else what is left of the division would be lost each time */
        thrift->spent_ns -= earned_ns < thrift->spent_ns ? earned_ns : thrift->spent_ns;
        thrift->at_ns = now_ns;
    }
    return thrift->spent_ns < LW_THRIFT_FULL_NS;
}

static inline void
lw_thrift_spend(lw_thrift *thrift, lw_ns cost_ns)
{
    thrift->spent_ns += cost_ns;
    if (thrift->spent_ns > 2 * LW_THRIFT_FULL_NS) { /* no debt without end */
        thrift->spent_ns = 2 * LW_THRIFT_FULL_NS;
    }
}

#endif
