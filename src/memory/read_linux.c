/* Guarded reads on Linux: the list of backends, the two that need nothing of their own, and what
 * tells a forked child.
 *
 * process_vm_readv on the own process copies straight to where the bytes are wanted, at about half
 * a microsecond a segment. pread of /proc/self/mem takes a call for each segment, but works where
 * seccomp filters forbid everything that is less usual than pread. It reads through page
 * protections, so a page that is PROT_NONE counts as readable there.
 *
 * Foreign memory is passed to syscall(), never to the libc functions of the same names: a
 * sanitizer's interceptors would look at the memory themselves, and report that it is freed, which
 * we expect, or fault.
 *
 * A child inherits the reader's numbers but not what they name: the descriptor table may be
 * another, /proc/self/mem shows the parent, a pipe is shared with it. So each backend with a
 * descriptor keeps a page with MADV_WIPEONFORK, filled here and zero in a child, which looks before
 * it touches a descriptor. It costs a load.
 */
#ifndef LW_PORTABLE

#include "read_backends.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

const lw_read_ops *const lw_read_backends[LW_READ_BACKENDS] = {
    [LW_READ_MEMFD] = &lw_read_memfd,
    [LW_READ_PROCESS_VM] = &lw_read_process_vm,
    [LW_READ_PIPE] = &lw_read_pipe,
    [LW_READ_PROC_MEM] = &lw_read_proc_mem,
};

/* --- is this still our process? --- */

static size_t
page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

int
lw_read_map(lw_reader *reader, size_t length)
{
    size_t page = page_size();
    char *map =
        mmap(NULL, length + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return errno;
    }
    reader->map = map;
    if (madvise(map + length, page, MADV_WIPEONFORK)) {
        return errno;
    }
    map[length] = 1;
    return 0;
}

void
lw_read_unmap(lw_reader *reader, size_t length)
{
    if (reader->map) {
        munmap(reader->map, length + page_size());
        reader->map = NULL;
    }
}

bool
lw_read_same_process(const lw_reader *reader, size_t length)
{
    return reader->map[length] == 1;
}

/* --- process_vm_readv --- */

static int
open_process_vm(lw_reader *reader, int mem_fd)
{
    (void)reader;
    (void)mem_fd;
    return 0;
}

static void
close_process_vm(lw_reader *reader)
{
    (void)reader;
}

static ssize_t
transfer_process_vm(lw_reader *reader, const lw_segment *segments, size_t n)
{
    (void)reader;
    struct iovec own[LW_IOV_MAX], foreign[LW_IOV_MAX];
    lw_iov_own(own, segments, n);
    lw_iov_foreign(foreign, segments, n);
    for (;;) {
        ssize_t bytes = syscall(SYS_process_vm_readv, (long)getpid(), own, n, foreign, n, 0L);
        if (bytes >= 0) {
            return bytes;
        }
        if (errno != EINTR) {
            return errno == EFAULT ? 0 : -errno;
        }
    }
}

const lw_read_ops lw_read_process_vm = {
    .name = "process_vm_readv",
    .open = open_process_vm,
    .transfer = transfer_process_vm,
    .close = close_process_vm,
};

/* --- /proc/self/mem --- */

static int
open_proc_mem(lw_reader *reader, int mem_fd)
{
    if (mem_fd < 0) {
        return EBADF;
    }
    reader->fd = mem_fd; /* the caller's; close only forgets it */
    return lw_read_map(reader, 0);
}

static void
close_proc_mem(lw_reader *reader)
{
    reader->fd = -1;
    lw_read_unmap(reader, 0);
}

static ssize_t
transfer_proc_mem(lw_reader *reader, const lw_segment *segments, size_t n)
{
    if (!lw_read_same_process(reader, 0)) {
        return -ESRCH;
    }
    ssize_t total = 0;
    for (size_t i = 0; i < n; i++) {
        const lw_segment *segment = &segments[i];
        if (!segment->length) {
            continue;
        }
        if (sizeof(off_t) == sizeof(uintptr_t) && segment->address > (uintptr_t)INTPTR_MAX) {
            return total; /* pread takes it for a negative offset */
        }
        ssize_t bytes;
        do {
            bytes = pread(reader->fd, segment->copy, segment->length, (off_t)segment->address);
        } while (bytes < 0 && errno == EINTR);
        if (bytes < 0 && errno != EIO && errno != EFAULT) {
            return -errno;
        }
        total += bytes > 0 ? bytes : 0;
        if (bytes < (ssize_t)segment->length) {
            return total;
        }
    }
    return total;
}

const lw_read_ops lw_read_proc_mem = {
    .name = "/proc/self/mem",
    .open = open_proc_mem,
    .transfer = transfer_proc_mem,
    .close = close_proc_mem,
};

#else
typedef int lw_read_linux_not_built; /* ISO C wants something in each file */
#endif
