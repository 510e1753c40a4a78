/* When to look at a loop: the sampling schedule, as pure arithmetic (its Python twin:
 * tests/reference/schedule.py).
 *
 * A turn is sampled from an eighth of the threshold on, about a sixteenth of it apart, up to twice
 * the threshold, and once just at the threshold; then at most 3 % of its age apart. Where the account
 * for turns that are no stalls is empty (thrift.h), the looks before the threshold begin later and
 * are fewer. So what ran
 * before the threshold is seen, each stall has a sample of the moment at which it became one, and
 * an hour's stall is some hundred samples.
 */
#ifndef LW_SCHEDULE_H
#define LW_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "slot.h"

#define LW_STEP_MIN_NS LW_NS_PER_MS /* steps are at least this long, before jitter */

/* The age at which a turn is first looked at; also how long a loop must have waited before the
 * watchdog parks. */
static inline lw_ns
lw_first_point_ns(lw_ns threshold_ns)
{
    return threshold_ns / 8;
}

/* Likewise where the account for such looks is empty (thrift.h): just before the turn is slow. */
static inline lw_ns
lw_thrifty_point_ns(lw_ns threshold_ns)
{
    return threshold_ns / 64 * 15;
}

/* Of this length a turn is slow (lw_slow_ring). */
static inline lw_ns
lw_slow_ns(lw_ns threshold_ns)
{
    return threshold_ns / 4;
}

/* How long after a sample at `age_ns` the next one is due, before jitter. */
static inline lw_ns
lw_step_ns(lw_ns threshold_ns, lw_ns age_ns)
{
    lw_ns step_ns = threshold_ns / 16;
    if (age_ns >= 2 * threshold_ns && age_ns / 100 * 3 > step_ns) {
        step_ns = age_ns / 100 * 3;
    }
    return step_ns > LW_STEP_MIN_NS ? step_ns : LW_STEP_MIN_NS;
}

/* A step made 25 % longer or shorter at random, so that samples do not beat with what they look at.
 * `random`: 32 bits. */
static inline lw_ns
lw_jitter_ns(lw_ns step_ns, uint32_t random)
{
    return step_ns - step_ns / 4 + (step_ns / 2 * (random >> 16)) / 65536;
}

/* When the sample after the one at now_ns is due, in a turn that is late since begin_ns. Where the
 * account is empty, those before the threshold are a quarter of it apart. */
static inline lw_ns
lw_next_sample_ns(lw_ns threshold_ns, lw_ns begin_ns, lw_ns now_ns, bool thrifty, uint32_t random)
{
    lw_ns stall_ns = begin_ns + threshold_ns;
    lw_ns step_ns = lw_step_ns(threshold_ns, now_ns - begin_ns);
    if (thrifty && now_ns < stall_ns && step_ns < lw_slow_ns(threshold_ns)) {
        step_ns = lw_slow_ns(threshold_ns);
    }
    lw_ns next_ns = now_ns + lw_jitter_ns(step_ns, random);
    return now_ns < stall_ns && stall_ns < next_ns ? stall_ns : next_ns;
}

/* When the stall of a BUSY beat began: with the wait before it where that alone was overdue by a
 * threshold. */
static inline lw_ns
lw_beat_begin_ns(const lw_beat *beat, lw_ns threshold_ns)
{
    bool overdue = beat->since_ns > beat->due_ns && beat->since_ns - beat->due_ns >= threshold_ns;
    return overdue ? beat->due_ns : beat->since_ns;
}

/* Whether the loop is late in this beat, and since when: busy, or in a wait that should have ended.
 */
static inline bool
lw_beat_late_since(const lw_beat *beat, lw_ns threshold_ns, lw_ns now_ns, lw_ns *begin_ns)
{
    switch (beat->phase) {
    case LW_PHASE_OFF:
        return false;
    case LW_PHASE_WAIT:
        *begin_ns = beat->due_ns;
        return now_ns > beat->due_ns;
    case LW_PHASE_BUSY:
        *begin_ns = lw_beat_begin_ns(beat, threshold_ns);
        if (*begin_ns > now_ns) { /* two clocks that disagree by a little */
            *begin_ns = now_ns;
        }
        return true;
    }
    return false;
}

#endif
