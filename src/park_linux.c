/* lw_park on a futex. FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC deadline, so a sleep that
 * is interrupted needs no arithmetic to go on. */
#include "park.h"

#if defined(__linux__) && !defined(LW_PORTABLE)

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t),
              "the kernel reads the counter as a plain word");

bool
lw_park_wait(lw_park *park, uint32_t seen, lw_ns deadline_ns)
{
    struct timespec at;
    struct timespec *deadline = NULL;
    if (deadline_ns != LW_NS_NEVER) {
        at.tv_sec = (time_t)(deadline_ns / LW_NS_PER_S);
        at.tv_nsec = (long)(deadline_ns % LW_NS_PER_S);
        deadline = &at;
    }
    long result = syscall(SYS_futex, &park->count, FUTEX_WAIT_BITSET_PRIVATE, seen, deadline, NULL,
                          FUTEX_BITSET_MATCH_ANY);
    return result < 0 && errno == ETIMEDOUT;
}

void
lw_park_wake(lw_park *park)
{
    atomic_fetch_add_explicit(&park->count, 1, memory_order_seq_cst);
    syscall(SYS_futex, &park->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* The kernel has the sleepers, and a child none of them. */
void
lw_park_forget(void)
{
}

#endif
