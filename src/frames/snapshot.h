/* One look at a thread's Python frames, its task and its loop, without the GIL.
 *
 * The walk reads the interpreter's memory with guarded reads only (memory/read.h) and never trusts what
 * it finds: owners, types, lengths and depths are checked before use, every loop is bounded by a
 * constant here. A thread that runs while it is walked can be torn; `quality` says how sure the
 * result is. Unreadable is not an error: it ends the walk, with `truncated` or a shorter stack and
 * a counter in lw_snap_counts.
 *
 * A snapper belongs to one thread (the watchdog's). Nothing here allocates after lw_snapper_init()
 * or touches a reference count. Only the functions in "with the GIL" below need it.
 */
#ifndef LW_SNAPSHOT_H
#define LW_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "memory/read.h"
#include "result.h"

#define LW_INNER_MAX 896 /* innermost frames kept */
#define LW_OUTER_MAX 128 /* outermost frames kept when the stack is deeper than both */
#define LW_FRAMES_MAX (LW_INNER_MAX + LW_OUTER_MAX)
#define LW_WALK_MAX 20000    /* frames walked at most; a longer chain counts as endless */
#define LW_NAME_MAX 1024     /* bytes of a name kept, UTF-8 (lone surrogates as in WTF-8) */
#define LW_TASK_NAME_MAX 200 /* bytes, cut at a character */

typedef enum lw_quality {
    LW_MOVING = 0, /* the stable outer part of several walks that differ */
    LW_CONSISTENT, /* two walks agree */
    LW_EXACT,      /* the thread did not run during the walk: its CPU clock stood still */
} lw_quality;

/* Who to look at; filled on the loop's own thread, with the GIL, by lw_thread_ref_here(). Plain
 * values: copied freely. */
typedef struct lw_thread_ref {
    uintptr_t tstate;      /* PyThreadState* */
    uintptr_t interpreter; /* PyInterpreterState* */
    pid_t tid;             /* kernel thread id */
    clockid_t cpu_clock;   /* pthread_getcpuclockid of the thread */
    bool has_cpu_clock;
    unsigned long ident; /* threading.get_ident() */
} lw_thread_ref;

/* A code object as the cache knows it. Entries are immutable once they have an id and live until
 * lw_codes_flush(). */
typedef struct lw_code {
    const char *filename; /* UTF-8 (WTF-8), NUL-terminated, in the cache's arena */
    const char *qualname;
    uint32_t filename_length;
    uint32_t qualname_length;
    int32_t firstlineno;
    uint32_t hash; /* of filename and qualname and firstlineno, for whoever keys on it */
} lw_code;

#define LW_CODE_UNKNOWN                                                                            \
    0u /* entry 0: "<unknown>", where a code object could not be read or the cache is full */

typedef struct lw_position {
    int32_t lineno, end_lineno, colno,
        end_colno; /* as code.co_positions() has them: columns are 0-based bytes; -1: none */
} lw_position;

typedef struct lw_frame {
    uint32_t code;       /* id in the code cache */
    int32_t instruction; /* byte offset in co_code of the instruction, as frame.f_lasti; for seeing
                            it move */
    lw_position position;
} lw_frame;

typedef struct lw_task {
    uintptr_t address;                    /* 0: no task runs */
    bool known;                           /* false: whether one runs could not be read */
    bool native;                          /* a C Task (or subclass): name and coroutine were read */
    char name[LW_TASK_NAME_MAX + 1];      /* "" where not native: the reporter asks the object */
    char coroutine[LW_TASK_NAME_MAX + 1]; /* qualname of the coroutine, or "" */
} lw_task;

