/* Guarded reads through a memfd: pwritev(2) of the foreign segments into a file in memory that is
 * mapped here.
 *
 * Why: the kernel copies a list of foreign segments in one call and stops at a bad byte, as
 * process_vm_readv does, but without pinning pages segment by segment: several times faster for a
 * batch. The second copy, out of the mapping, is of memory that cannot fault.
 *
 * The danger is the descriptor: were its number closed by the program and handed out again, foreign
 * memory would be written to a file of the program. So this backend is only used on a thread with a
 * descriptor table of its own (fdtable.h), and never in a forked child (read_linux.c).
 *
 * The pages are allocated and mapped at open, and the size is sealed: the copy out of the mapping
 * can neither run into a full file system nor into SIGBUS. The mapping is not inherited by
 * children: they would share it and pay for it.
 */
#ifndef LW_PORTABLE

#include "read_backends.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LW_MFD_CLOEXEC 0x0001u
#define LW_MFD_ALLOW_SEALING 0x0002u
#define LW_MFD_NOEXEC_SEAL 0x0008u /* Linux 6.3; with vm.memfd_noexec=2 the others are refused */

static int
create_memfd(void)
{
    static const char name[] = "loopwatch";
    long fd = syscall(SYS_memfd_create, name, LW_MFD_CLOEXEC | LW_MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) {
        fd = syscall(SYS_memfd_create, name, LW_MFD_CLOEXEC | LW_MFD_ALLOW_SEALING);
    }
    return (int)fd;
}

static int
open_memfd(lw_reader *reader, int mem_fd)
{
    (void)mem_fd;
    int error = lw_read_map(reader, LW_READ_MAX);
    if (error) {
        return error;
    }
    reader->fd = create_memfd();
    if (reader->fd < 0 || fallocate(reader->fd, 0, 0, LW_READ_MAX) ||
        fcntl(reader->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        return errno;
    }
    /* Over the first part of the reservation; the page behind it keeps watch for forks. */
    void *map = mmap(reader->map, LW_READ_MAX, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                     reader->fd, 0);
    if (map == MAP_FAILED || madvise(map, LW_READ_MAX, MADV_DONTFORK)) {
        return errno;
    }
    return 0;
}

static void
close_memfd(lw_reader *reader)
{
    bool ours = reader->map && lw_read_same_process(reader, LW_READ_MAX);
    lw_read_unmap(reader, LW_READ_MAX);
    if (ours && reader->fd >= 0) {
        close(reader->fd);
    }
    reader->fd = -1;
}

static ssize_t
transfer_memfd(lw_reader *reader, const lw_segment *segments, size_t n)
{
    if (!lw_read_same_process(reader, LW_READ_MAX)) {
        return -ESRCH;
    }
    struct iovec foreign[LW_IOV_MAX];
    lw_iov_foreign(foreign, segments, n);
    ssize_t bytes;
    do {
        bytes = syscall(SYS_pwritev, reader->fd, foreign, n, 0L, 0L);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0) {
        return errno == EFAULT ? 0 : -errno;
    }
    size_t at = 0;
    for (size_t i = 0; i < n && at + segments[i].length <= (size_t)bytes; i++) {
        if (segments[i].length) {
            memcpy(segments[i].copy, reader->map + at, segments[i].length);
        }
        at += segments[i].length;
    }
    return bytes;
}

const lw_read_ops lw_read_memfd = {
    .name = "memfd",
    .writes_to_fd = true,
    .open = open_memfd,
    .transfer = transfer_memfd,
    .close = close_memfd,
};

#else
typedef int lw_read_memfd_not_built; /* ISO C wants something in each file */
#endif
