/* What a blocked system call waits for: thread_files.h. Twin: thread_files_portable.c.
 *
 * What the call's arguments are decides (syscalls.h): a descriptor, a path, an address, a set of
 * descriptors, a child. What an argument points to is read through the guarded reader, since the
 * thread may be back and its memory gone.
 *
 * On the watchdog thread, without the GIL; nothing allocates or waits.
 */
#if defined(__linux__) && !defined(LW_PORTABLE)

#include "thread_files.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptor_text.h"
#include "memory/read.h"
#include "syscalls.h"

#define LW_NAMED_MAX 3     /* descriptors of a poll that are named, at most... */
#define LW_LOOKED_AT_MAX 8 /* ...of the first so many that it has */
#define LW_SET_WORDS 16    /* of an fd_set: 1024 descriptors */

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* Who asks, and about what; passed around whole. */
typedef struct question {
    const lw_evidence *evidence;
    pid_t tid;
    const lw_fdtable *fds;
    lw_reader *reader;
} question;

/* The upper half of a register is not an int's. */
static int
argument_int(const question *asked, int i)
{
    return (int)(uint32_t)asked->evidence->arguments[i];
}

static uintptr_t
argument_address(const question *asked, int i)
{
    return (uintptr_t)asked->evidence->arguments[i];
}

/* --- several descriptors --- */

/* Is `word` one of those in the list already? subprocess waits for two pipes, and "pipe" says it.
 */
static bool
listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at; at = strstr(at, ", ")) {
        at += at == list ? 0 : 2;
        if (!strncmp(at, word, length) && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static void
list_fds(const question *asked, const int *numbers, int n, char out[LW_TARGET_MAX])
{
    int named = 0;
    for (int i = 0; i < n && named < LW_NAMED_MAX; i++) {
        char text[LW_TARGET_MAX];
        size_t length = strlen(out);
        lw_descriptor_text(asked->tid, asked->fds, numbers[i], text);
        if (text[0] && !listed(out, text)) {
            snprintf(out + length, LW_TARGET_MAX - length, "%s%s", length ? ", " : "", text);
            named++;
        }
    }
}

static void
poll_text(const question *asked, char out[LW_TARGET_MAX])
{
    struct pollfd polled[LW_LOOKED_AT_MAX];
    int numbers[LW_LOOKED_AT_MAX];
    uint64_t n = asked->evidence->arguments[1];
    n = n < LW_LOOKED_AT_MAX ? n : LW_LOOKED_AT_MAX;
    if (!n ||
        !lw_read(asked->reader, argument_address(asked, 0), polled, (size_t)n * sizeof *polled)) {
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        numbers[i] = polled[i].fd; /* a negative one is switched off, and has no text */
    }
    list_fds(asked, numbers, (int)n, out);
}

/* The kernel changes the sets only when the call returns. */
static void
select_text(const question *asked, char out[LW_TARGET_MAX])
{
    const size_t bits = 8 * sizeof(unsigned long);
    unsigned long all[LW_SET_WORDS] = {0};
    int numbers[LW_LOOKED_AT_MAX];
    int n = 0, limit = argument_int(asked, 0);
    limit = limit < (int)(LW_SET_WORDS * bits) ? limit : (int)(LW_SET_WORDS * bits);
    size_t words = limit > 0 ? ((size_t)limit + bits - 1) / bits : 0;
    for (int set = 1; set <= 3; set++) {
        unsigned long one[LW_SET_WORDS];
        if (argument_address(asked, set) &&
            lw_read(asked->reader, argument_address(asked, set), one, words * sizeof *one)) {
            for (size_t i = 0; i < words; i++) {
                all[i] |= one[i];
            }
        }
    }
    for (int fd = 0; fd < limit && n < LW_LOOKED_AT_MAX; fd++) {
        if (all[(size_t)fd / bits] >> ((size_t)fd % bits) & 1) {
            numbers[n++] = fd;
        }
    }
    list_fds(asked, numbers, n, out);
}

/* --- what arguments point to --- */

static void
address_text(const question *asked, int address, int length, char out[LW_TARGET_MAX])
{
    struct sockaddr_storage to = {0};
    int size = argument_int(asked, length);
    if (argument_address(asked, address) && size > 0 && size <= (int)sizeof to &&
        lw_read(asked->reader, argument_address(asked, address), &to, (size_t)size)) {
        lw_descriptor_text_to(asked->tid, asked->fds, argument_int(asked, 0), &to, (socklen_t)size,
                              out);
    }
    else {
        lw_descriptor_text(asked->tid, asked->fds, argument_int(asked, 0), out);
    }
}

/* A path may end right before a page that is not mapped: read in pieces that do not cross a page's
 * border. */
static void
path_text(const question *asked, int argument, char out[LW_TARGET_MAX])
{
    const uintptr_t page = 4096; /* the smallest anywhere */
    uintptr_t at = argument_address(asked, argument);
    size_t length = 0;
    while (at && length < LW_TARGET_MAX - 1) {
        size_t piece = page - at % page;
        size_t room = LW_TARGET_MAX - 1 - length;
        piece = piece < room ? piece : room;
        if (!lw_read(asked->reader, at, out + length, piece)) {
            out[length] = '\0';
            break;
        }
        if (memchr(out + length, '\0', piece)) {
            break;
        }
        length += piece;
        at += piece;
    }
    out[LW_TARGET_MAX - 1] = '\0';
}

/* --- children --- */

static void
child_text(int pid, char out[LW_TARGET_MAX])
{
    if (pid > 0) {
        snprintf(out, LW_TARGET_MAX, "child %d", pid);
    }
    else {
        snprintf(out, LW_TARGET_MAX, "any child");
    }
}

static void
waitid_text(const question *asked, char out[LW_TARGET_MAX])
{
    switch (argument_int(asked, 0)) {
    case P_PID:
        child_text(argument_int(asked, 1), out);
        break;
    case P_PIDFD:
        lw_descriptor_text(asked->tid, asked->fds, argument_int(asked, 1), out);
        break;
    default:
        child_text(0, out);
    }
}

/* Nothing that a terminal or a log takes for more than text. */
static void
make_plain(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = '?';
        }
    }
}

