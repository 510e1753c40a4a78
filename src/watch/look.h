/* What the watchdog knows of one loop, and what it does when it looks at it.
 *
 * Everything here runs on the watchdog thread, without the GIL, and touches no Python object;
 * excepted what an installer calls: lw_look_new and lw_look_reset while the slot is NEW and the
 * watchdog does not look, and lw_eye_setup and lw_eye_free.
 */
#ifndef LW_LOOK_H
#define LW_LOOK_H

#include "capture.h"
#include "evidence/evidence.h"
#include "evidence/thread_files.h"
#include "fdtable.h"
#include "frames/gil.h"
#include "report/record.h"
#include "slot.h"
#include "thrift.h"

#define LW_TAKE_WITHIN_NS                                                                          \
    (250 * LW_NS_PER_MS) /* the reporter has this long to take an urgent record */

typedef struct lw_look {
    lw_capture capture; /* of the turn that goes on, where it is late */
    uint64_t finished;  /* the last turn that was handed over as ended */
    uint64_t lost;      /* a turn whose run ended unseen: never reported again */
    lw_ns next_sample_ns;
    lw_ns report_age_ns; /* the age at which the next ongoing report is due */
    uint64_t stall_id;   /* of the stall that goes on; 0: not reported yet */
    uint64_t started_id; /* of the stall that began at started_at_ns, on CLOCK_REALTIME */
    lw_ns started_at_ns;
    uint64_t urgent; /* token of the ongoing report that nobody has taken yet, or 0 */
    lw_ns urgent_until_ns;
    uint64_t asked_frames; /* token of the request to the reporter (capture="gil") */
    int dump_fd;           /* in the watchdog's descriptor table; LW_DUMP_* */
    lw_thread_files files; /* of the thread that the loop runs on */
    /* the turn that `first` was read in, at its begin or in the wait before it */
    uint64_t first_turn;
    /* clocks only; where nobody looked in time, only how long the process had been stopped */
    lw_evidence first;
} lw_look;

/* What all looks of the watchdog share; allocated before the thread starts. */
typedef struct lw_eye {
    lw_fdtable fds;
    lw_reader reader;
    lw_snapper *snapper; /* NULL: no raw capture */
    lw_record_writer *writer;
    lw_snapshot snapshot;
    lw_parts parts[LW_SAMPLES_MAX]; /* of the stall that is being reported */
    lw_snapshot holder_snapshot;
    lw_cgroup_files cgroup;
    lw_thread_files self; /* the watchdog's own thread */
    uint32_t self_known;  /* what could be read of it at the start (lw_known) */
    lw_ns present_ns;     /* when it last ran for certain, or its sleep was to end */
    lw_ns self_cpu_ns, self_run_queue_ns; /* how long it had computed and waited for a CPU */
    lw_ns uncounted_ns;      /* when that was read: it may have done so for as long since then */
    lw_ns stopped_ns;        /* how long the process was stopped, as far as its own absence shows */
    lw_ns stopped_before_ns; /* the same before the last wake-up */
    lw_ns late_ns;    /* how late it was altogether; differences are a stall's watchdog_late */
    int status_fd;    /* /proc/self/status, or -1 */
    lw_thrift thrift; /* what it may spend on turns that are no stalls */
    uint32_t random;
    uint64_t captures; /* captures that are begun: the code cache may be flushed at 0 */
} lw_eye;

/* Any thread, before the watchdog starts and after its end, of an eye that is all zero. False: no
 * memory; lw_eye_free() then too. */
bool lw_eye_setup(lw_eye *eye, bool snapper_wanted);
void lw_eye_free(lw_eye *eye);

/* The watchdog, at its start and end: what belongs to its thread. */
void lw_eye_open(lw_eye *eye);
void lw_eye_close(lw_eye *eye);

/* 32 bits, of which the upper ones are the better. */
static inline uint32_t
lw_eye_random(lw_eye *eye)
{
    eye->random = eye->random * UINT32_C(1664525) + UINT32_C(1013904223);
    return eye->random;
}

/* To look again at a cell that was being written. */
#define LW_SOON_NS LW_NS_PER_MS

lw_look *lw_look_new(void);
void lw_look_reset(lw_look *look);

/* Looks at an ACTIVE or RETIRING slot; returns when to look again (LW_NS_NEVER: when woken). A
 * RETIRING one is finished and let go. */
lw_ns lw_look_visit(lw_eye *eye, lw_slot *slot, lw_ns now_ns);

#endif
