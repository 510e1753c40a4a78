/* A descriptor table of the watchdog thread's own.
 *
 * A program may close descriptors that it does not own (daemonisers close all of them), and the
 * kernel hands their numbers out again: what the watchdog then writes to "its" memfd would land in
 * the program's file. So the watchdog leaves the process's table: close_range(3, ~0U,
 * CLOSE_RANGE_UNSHARE) gives the calling thread a copy with only 0, 1 and 2 in it, and 0 and 1 are
 * closed there too: a program that closes its standard output to say that it has no more to write
 * must be understood by whoever reads it. 2 stays, for what a crash or a sanitizer has to say on
 * this thread. Descriptors of the program are then reached with pidfd_getfd(2), which is always
 * permitted within one thread group, or not at all where a seccomp profile forbids it: then the
 * table stays shared.
 *
 * All functions are called on the watchdog thread, without the GIL, and allocate nothing.
 */
#ifndef LW_FDTABLE_H
#define LW_FDTABLE_H

#include <stdbool.h>

typedef struct lw_fdtable {
    bool own;  /* the calling thread has a table of its own */
    int pidfd; /* refers to this process, lies in our table; -1 where not own */
    int error; /* errno of what failed when not own: close_range, pidfd_open or pidfd_getfd */
    const char *failed_call; /* its name, or NULL */
} lw_fdtable;

/* Asks the kernel first whether pidfd_open and pidfd_getfd are permitted, in calls that make no
 * descriptor in the shared table, then leaves it. Where they are not: nothing has changed. */
void lw_fdtable_unshare(lw_fdtable *table);

/* A descriptor of the calling thread's table for the program's descriptor `fd`; close-on-exec; -1
 * and errno where the program has no such descriptor. Where the table is shared: a dup. The caller
 * closes it. */
int lw_fdtable_adopt(const lw_fdtable *table, int fd);

/* Closes the pidfd. */
void lw_fdtable_close(lw_fdtable *table);

#endif
