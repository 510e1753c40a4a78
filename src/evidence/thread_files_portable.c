/* A platform of which nothing is known has no files to read: thread_files.h. Twin of
 * thread_files_linux.c, cgroup_linux.c, syscalls_linux.c and call_target_linux.c. */
#if !defined(__linux__) || defined(LW_PORTABLE)

#include "thread_files.h"

#include <stddef.h>

void
lw_thread_files_open(lw_thread_files *files, pid_t tid)
{
    *files = (lw_thread_files){.tid = tid, .schedstat_fd = -1, .syscall_fd = -1, .stat_fd = -1};
}

void
lw_thread_files_close(lw_thread_files *files)
{
    files->tid = 0;
}

void
lw_thread_files_read(const lw_thread_files *files, lw_evidence *out)
{
    (void)files;
    out->stand = LW_STAND_UNKNOWN;
    out->syscall = -1;
}

bool
lw_thread_files_run_queue(const lw_thread_files *files, lw_ns *run_queue_ns)
{
    (void)files;
    *run_queue_ns = 0;
    return false;
}

void
lw_thread_files_read_stand(const lw_thread_files *files, lw_evidence *out)
{
    lw_thread_files_read(files, out);
}

void
lw_cgroup_files_open(lw_cgroup_files *files)
{
    files->n = 0;
}

void
lw_cgroup_files_close(lw_cgroup_files *files)
{
    files->n = 0;
}

bool
lw_cgroup_files_read(const lw_cgroup_files *files, lw_ns *throttled_ns)
{
    (void)files;
    *throttled_ns = 0;
    return false;
}

void
lw_thread_await_gone(pid_t tid, lw_ns deadline_ns)
{
    (void)tid;
    (void)deadline_ns;
}

const char *
lw_syscall_name(int32_t number)
{
    (void)number;
    return NULL;
}

void
lw_call_target(const lw_evidence *evidence, pid_t tid, const struct lw_fdtable *fds,
               struct lw_reader *reader, char out[LW_TARGET_MAX])
{
    (void)evidence;
    (void)tid;
    (void)fds;
    (void)reader;
    out[0] = '\0';
}

#else
typedef int lw_thread_files_portable_not_built; /* ISO C wants something in each file */
#endif
