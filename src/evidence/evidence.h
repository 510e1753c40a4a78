/* What the clocks and the kernel said of a loop's thread at one look: plain data, for verdict.h to
 * judge.
 *
 * Clocks are cumulative; what a stall cost is their difference between two looks. A source that
 * this system does not have leaves its bit in `known` unset, and its value 0.
 */
#ifndef LW_EVIDENCE_H
#define LW_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "clock.h"

enum lw_known {
    LW_KNOWS_CPU = 1 << 0,       /* the thread's CPU clock */
    LW_KNOWS_RUN_QUEUE = 1 << 1, /* /proc/self/task/TID/schedstat */
    LW_KNOWS_THROTTLED = 1 << 2, /* the cgroup's cpu.stat */
    LW_KNOWS_FAULTS = 1 << 3,    /* /proc/self/task/TID/stat */
    LW_KNOWS_STAND = 1 << 4,     /* /proc/self/task/TID/syscall */
    LW_KNOWS_GC = 1 << 5,        /* gc.callbacks has our stamp */
    LW_KNOWS_GIL = 1 << 6,       /* who holds the GIL can be read */
    /* `moved` tells: its frames can be read, and it ran meanwhile (its CPU clock moved) */
    LW_KNOWS_MOVED = 1 << 7,
};

typedef struct lw_clocks {
    lw_ns at_ns;        /* CLOCK_MONOTONIC of the reading */
    lw_ns cpu_ns;       /* the thread's CPU time */
    lw_ns run_queue_ns; /* runnable and without a CPU; contains throttling */
    lw_ns throttled_ns; /* the cgroup, and its ancestors, had used up its quota */
    /* the whole process was stopped: the watchdog's own lateness that no run queue explains */
    lw_ns stopped_ns;
    /* in collections that this thread ran, wall clock, up to at_ns also of one that goes on */
    lw_ns gc_ns;
    uint64_t major_faults;
} lw_clocks;

/* Where the thread stood. */
typedef enum lw_stand {
    LW_STAND_UNKNOWN = 0, /* not to be read here */
    LW_STAND_RUNNING,     /* on a CPU, or runnable */
    LW_STAND_GIL,         /* in a futex of the GIL */
    LW_STAND_FUTEX,       /* in another futex */
    LW_STAND_CALL,        /* in another system call */
    LW_STAND_PAGE,        /* blocked outside of a system call: a page is fetched */
} lw_stand;

#define LW_CALL_ARGUMENTS 6
#define LW_GLANCE_PAIRS 3

typedef struct lw_evidence {
    uint32_t known; /* lw_known */
    lw_clocks clocks;
    lw_stand stand;
    int32_t syscall;                       /* number, -1: none or not known */
    uint64_t arguments[LW_CALL_ARGUMENTS]; /* of the system call */
    /* in how many pairs of quick looks, of LW_GLANCE_PAIRS, its frame or instruction moved: it runs
     * Python; all of them where it left its instruction time and again in a row of looks */
    uint8_t moved;
    bool gil_others;        /* another thread held the GIL just now */
    bool in_gc;             /* a collection of this thread goes on... */
    bool in_finalizer;      /* ...and runs Python that is above the frame in which it began */
    int32_t turn_callbacks; /* how many callbacks this turn has (ntodo), -1: not known */
    int32_t turn_callback;  /* which of them runs, from 0 */
} lw_evidence;

#endif