void
lw_call_target(const lw_evidence *evidence, pid_t tid, const struct lw_fdtable *fds,
               struct lw_reader *reader, char out[LW_TARGET_MAX])
{
    const question asked = {evidence, tid, fds, reader};
    out[0] = '\0';
    switch (lw_syscall_kind(evidence->syscall)) {
    case LW_CALL_OTHER:
        break;
    case LW_CALL_FD:
        lw_descriptor_text(tid, fds, argument_int(&asked, 0), out);
        break;
    case LW_CALL_FDS_0_2:
        list_fds(&asked, (int[]){argument_int(&asked, 0), argument_int(&asked, 2)}, 2, out);
        break;
    case LW_CALL_SEND_TO:
        address_text(&asked, 4, 5, out);
        break;
    case LW_CALL_CONNECT:
        address_text(&asked, 1, 2, out);
        break;
    case LW_CALL_PATH:
        path_text(&asked, 0, out);
        break;
    case LW_CALL_PATH_AT:
        path_text(&asked, 1, out);
        if (!out[0]) {
            lw_descriptor_text(tid, fds, argument_int(&asked, 0), out);
        }
        break;
    case LW_CALL_POLL:
        poll_text(&asked, out);
        break;
    case LW_CALL_SELECT:
        select_text(&asked, out);
        break;
    case LW_CALL_EPOLL:
        snprintf(out, LW_TARGET_MAX, "epoll");
        break;
    case LW_CALL_IO_URING:
        snprintf(out, LW_TARGET_MAX, "io_uring");
        break;
    case LW_CALL_WAIT4:
        child_text(argument_int(&asked, 0), out);
        break;
    case LW_CALL_WAITID:
        waitid_text(&asked, out);
        break;
    }
    make_plain(out);
}

#else
typedef int lw_call_target_linux_not_built; /* ISO C wants something in each file */
#endif
