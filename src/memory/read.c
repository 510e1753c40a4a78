/* Guarded reads: which backend, how much at once, and what a short answer means.
 *
 * Why several backends: each depends on system calls that one container profile or another forbids,
 * and they differ tenfold in cost. lw_reader_open() tries them in order of cost and keeps the first
 * that passes a probe, until that is forbidden; why the others did not is in reader->errors.
 *
 * How a read works: read_segments() hands the backend rounds of bounded size. A kernel that meets a
 * bad address answers with fewer bytes than asked for, but how many fewer differs: process_vm_readv
 * and a memfd stop close to the bad byte, a pipe gives up the page it was filling, and writev and
 * pwritev refuse a whole list in which one address is not a user's. So a short answer is looked
 * into: first the next segment alone, then halves of what is in doubt, until the bad one has been
 * refused alone. That takes at most 2 * log2(LW_IOV_MAX) calls more, and the answer is the same
 * whatever the backend.
 *
 * Everything here may run without the GIL and allocates nothing.
 */
#include "read_backends.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static_assert(LW_READ_PROC_MEM + 1 == LW_READ_BACKENDS, "one entry for each backend");
static_assert(sizeof((lw_reader *)0)->errors / sizeof(int) == LW_READ_BACKENDS,
              "one error for each backend");

/* How many segments, from the first, make one round: `most` and LW_READ_MAX bytes together. 0: the
 * first alone can never be read, being too long or wrapping around the end of the address space. */
static size_t
round_size(const lw_segment *segments, size_t most)
{
    size_t bytes = 0;
    size_t n = 0;
    for (; n < most; n++) {
        size_t length = segments[n].length;
        if (length > LW_READ_MAX - bytes || segments[n].address > UINTPTR_MAX - length) {
            break;
        }
        bytes += length;
    }
    return n;
}

/* How many of the n segments lie within the first `bytes` bytes; the empty ones behind the last
 * full one too. */
static size_t
whole_segments(const lw_segment *segments, size_t n, size_t bytes)
{
    size_t whole = 0;
    while (whole < n && segments[whole].length <= bytes) {
        bytes -= segments[whole++].length;
    }
    return whole;
}

/* Reads on until one segment alone is refused. `doubtful` counts the segments before the end of the
 * last round that was cut short, among which the bad one is. `*error`: the backend's own failure,
 * or 0. */
static size_t
read_rounds(lw_reader *reader, const lw_segment *segments, size_t n, int *error)
{
    const lw_read_ops *ops = lw_read_backends[reader->backend];
    size_t done = 0;
    size_t doubtful = 0;
    bool alone = false;
    *error = 0;
    while (done < n) {
        size_t most = n - done < LW_IOV_MAX ? n - done : LW_IOV_MAX;
        if (doubtful) {
            most = alone ? 1 : (doubtful + 1) / 2;
        }
        size_t asked = round_size(segments + done, most);
        if (!asked) {
            break;
        }
        ssize_t bytes = ops->transfer(reader, segments + done, asked);
        if (bytes < 0) {
            *error = (int)-bytes;
            break;
        }
        size_t got = whole_segments(segments + done, asked, (size_t)bytes);
        if (got < asked && asked == 1) {
            break;
        }
        done += got;
        if (got < asked) {
            /* The bad one is in this round; it is probably the next. */
            doubtful = asked - got;
            alone = true;
        }
        else {
            doubtful -= asked < doubtful ? asked : doubtful;
            alone = false;
        }
    }
    return done;
}

static size_t
read_nothing(lw_reader *reader, const lw_segment *segments, size_t n)
{
    (void)segments;
    (void)n;
    reader->calls++;
    reader->failed++;
    return 0;
}

/* With this one backend, come what may. */
static size_t
read_segments(lw_reader *reader, const lw_segment *segments, size_t n)
{
    int error;
    size_t done = read_rounds(reader, segments, n, &error);
    reader->calls++;
    reader->failed += done < n;
    return done;
}

/* --- opening --- */

