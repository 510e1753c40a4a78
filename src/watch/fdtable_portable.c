/* The descriptor table on a platform of which nothing is known: always shared. Twin of fdtable.c.
 */
#ifdef LW_PORTABLE

#include "fdtable.h"

#include <errno.h>
#include <fcntl.h>

void
lw_fdtable_unshare(lw_fdtable *table)
{
    *table = (lw_fdtable){.own = false, .pidfd = -1, .error = ENOSYS, .failed_call = "close_range"};
}

int
lw_fdtable_adopt(const lw_fdtable *table, int fd)
{
    (void)table;
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

void
lw_fdtable_close(lw_fdtable *table)
{
    (void)table;
}

#else
typedef int lw_fdtable_portable_not_built; /* ISO C wants something in each file */
#endif
