/* When the next look of the profile is due: pure arithmetic (its Python twin:
 * tests/reference/pace.py).
 *
 * The looks are a Poisson process in wall time, of which those count that find the loop busy. Such
 * a process has no memory: a gap may be drawn anew at any moment, so the watchdog may stop it while
 * the loop waits and start it again when it is back, and each moment of busy time has the same
 * chance to be seen, however long the turns are.
 */
#ifndef LW_PACE_H
#define LW_PACE_H

#include <stdint.h>

#include "clock.h"

#define LW_PACE_MAX 16 /* means: a longer gap is cut, which one in nine million is */

/* -log2((random | 1) / 2^32) in 1/65536: the logarithm's whole part from where the highest bit is,
 * each further bit by squaring what is left. */
static inline uint64_t
lw_pace_log2(uint32_t random)
{
    uint64_t rest = random | 1;
    uint64_t whole = 31;
    while (!(rest >> 31)) {
        rest <<= 1;
        whole--;
    }
    uint64_t log = whole << 16;
    for (uint64_t bit = UINT64_C(1) << 15; bit; bit >>= 1) {
        rest = rest * rest >> 31;
        if (rest >> 32) {
            rest >>= 1;
            log += bit;
        }
    }
    return (UINT64_C(32) << 16) - log;
}

/* A gap of mean_ns on average, distributed exponentially. `random`: 32 bits. */
static inline lw_ns
lw_pace_gap_ns(lw_ns mean_ns, uint32_t random)
{
    const uint64_t ln2 = 45426; /* in 1/65536 */
    uint64_t units = lw_pace_log2(random) * ln2 >> 16;
    const uint64_t most = (uint64_t)LW_PACE_MAX << 16;
    units = units < most ? units : most;
    return (mean_ns >> 16) * units + ((mean_ns & 0xFFFF) * units >> 16);
}

#endif
