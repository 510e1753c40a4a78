/* The one clock: CLOCK_MONOTONIC in nanoseconds, as every deadline and stamp of loopwatch has it.
 *
 * A sleeping machine stops this clock, so a suspended laptop is no stall. Callable from any thread,
 * with or without the GIL; through the vDSO about 25 ns, no system call. Tests replace it by
 * setting lw_clock_override.
 */
#ifndef LW_CLOCK_H
#define LW_CLOCK_H

#include <stdint.h>
#include <time.h>

typedef uint64_t lw_ns; /* a point or a length on CLOCK_MONOTONIC */

#define LW_NS_NEVER UINT64_MAX
#define LW_NS_PER_US ((lw_ns)1000)
#define LW_NS_PER_MS ((lw_ns)1000000)
#define LW_NS_PER_S ((lw_ns)1000000000)

static inline lw_ns
lw_timespec_ns(const struct timespec *at)
{
    return (lw_ns)at->tv_sec * LW_NS_PER_S + (lw_ns)at->tv_nsec;
}

static inline lw_ns
lw_clock_ns(clockid_t clock)
{
    struct timespec at;
    return clock_gettime(clock, &at) ? 0 : lw_timespec_ns(&at);
}

#ifdef LW_TEST
extern lw_ns (*lw_clock_override)(void); /* NULL: the real clock */
#endif

static inline lw_ns
lw_now_ns(void)
{
#ifdef LW_TEST
    if (lw_clock_override) {
        return lw_clock_override();
    }
#endif
    return lw_clock_ns(CLOCK_MONOTONIC);
}

/* What CLOCK_REALTIME showed at a point on the other clock, as far as nobody set it since. */
static inline lw_ns
lw_realtime_ns(lw_ns at_ns)
{
    lw_ns now_ns = lw_now_ns();
    return lw_clock_ns(CLOCK_REALTIME) - (now_ns - at_ns);
}

/* The monotonic clock as it was at the kernel's last tick, 1 to 10 ms ago: a quarter of the cost.
 * Equal answers: no more than a tick lies between them. */
static inline lw_ns
lw_tick_ns(void)
{
#ifdef CLOCK_MONOTONIC_COARSE
    return lw_clock_ns(CLOCK_MONOTONIC_COARSE);
#else
    return lw_now_ns();
#endif
}

#endif
