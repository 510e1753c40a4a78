/* The watchdog thread: one for the process, native, never asks for the GIL.
 *
 * It sleeps until the earliest moment at which some loop could be late, looks at every watched loop
 * (look.h), and sleeps again. Started by the first watch, ended after the last; all signals are
 * blocked in it; it allocates nothing after its start and takes no lock that a loop thread takes
 * (libuv's metrics mutex excepted, uv_pulse.c).
 *
 * The thread has a descriptor table of its own where the system allows it (fdtable.h).
 */
#ifndef LW_WATCHDOG_H
#define LW_WATCHDOG_H

#include <stdbool.h>

#include "fdtable.h"
#include "frames/snapshot.h"
#include "result.h"
#include "slot.h"

/* --- any thread, without the GIL: these wait for the thread --- */

/* Starts the thread where it does not run and waits until it looks (2 s at most). `snapper_wanted`:
 * raw capture works here. LW_ERR_THREAD also where one that was stopped is at its end for 2 s. */
lw_result lw_watchdog_start(bool snapper_wanted);

/* Ends the thread and waits; false where it did not end in time: it ends when it can, unless it is
 * started again before that. There are never two. */
bool lw_watchdog_stop(lw_ns timeout_ns);

/* --- any thread, any time --- */

bool lw_watchdog_runs(void);
void lw_watchdog_wake(void);

/* Wakes the thread where it would sleep beyond by_ns: a loop that is busy now is to be looked at by
 * then. */
void lw_watchdog_unpark(lw_ns by_ns);

/* In a forked child: there is no such thread any more. Async-signal-safe. */
void lw_watchdog_forget(void);

/* On the watchdog thread, in a slot's refine: its descriptor table. */
const lw_fdtable *lw_watchdog_fds(void);

typedef struct lw_watchdog_stats {
    uint64_t wakeups;
    lw_ns cpu_ns;
    lw_ns worst_lateness_ns; /* how long after its deadline the thread ran, at worst */
    lw_snap_counts snaps;
} lw_watchdog_stats;

void lw_watchdog_stats_get(lw_watchdog_stats *stats);

/* What doctor() shows; all zero and LW_READ_NONE where the thread does not run. */
typedef struct lw_watchdog_facts {
    lw_read_backend backend;
    int read_errors[5]; /* by lw_read_backend */
    bool own_table;
    int table_error;
    const char *table_failed_call;
    bool tracer_readable;
    uint32_t known; /* lw_known: what of the evidence can be read of the watchdog's own thread */
    bool cgroup;    /* the throttled time of the cgroup can be read */
} lw_watchdog_facts;

void lw_watchdog_facts_get(lw_watchdog_facts *facts);

#endif
