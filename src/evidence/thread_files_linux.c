/* The kernel's files of one thread, on Linux: thread_files.h. Twin: thread_files_portable.c.
 *
 * /proc/self/task/TID/schedstat    CPU time, run-queue wait in ns, slices
 * /proc/self/task/TID/syscall      "running"; or number, six arguments, stack and instruction
 * pointer; or "-1", stack and instruction pointer: it sleeps outside of a call, so a page is
 * fetched /proc/self/task/TID/stat         its state and major faults among much else
 *
 * A descriptor of these refers to the thread, not to its number: once it is gone reads fail with
 * ESRCH, and a new thread of the same number is never taken for it. Kernels are built without the
 * first two, and /proc may be hidden, mounted for another pid namespace or owned by root (a
 * non-dumpable process): what cannot be opened stays closed, and its bits unknown. The kernel forms
 * the text at each pread at 0; no seek is needed and no state is kept.
 *
 * Everything here runs on the watchdog thread, without the GIL, and allocates nothing.
 */
#if defined(__linux__) && !defined(LW_PORTABLE)

#include "thread_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LW_CLOSED (-1)

static int
open_file(pid_t tid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)tid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void
close_file(int fd)
{
    if (fd != LW_CLOSED) {
        close(fd);
    }
}

/* The numbers mean something in one descriptor table only. A watchdog that was started anew, in a
 * forked child or after the last one ended, has another, in which they may name anything. */
static bool
opened_here(const lw_thread_files *files)
{
    return files->tid && files->opener == gettid();
}

void
lw_thread_files_open(lw_thread_files *files, pid_t tid)
{
    bool here = opened_here(files);
    if (here && files->tid == tid) {
        return;
    }
    if (here) {
        lw_thread_files_close(files);
    }
    *files = (lw_thread_files){
        .tid = tid,
        .opener = gettid(),
        .schedstat_fd = open_file(tid, "schedstat"),
        .syscall_fd = open_file(tid, "syscall"),
        .stat_fd = open_file(tid, "stat"),
    };
}

void
lw_thread_files_close(lw_thread_files *files)
{
    if (opened_here(files)) {
        close_file(files->schedstat_fd);
        close_file(files->syscall_fd);
        close_file(files->stat_fd);
    }
    *files = (lw_thread_files){
        .tid = 0, .schedstat_fd = LW_CLOSED, .syscall_fd = LW_CLOSED, .stat_fd = LW_CLOSED};
}

/* The file's text, NUL-terminated; false where there is none. */
static bool
read_text(int fd, char *text, size_t size)
{
    ssize_t n = fd == LW_CLOSED ? -1 : pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* --- schedstat --- */

/* Three zeros: the kernel has the file but keeps no such accounts (CONFIG_SCHED_INFO without
 * schedstats, delayacct off); a thread that has run has used CPU time. */
static void
read_schedstat(int fd, lw_evidence *out)
{
    char text[96];
    char *end;
    if (!read_text(fd, text, sizeof text)) {
        return;
    }
    lw_ns cpu_ns = strtoull(text, &end, 10);
    const char *wait = end;
    lw_ns run_queue_ns = strtoull(wait, &end, 10);
    if (end != wait && (cpu_ns || run_queue_ns)) {
        out->clocks.run_queue_ns = run_queue_ns;
        out->known |= LW_KNOWS_RUN_QUEUE;
    }
}

/* --- stat --- */

#define LW_FIELDS_BEFORE_MAJOR_FAULTS                                                              \
    9 /* from the state on: proc_pid_stat(5) has it as 3, the faults as 12 */

/* Its state letter, '\0' where it cannot be read. The name before it may contain anything, also ")
 * R". */
static char
read_stat(int fd, lw_evidence *out)
{
    char text[512];
    if (!read_text(fd, text, sizeof text)) {
        return '\0';
    }
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ') {
        return '\0';
    }
    at += 2;
    char state = *at;
    for (int i = 0; i < LW_FIELDS_BEFORE_MAJOR_FAULTS; i++) {
        at = strchr(at, ' ');
        if (!at) {
            return state;
        }
        at++;
    }
    out->clocks.major_faults = strtoull(at, NULL, 10);
    out->known |= LW_KNOWS_FAULTS;
    return state;
}

