/* The system calls that a stall can sit in, by the numbers of the architecture that this is
 * compiled for: syscalls.h, and lw_syscall_name() of thread_files.h. Twin: thread_files_portable.c.
 *
 * Those that can block, or that take long on a slow disk or with much memory. A number that is not
 * here has no name, and the report says none. The first groups are of calls that each architecture
 * has, and all kernel headers that CPython can be built with; the rest comes after them, each by
 * itself.
 */
#if defined(__linux__) && !defined(LW_PORTABLE)

#include "syscalls.h"

#include <stddef.h>
#include <sys/syscall.h>

#include "thread_files.h"

typedef struct known_call {
    int32_t number;
    lw_call_kind kind;
    const char *name;
} known_call;

#define CALL(name, kind) {SYS_##name, LW_CALL_##kind, #name}

/* clang-format off */
static const known_call known_calls[] = {
    /* waiting */
    CALL(clock_nanosleep, OTHER),
    CALL(epoll_pwait, EPOLL),
    CALL(futex, OTHER),
    CALL(nanosleep, OTHER),
    CALL(ppoll, POLL),
    CALL(pselect6, SELECT),
    CALL(restart_syscall, OTHER),
    CALL(rt_sigsuspend, OTHER),
    CALL(rt_sigtimedwait, OTHER),
    CALL(wait4, WAIT4),
    CALL(waitid, WAITID),
    /* sockets */
    CALL(accept4, FD),
    CALL(bind, FD),
    CALL(connect, CONNECT),
    CALL(recvfrom, FD),
    CALL(recvmmsg, FD),
    CALL(recvmsg, FD),
    CALL(sendmmsg, FD),
    CALL(sendmsg, FD),
    CALL(sendto, SEND_TO),
    CALL(shutdown, FD),
    /* files by descriptor */
    CALL(close, FD),
    CALL(copy_file_range, FDS_0_2),
    CALL(fallocate, FD),
    CALL(fcntl, FD),
    CALL(fdatasync, FD),
    CALL(flock, FD),
    CALL(fstat, FD),
    CALL(fsync, FD),
    CALL(ftruncate, FD),
    CALL(getdents64, FD),
    CALL(io_getevents, OTHER),
    CALL(io_submit, OTHER),
    CALL(ioctl, FD),
    CALL(lseek, FD),
    CALL(pread64, FD),
    CALL(preadv, FD),
    CALL(preadv2, FD),
    CALL(pwrite64, FD),
    CALL(pwritev, FD),
    CALL(pwritev2, FD),
    CALL(read, FD),
    CALL(readahead, FD),
    CALL(readv, FD),
    CALL(sendfile, FD),
    CALL(splice, FDS_0_2),
    CALL(syncfs, FD),
    CALL(tee, FDS_0_2),
    CALL(vmsplice, FD),
    CALL(write, FD),
    CALL(writev, FD),
    /* files by name */
    CALL(chdir, PATH),
    CALL(execve, PATH),
    CALL(faccessat, PATH_AT),
    CALL(fchmodat, PATH_AT),
    CALL(fchownat, PATH_AT),
    CALL(linkat, PATH_AT),
    CALL(mkdirat, PATH_AT),
    CALL(mount, OTHER),
    CALL(openat, PATH_AT),
    CALL(readlinkat, PATH_AT),
    CALL(statfs, PATH),
    CALL(symlinkat, OTHER),
    CALL(sync, OTHER),
    CALL(truncate, PATH),
    CALL(umount2, PATH),
    CALL(unlinkat, PATH_AT),
    CALL(utimensat, PATH_AT),
    /* memory and processes */
    CALL(brk, OTHER),
    CALL(clone, OTHER),
    CALL(exit_group, OTHER),
    CALL(finit_module, OTHER),
    CALL(getrandom, OTHER),
    CALL(madvise, OTHER),
    CALL(mlock, OTHER),
    CALL(mprotect, OTHER),
    CALL(mremap, OTHER),
    CALL(msync, OTHER),
    CALL(munmap, OTHER),
    CALL(ptrace, OTHER),
    CALL(sched_yield, OTHER),
    /* message queues and semaphores */
    CALL(mq_timedreceive, FD),
    CALL(mq_timedsend, FD),
    CALL(msgrcv, OTHER),
    CALL(msgsnd, OTHER),
    /* not everywhere */
#ifdef SYS_accept
    CALL(accept, FD),
#endif
#ifdef SYS_access
    CALL(access, PATH),
#endif
#ifdef SYS_chmod
    CALL(chmod, PATH),
#endif
#ifdef SYS_chown
    CALL(chown, PATH),
#endif
#ifdef SYS_clone3
    CALL(clone3, OTHER),
#endif
#ifdef SYS_close_range
    CALL(close_range, OTHER),
#endif
#ifdef SYS_creat
    CALL(creat, PATH),
#endif
#ifdef SYS_epoll_pwait2
    CALL(epoll_pwait2, EPOLL),
#endif
#ifdef SYS_epoll_wait
    CALL(epoll_wait, EPOLL),
#endif
#ifdef SYS_execveat
    CALL(execveat, PATH_AT),
#endif
#ifdef SYS_faccessat2
    CALL(faccessat2, PATH_AT),
#endif
#ifdef SYS_fcntl64
    CALL(fcntl64, FD),
#endif
#ifdef SYS_fork
    CALL(fork, OTHER),
#endif
#ifdef SYS_fstatat64
    CALL(fstatat64, PATH_AT),
#endif
#ifdef SYS_futex_time64
    CALL(futex_time64, OTHER),
#endif
#ifdef SYS_futex_wait
    CALL(futex_wait, OTHER),
#endif
#ifdef SYS_futex_waitv
    CALL(futex_waitv, OTHER),
#endif
#ifdef SYS_getdents
    CALL(getdents, FD),
#endif
#ifdef SYS_io_pgetevents
    CALL(io_pgetevents, OTHER),
#endif
#ifdef SYS_io_uring_enter
    CALL(io_uring_enter, IO_URING),
#endif
#ifdef SYS_link
    CALL(link, PATH),
#endif
#ifdef SYS_lstat
    CALL(lstat, PATH),
#endif
#ifdef SYS_mkdir
    CALL(mkdir, PATH),
#endif
#ifdef SYS_mmap
    CALL(mmap, OTHER),
#endif
#ifdef SYS_mmap2
    CALL(mmap2, OTHER),
#endif
#ifdef SYS_newfstatat
    CALL(newfstatat, PATH_AT),
#endif
#ifdef SYS_open
    CALL(open, PATH),
#endif
#ifdef SYS_openat2
    CALL(openat2, PATH_AT),
#endif
#ifdef SYS_pause
    CALL(pause, OTHER),
#endif
#ifdef SYS_poll
    CALL(poll, POLL),
#endif
#ifdef SYS_ppoll_time64
    CALL(ppoll_time64, POLL),
#endif
#ifdef SYS_process_madvise
    CALL(process_madvise, OTHER),
#endif
#ifdef SYS_pselect6_time64
    CALL(pselect6_time64, SELECT),
#endif
#ifdef SYS_readlink
    CALL(readlink, PATH),
#endif
#ifdef SYS_recv
    CALL(recv, FD),
#endif
#ifdef SYS_rename
    CALL(rename, PATH),
#endif
#ifdef SYS_renameat
    CALL(renameat, PATH_AT),
#endif
#ifdef SYS_renameat2
    CALL(renameat2, PATH_AT),
#endif
#ifdef SYS_rmdir
    CALL(rmdir, PATH),
#endif
#ifdef SYS_select
    CALL(select, SELECT),
#endif
#ifdef SYS_semop
    CALL(semop, OTHER),
#endif
#ifdef SYS_semtimedop
    CALL(semtimedop, OTHER),
#endif
#ifdef SYS_send
    CALL(send, FD),
#endif
#ifdef SYS_stat
    CALL(stat, PATH),
#endif
#ifdef SYS_statx
    CALL(statx, PATH_AT),
#endif
#ifdef SYS_symlink
    CALL(symlink, OTHER),
#endif
#ifdef SYS_sync_file_range
    CALL(sync_file_range, FD),
#endif
#ifdef SYS_unlink
    CALL(unlink, PATH),
#endif
#ifdef SYS_vfork
    CALL(vfork, OTHER),
#endif
};
/* clang-format on */

static const known_call *
find(int32_t number)
{
    for (size_t i = 0; i < sizeof known_calls / sizeof *known_calls; i++) {
        if (known_calls[i].number == number) {
            return &known_calls[i];
        }
    }
    return NULL;
}

const char *
lw_syscall_name(int32_t number)
{
    const known_call *call = find(number);
    return call ? call->name : NULL;
}

lw_call_kind
lw_syscall_kind(int32_t number)
{
    const known_call *call = find(number);
    return call ? call->kind : LW_CALL_OTHER;
}

#else
typedef int lw_syscalls_linux_not_built; /* ISO C wants something in each file */
#endif
