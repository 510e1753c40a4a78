/* What a read backend is, between read.c (which chooses, splits and counts) and the files that have
 * one each.
 *
 * A backend moves one batch that read.c has already bounded. It never looks at foreign memory
 * itself: a kernel call does, and says how far it came.
 */
#ifndef LW_READ_BACKENDS_H
#define LW_READ_BACKENDS_H

#include <sys/types.h>

#include "read.h"

#define LW_READ_BACKENDS 5
#define LW_IOV_MAX                                                                                 \
    128 /* segments of one kernel call: 4 KiB of stack, and far below every kernel's own limit */

typedef struct lw_read_ops {
    const char *name;
    bool writes_to_fd; /* it writes foreign memory to a descriptor: only in a table that the program
                          cannot reach */

    /* Makes what the backend needs in the reader; 0 or an errno. `mem_fd` as in lw_reader_open. */
    int (*open)(lw_reader *reader, int mem_fd);

    /* Copies 1 to LW_IOV_MAX segments of LW_READ_MAX bytes at most, none of which wraps around the
     * end of the address space. Returns how many bytes, from the first segment on, have arrived: at
     * a bad address fewer than asked for, perhaps far fewer (the kernel may give up a page, or the
     * whole list). -errno: the backend itself failed. */
    ssize_t (*transfer)(lw_reader *reader, const lw_segment *segments, size_t n);

    /* Undoes open, also a half-done one. */
    void (*close)(lw_reader *reader);
} lw_read_ops;

/* By lw_read_backend, NULL where this platform has none; in read_linux.c or read_portable.c. */
extern const lw_read_ops *const lw_read_backends[LW_READ_BACKENDS];

#ifndef LW_PORTABLE
#include <sys/uio.h>

extern const lw_read_ops lw_read_memfd, lw_read_process_vm, lw_read_pipe, lw_read_proc_mem;

/* An empty segment is always read, wherever it points; kernels look at the address even so. */
static inline void
lw_iov_foreign(struct iovec *iov, const lw_segment *segments, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *base = segments[i].length ? (void *)segments[i].address : NULL;
        iov[i] = (struct iovec){base, segments[i].length};
    }
}

static inline void
lw_iov_own(struct iovec *iov, const lw_segment *segments, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        iov[i] = (struct iovec){segments[i].copy, segments[i].length};
    }
}

/* `length` bytes at reader->map, and behind them a page that says whether this is still the process
 * that opened the reader: 0 or an errno. */
int lw_read_map(lw_reader *reader, size_t length);
void lw_read_unmap(lw_reader *reader, size_t length);

/* False in a forked child: what the reader's numbers name there belongs to the parent or to the
 * program. */
bool lw_read_same_process(const lw_reader *reader, size_t length);
#endif

#endif