/* --- syscall --- */

static bool
is_futex(long number)
{
    switch (number) {
    case SYS_futex:
#ifdef SYS_futex_time64
    case SYS_futex_time64:
#endif
#ifdef SYS_futex_waitv
    case SYS_futex_waitv:
#endif
#ifdef SYS_futex_wait
    case SYS_futex_wait:
#endif
        return true;
    }
    return false;
}

static void
stands(lw_evidence *out, lw_stand stand)
{
    out->stand = stand;
    out->known |= LW_KNOWS_STAND;
}

/* "232 0x4 0x7f.. 0x.. 0x.. 0x.. 0x.. sp pc" */
static void
parse_call(long number, const char *at, lw_evidence *out)
{
    for (int i = 0; i < LW_CALL_ARGUMENTS; i++) {
        char *end;
        out->arguments[i] = strtoull(at, &end, 16);
        if (end == at) {
            return;
        }
        at = end;
    }
    out->syscall = (int32_t)number;
    stands(out, is_futex(number) ? LW_STAND_FUTEX : LW_STAND_CALL);
}

/* Without this file, the state letter still tells a thread that runs from one that does not;
 * nothing tells which of the sleeping ones wait for the GIL. A thread that a debugger stopped
 * stands nowhere. */
static void
read_stand(int fd, char state, lw_evidence *out)
{
    char text[256];
    char *end;
    if (!read_text(fd, text, sizeof text)) {
        if (state == 'R') {
            stands(out, LW_STAND_RUNNING);
        }
        return;
    }
    if (!strncmp(text, "running", 7)) {
        stands(out, LW_STAND_RUNNING);
        return;
    }
    long number = strtol(text, &end, 10);
    if (end == text) {
        return;
    }
    if (number >= 0) {
        parse_call(number, end, out);
    }
    else if (state != 'T' && state != 't') {
        stands(out, LW_STAND_PAGE);
    }
}

/* Where the file of the system call cannot be read, or says that the thread sleeps outside of one,
 * the state letter is needed too. */
void
lw_thread_files_read_stand(const lw_thread_files *files, lw_evidence *out)
{
    out->stand = LW_STAND_UNKNOWN;
    out->syscall = -1;
    if (!files->tid) {
        return;
    }
    read_stand(files->syscall_fd, '\0', out);
    if (out->stand == LW_STAND_UNKNOWN || out->stand == LW_STAND_PAGE) {
        char state = read_stat(files->stat_fd, out);
        out->stand = LW_STAND_UNKNOWN;
        read_stand(files->syscall_fd, state, out);
    }
}

void
lw_thread_files_read(const lw_thread_files *files, lw_evidence *out)
{
    out->stand = LW_STAND_UNKNOWN;
    out->syscall = -1;
    if (!files->tid) {
        return;
    }
    read_schedstat(files->schedstat_fd, out);
    char state = read_stat(files->stat_fd, out);
    read_stand(files->syscall_fd, state, out);
}

bool
lw_thread_files_run_queue(const lw_thread_files *files, lw_ns *run_queue_ns)
{
    lw_evidence found = {0};
    if (files->tid) {
        read_schedstat(files->schedstat_fd, &found);
    }
    *run_queue_ns = found.clocks.run_queue_ns;
    return (found.known & LW_KNOWS_RUN_QUEUE) != 0;
}

void
lw_thread_await_gone(pid_t tid, lw_ns deadline_ns)
{
    const struct timespec nap = {.tv_nsec = 100 * (long)LW_NS_PER_US};
    while (syscall(SYS_tgkill, getpid(), tid, 0) == 0 && lw_now_ns() < deadline_ns) {
        nanosleep(&nap, NULL);
    }
}

#else
typedef int lw_thread_files_linux_not_built; /* ISO C wants something in each file */
#endif
