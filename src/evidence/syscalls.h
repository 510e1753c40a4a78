/* The system calls that a stall can sit in: their names, and what their arguments say of what they
 * wait for.
 *
 * Linux only: call_target_linux.c asks; lw_syscall_name() of thread_files.h is in the same file.
 * From any thread, without the GIL.
 */
#ifndef LW_SYSCALLS_H
#define LW_SYSCALLS_H

#include <stdint.h>

typedef enum lw_call_kind {
    LW_CALL_OTHER = 0, /* nothing that could be named: a sleep, work on memory, an unknown call */
    LW_CALL_FD,        /* for the descriptor in argument 0 */
    LW_CALL_FDS_0_2,   /* for either of those in 0 and 2 */
    LW_CALL_SEND_TO,   /* for descriptor 0, and the address at 4 (its length 5), or its peer where
                          there is none */
    LW_CALL_CONNECT,   /* for descriptor 0, and the address at 1 (its length 2) */
    LW_CALL_PATH,      /* for the path at 0 */
    LW_CALL_PATH_AT,   /* for the path at 1, or, where that is empty, for descriptor 0 */
    LW_CALL_POLL,      /* for those in the array at 0 (its length 1) */
    LW_CALL_SELECT,    /* for those in the three sets from 1 on, below 0 */
    LW_CALL_EPOLL,     /* for an epoll of the program's own: the loop's is no stall */
    LW_CALL_IO_URING,
    LW_CALL_WAIT4,  /* for the child in 0 */
    LW_CALL_WAITID, /* for the child in 1, which is what 0 says */
} lw_call_kind;

lw_call_kind lw_syscall_kind(int32_t number);

#endif
