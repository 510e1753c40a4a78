/* What the kernel says of one thread of this process: run queue, state, faults, system call; and of
 * its cgroup.
 *
 * The files are opened when a slot's thread becomes known (some cannot be opened later in a
 * non-dumpable process), in the watchdog's own descriptor table, and read with pread at looks only.
 * thread_files_linux.c has them; thread_files_portable.c says that nothing is known. On the
 * watchdog thread, without the GIL; nothing allocates.
 */
#ifndef LW_THREAD_FILES_H
#define LW_THREAD_FILES_H

#include "evidence.h"

#define LW_CGROUPS_MAX 8 /* this cgroup and its ancestors that have a quota */

typedef struct lw_thread_files {
    pid_t tid;    /* 0: nothing is open */
    pid_t opener; /* the thread in whose descriptor table they are: for another one, as in a forked
                     child, the numbers mean nothing */
    int schedstat_fd, syscall_fd, stat_fd;
} lw_thread_files;

typedef struct lw_cgroup_files {
    int n;
    int stat_fds[LW_CGROUPS_MAX]; /* each a cpu.stat or cpu.stat.local with a throttled time (v1:
                                     throttled_time ns; v2: throttled_usec) */
    uint64_t unit_ns[LW_CGROUPS_MAX];
} lw_cgroup_files;

/* Idempotent for the same tid and caller; opens anew for another. */
void lw_thread_files_open(lw_thread_files *files, pid_t tid);

/* By the thread that opened them; by another one it closes nothing, and only forgets them. */
void lw_thread_files_close(lw_thread_files *files);

/* The process's cgroup, v1 or v2, whichever has the key; once at the watchdog's start. */
void lw_cgroup_files_open(lw_cgroup_files *files);
void lw_cgroup_files_close(lw_cgroup_files *files);

/* Fills clocks.run_queue_ns, clocks.major_faults, stand (GIL or FUTEX both as FUTEX, with the
 * futex's address in arguments[0]), syscall, arguments, and their bits in `known`. */
void lw_thread_files_read(const lw_thread_files *files, lw_evidence *out);

/* Its run-queue wait alone, as clocks.run_queue_ns; false where that is not known. */
bool lw_thread_files_run_queue(const lw_thread_files *files, lw_ns *run_queue_ns);

/* Of what lw_thread_files_read fills in only stand, syscall and arguments: one file of three. */
void lw_thread_files_read_stand(const lw_thread_files *files, lw_evidence *out);

/* How long the cgroup was throttled, by itself or by an ancestor: at least that, summed over CPUs,
 * and moving when a throttle ends. What one thread lost is that much at most, and its run-queue
 * wait at most. */
bool lw_cgroup_files_read(const lw_cgroup_files *files, lw_ns *throttled_ns);

/* Waits until a joined thread has left /proc and the count of threads too: a thread is joined some
 * milliseconds before, while the kernel still closes its descriptors. Any other thread, with or
 * without the GIL. */
void lw_thread_await_gone(pid_t tid, lw_ns deadline_ns);

/* Name of a system call of this machine ("read", "poll"), NULL where it is not known. Static. */
const char *lw_syscall_name(int32_t number);

#define LW_TARGET_MAX 256

/* What a blocked call waits for, as text in `out`: "tcp 127.0.0.1:5432", "tcp listening [::1]:80",
 * "unix /run/x.sock", "pipe", "eventfd", a path, "child 4242", up to three of them joined by ", "
 * for a poll or select; "" where there is nothing to say, as of a sleep or a futex. Control
 * characters are replaced; what is not UTF-8 in a path stays. Looks at the program's descriptors by
 * /proc/self/task/TID/fd and pidfd_getfd, at its memory (arrays, addresses, paths) by `reader`. */
struct lw_reader;
struct lw_fdtable;
void lw_call_target(const lw_evidence *evidence, pid_t tid, const struct lw_fdtable *fds,
                    struct lw_reader *reader, char out[LW_TARGET_MAX]);

#endif
