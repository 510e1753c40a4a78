/* A descriptor table of the watchdog thread's own, on Linux (see fdtable.h for why). Twin:
 * fdtable_portable.c.
 *
 * Leaving the shared table cannot be undone, and a thread in its own table that cannot reach the
 * program's descriptors would be of no use. So permission is asked for beforehand, with arguments
 * that cannot succeed: pidfd_open with unknown flags answers EINVAL and pidfd_getfd of no pidfd
 * EBADF, where a seccomp filter or an old kernel answers EPERM or ENOSYS. Really opening something
 * there would race with a program that closes all descriptors it sees.
 *
 * pidfd_getfd looks into the table of the thread group's leader, the main thread, which is the
 * program's.
 */
#ifndef LW_PORTABLE

#include "fdtable.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc had these late; the numbers are the same on every architecture that CPython supports. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define LW_CLOSE_RANGE_UNSHARE (1u << 1)

static void
refused(lw_fdtable *table, const char *call)
{
    table->error = errno;
    table->failed_call = call;
}

static bool
permitted(lw_fdtable *table)
{
    if (syscall(SYS_pidfd_open, (long)getpid(), ~0u) >= 0 || errno != EINVAL) {
        refused(table, "pidfd_open");
        return false;
    }
    if (syscall(SYS_pidfd_getfd, -1, 0, 0u) >= 0 || errno != EBADF) {
        refused(table, "pidfd_getfd");
        return false;
    }
    return true;
}

void
lw_fdtable_unshare(lw_fdtable *table)
{
    *table = (lw_fdtable){.own = false, .pidfd = -1};
    if (!permitted(table)) {
        return;
    }
    if (syscall(SYS_close_range, 3u, ~0u, LW_CLOSE_RANGE_UNSHARE)) {
        refused(table, "close_range");
        return;
    }
    table->own = true;
    close(0);
    close(1);
    table->pidfd = (int)syscall(SYS_pidfd_open, (long)getpid(), 0u);
    if (table->pidfd < 0) {
        refused(table, "pidfd_open"); /* out of memory: the table is our own, but lw_fdtable_adopt()
                                         will fail */
    }
}

int
lw_fdtable_adopt(const lw_fdtable *table, int fd)
{
    if (table->own) {
        return (int)syscall(SYS_pidfd_getfd, table->pidfd, fd, 0u); /* close-on-exec by itself */
    }
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

void
lw_fdtable_close(lw_fdtable *table)
{
    if (table->pidfd >= 0) {
        close(table->pidfd);
        table->pidfd = -1;
    }
}

#else
typedef int lw_fdtable_not_built; /* ISO C wants something in each file */
#endif
