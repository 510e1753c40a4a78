/* Guarded reads: the one way loopwatch looks at memory that is not its own.
 *
 * The watchdog walks structures of a running interpreter without the GIL, so any pointer may be
 * stale by the time it is followed. Every such read goes through lw_read() or lw_read_batch(),
 * which fail where a load would fault. The backend is a function pointer in the reader, so that
 * tests and fuzzers can swap it.
 *
 * A reader belongs to one thread. Nothing here allocates after lw_reader_open(), takes a lock or
 * touches a reference count; all of it may run without the GIL.
 */
#ifndef LW_READ_H
#define LW_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One piece of foreign memory and where its copy goes. */
typedef struct lw_segment {
    uintptr_t address; /* foreign; may be anything, also 0 */
    void *copy;        /* our own memory, `length` bytes */
    size_t length;     /* bytes; at most LW_READ_MAX in a batch altogether */
} lw_segment;

#define LW_READ_MAX ((size_t)256 * 1024) /* bytes of one call */
#define LW_BATCH_MAX                                                                               \
    512 /* segments of one batch; backends split it where the kernel takes fewer                   \
         */

typedef enum lw_read_backend {
    LW_READ_NONE = 0, /* nothing works here: no raw capture */
    LW_READ_MEMFD, /* pwritev into a private memfd that is mapped; needs a descriptor table of the
                      thread's own */
    LW_READ_PROCESS_VM, /* process_vm_readv on ourselves */
    LW_READ_PIPE,       /* writev into a private pipe, read back */
    LW_READ_PROC_MEM,   /* pread of /proc/self/mem, opened at install */
} lw_read_backend;

typedef struct lw_reader lw_reader;

/* Copies segments in order until one cannot be read; returns how many were copied whole (0 to n).
 * What lies behind a bad segment is not looked at. */
typedef size_t (*lw_read_function)(lw_reader *reader, const lw_segment *segments, size_t n);

struct lw_reader {
    lw_read_function read;   /* the backend; tests may replace it after lw_reader_open() */
    lw_read_backend backend; /* which one, for doctor() */
    int errors[5];           /* why not each backend, by lw_read_backend: errno of its probe, or of
                                the call that was forbidden later; 0: works, -1: not tried */
    int fd;          /* memfd or /proc/self/mem, in the table that `own_table` speaks of; or -1 */
    int mem_fd;      /* as given to open */
    int pipe_fds[2]; /* or -1, -1 */
    char *map;       /* the memfd's mapping and a page behind it that a fork wipes; or NULL */
    bool own_table;  /* the calling thread has a descriptor table of its own
                        (lw_fdtable_unshare worked) */
    uint64_t calls;  /* how often the backend was called */
    uint64_t failed; /* how many of the calls stopped at a bad address */
    void *context;   /* for a test's own backend */
};

/* Chooses and probes a backend on the calling thread, the one that will use the reader: first the
 * cheapest, memfd. The two that write to descriptors, memfd and pipe, only where `own_table` says
 * that no descriptor number of ours can be reused by the program. `mem_fd`: an open /proc/self/mem,
 * which stays the caller's and open, or -1. Never fails: where nothing works, backend is
 * LW_READ_NONE and each read copies nothing. Where the program forbids a call later, by a seccomp
 * filter or a limit, the reader goes over to the next backend.
 *
 * A forked child cannot use an inherited reader: it reads nothing there (process_vm_readv excepted,
 * which reads the child). lw_reader_close() in a child only unmaps. */
void lw_reader_open(lw_reader *reader, bool own_table, int mem_fd);

/* As lw_reader_open, this one backend or LW_READ_NONE. For tests and benchmarks. */
void lw_reader_open_as(lw_reader *reader, lw_read_backend backend, bool own_table, int mem_fd);

/* Unmaps and closes what open made; on the same thread. */
void lw_reader_close(lw_reader *reader);

/* The name of a backend, as doctor() says it: "memfd", "process_vm_readv", "pipe",
 * "/proc/self/mem", "none". */
const char *lw_read_backend_name(lw_read_backend backend);

static inline size_t
lw_read_batch(lw_reader *reader, const lw_segment *segments, size_t n)
{
    return n ? reader->read(reader, segments, n) : 0;
}

static inline bool
lw_read(lw_reader *reader, uintptr_t address, void *copy, size_t length)
{
    lw_segment segment = {address, copy, length};
    return reader->read(reader, &segment, 1) == 1;
}

/* A pointer-sized word; `fallback` where it cannot be read. */
static inline uintptr_t
lw_read_word(lw_reader *reader, uintptr_t address, uintptr_t fallback)
{
    uintptr_t word;
    return lw_read(reader, address, &word, sizeof word) ? word : fallback;
}

#endif