/* Reads a good address and a bad one. A backend that fails on the bad one for any other reason than
 * the address, or reads it, or brings something else than what is there, is a bad backend: its
 * errno, or EIO. */
static int
probe(lw_reader *reader)
{
    const uint64_t here = UINT64_C(0x6c6f6f7077617463);
    uint64_t copies[2] = {0, 0};
    lw_segment good = {(uintptr_t)&here, &copies[0], sizeof here};
    lw_segment bad = {0, &copies[1], sizeof here}; /* never mapped: vm.mmap_min_addr */
    int error;
    if (read_rounds(reader, &good, 1, &error) != 1 || copies[0] != here) {
        return error ? error : EIO;
    }
    if (read_rounds(reader, &bad, 1, &error) != 0) {
        return EIO;
    }
    return error;
}

static void
become_none(lw_reader *reader)
{
    reader->read = read_nothing;
    reader->backend = LW_READ_NONE;
    reader->fd = reader->pipe_fds[0] = reader->pipe_fds[1] = -1;
    reader->map = NULL;
}

static void
leave_backend(lw_reader *reader)
{
    const lw_read_ops *ops = lw_read_backends[reader->backend];
    if (ops) {
        ops->close(reader);
    }
    become_none(reader);
}

static bool
try_backend(lw_reader *reader, lw_read_backend backend)
{
    const lw_read_ops *ops = lw_read_backends[backend];
    if (!ops || (ops->writes_to_fd && !reader->own_table)) {
        return false;
    }
    reader->backend = backend;
    int error = ops->open(reader, reader->mem_fd);
    if (!error) {
        error = probe(reader);
    }
    reader->errors[backend] = error;
    if (error) {
        leave_backend(reader);
    }
    return !error;
}

static size_t read_or_move_on(lw_reader *reader, const lw_segment *segments, size_t n);

/* The first of the backends from this one on that works: lw_read_backend has them by cost. */
static void
choose(lw_reader *reader, unsigned first)
{
    for (unsigned backend = first; backend < LW_READ_BACKENDS; backend++) {
        if (try_backend(reader, (lw_read_backend)backend)) {
            reader->read = read_or_move_on;
            return;
        }
    }
}

/* A call that worked at the probe may be forbidden later, when the program confines itself: then
 * the next backend takes over, for good. Not where memory is short, which passes, and not in a
 * forked child, which is to read nothing. */
static bool
forbidden(int error)
{
    return error == EPERM || error == EACCES || error == ENOSYS || error == EFBIG || error == EBADF;
}

static size_t
read_or_move_on(lw_reader *reader, const lw_segment *segments, size_t n)
{
    int error;
    size_t done = read_rounds(reader, segments, n, &error);
    if (forbidden(error)) {
        lw_read_backend backend = reader->backend;
        leave_backend(reader);
        reader->errors[backend] = error;
        choose(reader, backend + 1u);
        return reader->read(reader, segments, n); /* at most once for each backend */
    }
    reader->calls++;
    reader->failed += done < n;
    return done;
}

static void
reset(lw_reader *reader, bool own_table, int mem_fd)
{
    memset(reader, 0, sizeof *reader);
    for (size_t i = 0; i < LW_READ_BACKENDS; i++) {
        reader->errors[i] = -1;
    }
    reader->own_table = own_table;
    reader->mem_fd = mem_fd;
    become_none(reader);
}

void
lw_reader_open(lw_reader *reader, bool own_table, int mem_fd)
{
    reset(reader, own_table, mem_fd);
    choose(reader, LW_READ_NONE + 1u);
}

void
lw_reader_open_as(lw_reader *reader, lw_read_backend backend, bool own_table, int mem_fd)
{
    reset(reader, own_table, mem_fd);
    if (try_backend(reader, backend)) {
        reader->read = read_segments;
    }
}

void
lw_reader_close(lw_reader *reader)
{
    leave_backend(reader);
}

const char *
lw_read_backend_name(lw_read_backend backend)
{
    const lw_read_ops *ops =
        (unsigned)backend < LW_READ_BACKENDS ? lw_read_backends[backend] : NULL;
    return ops ? ops->name : "none";
}
