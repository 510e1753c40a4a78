/* When collections ran, and on which thread: a stamp in gc.callbacks.
 *
 * gc calls it with the GIL at the start and the stop of each collection (1-2 us each). The watchdog
 * reads the stamps without the GIL. The interpreter's `collecting` flag alone is no proof: a
 * finalizer that sleeps leaves it set while others run.
 */
#ifndef LW_GC_CLOCK_H
#define LW_GC_CLOCK_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

#define LW_GC_PAST 16     /* finished collections that are remembered, of all threads */
#define LW_GC_THREADS 128 /* threads whose total is kept: those that collected last */

typedef struct lw_gc_span {
    lw_ns begin_ns, end_ns; /* end_ns LW_NS_NEVER: it goes on */
    uint64_t ident;         /* threading.get_ident() of the thread that ran it */
    uintptr_t frame;        /* lw_snapshot_top_here() of that thread when it began, 0: not known */
    int32_t generation;     /* -1: not known */
} lw_gc_span;

/* With the GIL (gc_stamp.c). Puts the stamp into gc.callbacks, or takes it out again; idempotent.
 * -1 with an exception set. */
int lw_gc_clock_start(void);
int lw_gc_clock_stop(void);

/* With the GIL, on the thread that collects. */
void lw_gc_clock_began(int32_t generation);
void lw_gc_clock_ended(void);

/* With the GIL: the end of the current collection will not be seen. */
void lw_gc_clock_drop(void);

/* In a forked child, before anything else runs there: a collection of another thread is over.
 * Async-signal-safe. */
void lw_gc_clock_forget(void);

/* --- any thread, no GIL --- */

/* Whether collections are stamped: not before start, and no longer where the program has emptied
 * gc.callbacks, or dropped the stamp from it. */
bool lw_gc_clock_runs(void);

/* Total wall time of collections run by that thread, up to now_ns also of one that goes on. Never
 * goes back; only differences mean something. */
lw_ns lw_gc_clock_ns(uint64_t ident, lw_ns now_ns);

/* The collection that goes on on that thread; false: none. */
bool lw_gc_clock_current(uint64_t ident, lw_gc_span *span);

/* The time within [begin_ns, end_ns] that collections of that thread (0: of any thread) took, as
 * far as they are remembered, and the highest generation among them (-1: none). */
lw_ns lw_gc_clock_within(uint64_t ident, lw_ns begin_ns, lw_ns end_ns, int32_t *generation);

#endif
