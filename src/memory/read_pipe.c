/* Guarded reads through a pipe: writev(2) of the foreign segments into a private pipe, readv(2)
 * back out of it.
 *
 * Why: it needs only calls that no container profile forbids. It has the danger of read_memfd.c,
 * descriptors whose numbers the program may come to reuse, and so the same condition: a descriptor
 * table of the thread's own.
 *
 * Both ends are nonblocking, so nothing here can hang: a pipe that is full takes what it has room
 * for and the rest is asked for again. Between two transfers the pipe is empty. That is what makes
 * its bytes ours: where it cannot be emptied again, the backend stops for good.
 */
#ifndef LW_PORTABLE

#include "read_backends.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void
close_ends(lw_reader *reader)
{
    for (int i = 0; i < 2; i++) {
        if (reader->pipe_fds[i] >= 0) {
            close(reader->pipe_fds[i]);
            reader->pipe_fds[i] = -1;
        }
    }
}

static int
open_pipe(lw_reader *reader, int mem_fd)
{
    (void)mem_fd;
    int error = lw_read_map(reader, 0);
    if (error) {
        return error;
    }
    return pipe2(reader->pipe_fds, O_CLOEXEC | O_NONBLOCK) ? errno : 0;
}

static void
close_pipe(lw_reader *reader)
{
    if (reader->map && lw_read_same_process(reader, 0)) {
        close_ends(reader);
    }
    reader->pipe_fds[0] = reader->pipe_fds[1] = -1;
    lw_read_unmap(reader, 0);
}

/* Leaves out the first `bytes` bytes of a list; returns the index of its new first entry. */
static size_t
advance(struct iovec *iov, size_t first, size_t n, size_t bytes)
{
    while (first < n && bytes >= iov[first].iov_len) {
        bytes -= iov[first++].iov_len;
    }
    if (first < n) {
        iov[first].iov_base = (char *)iov[first].iov_base + bytes;
        iov[first].iov_len -= bytes;
    }
    return first;
}

static ssize_t
fill(int fd, const struct iovec *foreign, size_t n)
{
    ssize_t bytes;
    do {
        bytes = syscall(SYS_writev, fd, foreign, n);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0) {
        return errno == EFAULT ? 0 : -errno;
    }
    return bytes;
}

/* The pipe holds `bytes` bytes, all of which have a place in `own`; 0 or -errno. */
static ssize_t
drain(int fd, struct iovec *own, size_t *first, size_t n, size_t bytes)
{
    while (bytes > 0) {
        ssize_t got = readv(fd, own + *first, (int)(n - *first));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got ? -errno : -EPIPE;
        }
        *first = advance(own, *first, n, (size_t)got);
        bytes -= (size_t)got;
    }
    return 0;
}

static ssize_t
transfer_pipe(lw_reader *reader, const lw_segment *segments, size_t n)
{
    if (!lw_read_same_process(reader, 0)) {
        return -ESRCH;
    }
    if (reader->pipe_fds[1] < 0) {
        return -EBADF;
    }
    struct iovec own[LW_IOV_MAX], foreign[LW_IOV_MAX];
    lw_iov_own(own, segments, n);
    lw_iov_foreign(foreign, segments, n);
    size_t next_own = advance(own, 0, n, 0);
    size_t next = advance(foreign, 0, n, 0);
    ssize_t total = 0;
    while (next < n) {
        ssize_t bytes = fill(reader->pipe_fds[1], foreign + next, n - next);
        if (bytes <= 0) {
            return bytes ? bytes : total;
        }
        ssize_t error = drain(reader->pipe_fds[0], own, &next_own, n, (size_t)bytes);
        if (error) {
            close_ends(reader);
            return error;
        }
        next = advance(foreign, next, n, (size_t)bytes);
        total += bytes;
    }
    return total;
}

const lw_read_ops lw_read_pipe = {
    .name = "pipe",
    .writes_to_fd = true,
    .open = open_pipe,
    .transfer = transfer_pipe,
    .close = close_pipe,
};

#else
typedef int lw_read_pipe_not_built; /* ISO C wants something in each file */
#endif