typedef struct lw_snapshot {
    lw_quality quality;
    bool readable;   /* false: nothing could be read (no such thread, backend failed) */
    bool debugger;   /* a frame of the standard library's bdb, or of pydevd, is on the stack */
    uintptr_t loop;  /* address of the loop that runs on the thread, 0: none */
    bool loop_known; /* whether `loop` could be read */
    lw_task task;
    uintptr_t top_frame; /* address of the innermost interpreter frame, 0: not known; tells
                               activations apart */
    int32_t
        turn_callbacks; /* locals of asyncio's _run_once: how many callbacks the turn has, -1: not
                               known... */
    int32_t turn_callback; /* ...and which of them runs, from 0 */
    uint32_t depth;        /* how many of `frames` are filled */
    uint32_t truncated;    /* frames left out between the innermost LW_INNER_MAX and the outermost
                           LW_OUTER_MAX */
    lw_frame frames[LW_FRAMES_MAX]; /* innermost first */
} lw_snapshot;

/* What the snapper did, for stats(); monotone. Written by the owning thread only. */
typedef struct lw_snap_counts {
    uint64_t walks; /* single walks, several per snapshot where the thread moves */
    uint64_t snapshots, exact, consistent, moving;
    uint64_t unreadable;  /* snapshots without a single frame */
    uint64_t broken;      /* walks that ended early: bad type, owner, depth, address */
    uint64_t endless;     /* walks that met LW_WALK_MAX */
    uint64_t codes;       /* code objects read into the cache */
    uint64_t codes_full;  /* frames shown as <unknown> because the cache was full */
    uint64_t codes_stale; /* entries whose address had another code object by then */
} lw_snap_counts;

typedef struct lw_snapper lw_snapper; /* opaque: frames/snapshot.c */

/* --- with the GIL --- */

/* Once per process at module exec, idempotent: finds the layout for this interpreter, calibrates
 * what headers do not have, and compares a snapshot of this thread with its own frames. LW_OK: raw
 * capture works here; else why not. Holds references to nothing that keeps a program's objects
 * alive. */
lw_result lw_frames_setup(void);

/* Why lw_frames_setup refused, one sentence, or NULL; static. */
const char *lw_frames_reason(void);

/* The calling thread. */
void lw_thread_ref_here(lw_thread_ref *ref);

/* What a snapshot of the calling thread has for top_frame at this point; 0: not known. */
uintptr_t lw_snapshot_top_here(void);

/* Allocates everything a snapper ever needs; NULL without memory. `reader` outlives it and is the
 * same thread's. */
lw_snapper *lw_snapper_new(lw_reader *reader);
void lw_snapper_free(lw_snapper *snapper);

/* --- without the GIL, on the snapper's thread --- */

/* Looks at the thread: frames, task and loop in one validated window. Always fills `out`. */
void lw_snapshot_take(lw_snapper *snapper, const lw_thread_ref *thread, lw_snapshot *out);

/* For many snapshots of which none has to be right by itself: one walk. `quality` is exact where the
 * thread did not run meanwhile, else moving, with all of its frames: some of them may be of a moment
 * later than others. */
void lw_snapshot_take_once(lw_snapper *snapper, const lw_thread_ref *thread, lw_snapshot *out);

/* A snapshot in which nothing could be read. */
void lw_snapshot_clear(lw_snapshot *out);

/* Cheap look for "did it move": the top frame's address and instruction pointer folded into one
 * number, 0 if unreadable. One or two guarded reads. */
uint64_t lw_snapshot_glance(lw_snapper *snapper, const lw_thread_ref *thread);

#define LW_LEAVES_LOOKS 256 /* 10 us by memfd, 21 by a pipe, 54 by process_vm_readv, 164 by pread */

/* How often the frame of the last glance, which succeeded just now, left the instruction that it was
 * at, in so many looks in a row. The frame may be gone meanwhile: what is there then counts as
 * elsewhere, since Python ran to put it there. */
uint32_t lw_snapshot_leaves(lw_snapper *snapper);

const lw_code *lw_code_get(const lw_snapper *snapper, uint32_t id);

/* The cache is over three quarters full: flush it when nobody holds an id any more. */
bool lw_codes_want_flush(const lw_snapper *snapper);
void lw_codes_flush(lw_snapper *snapper);

const lw_snap_counts *lw_snap_counts_get(const lw_snapper *snapper);

#endif
