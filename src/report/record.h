/* A record: one report of a stall as plain bytes, written by the watchdog, decoded by the reporter
 * (py_record.c) in the same process. Nothing in it points anywhere, so that it outlives code
 * objects, tasks and the capture it came from. */
#ifndef LW_RECORD_H
#define LW_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "evidence/thread_files.h"
#include "slot.h"
#include "watch/capture.h"

typedef enum lw_record_kind {
    LW_RECORD_ENDED = 0, /* the last word on a stall */
    LW_RECORD_ONGOING,   /* it still goes on */
    LW_RECORD_CAPTURE,   /* capture="gil": the reporter is asked for the thread's frames */
    LW_RECORD_PROFILE,   /* looks at random moments: profile/profile.h */
    LW_RECORD_SLOW,      /* slow turns */
    LW_RECORD_LOOK,      /* capture="gil": the reporter is asked for a look of the profile; `id` is
                            how many moments it stands for */
} lw_record_kind;

typedef struct lw_record_code {
    uint32_t filename, filename_length; /* offset from the start of the strings, bytes */
    uint32_t qualname, qualname_length;
} lw_record_code;

typedef struct lw_record_sample {
    uint64_t offset_ns, weight_ns;
    uint64_t count, worst_ns; /* of an entry of a tally (profile/tally.h), else 0 */
    uint32_t node, holder_node;
    uint32_t truncated; /* of whichever stack the cause blames */
    int16_t task, holder;
    uint8_t quality;
    uint8_t cause; /* lw_cause: the largest of what it stands for */
} lw_record_sample;

/* The stall as a whole: `known` says which of them this system has. */
typedef struct lw_record_totals {
    uint32_t known;        /* lw_known */
    int32_t gc_generation; /* -1: no collection */
    int32_t callbacks;     /* -1: not known */
    int32_t syscall;       /* -1: none, or not known */
    lw_ns cpu_ns, run_queue_ns, throttled_ns, gc_ns, watchdog_late_ns;
    uint64_t major_faults;
    char target[LW_TARGET_MAX];
} lw_record_totals;

/* Followed by the arrays, in the order of their counts, then the strings. In the nodes, `code` is
 * an index in the codes; node 0 is the root. */
typedef struct lw_record {
    uint32_t kind;
    uint32_t n_nodes, n_codes, n_samples, n_tasks, n_holders, n_steps;
    uint32_t merged;
    uint32_t overdue;
    uint64_t strings; /* bytes */
    uint64_t token, slot_key, id, turn;
    uint64_t begin_ns, end_ns;
    uint64_t started_at_ns; /* CLOCK_REALTIME of begin_ns */
    lw_thread thread;
    lw_parts parts; /* adds up to the duration */
    lw_record_totals totals;
    lw_turn_routes routes;
} lw_record;

/* What goes into a record; the watchdog fills it in. */
typedef struct lw_report {
    lw_record_kind kind;
    lw_slot *slot;
    uint64_t token, id, turn;
    lw_ns begin_ns, end_ns;
    lw_ns started_at_ns; /* CLOCK_REALTIME of begin_ns; 0: as the clock has it now */
    bool overdue;
    const lw_capture *capture; /* or NULL: no samples */
    const lw_parts
        *parts; /* of each of its samples; without samples parts[0] is all; or NULL (CAPTURE) */
    const uint64_t *counts; /* of a tally's entries, else NULL */
    const lw_ns *worst_ns;
    lw_record_totals totals;
    uint32_t n_steps;
    const lw_step_time *steps;
    lw_turn_routes routes;
} lw_report;

/* Memory of the record writer, allocated with the watchdog: which codes a record names. */
typedef struct lw_record_writer lw_record_writer;

lw_record_writer *lw_record_writer_new(void);
void lw_record_writer_free(lw_record_writer *writer);

/* On the watchdog thread, without the GIL: how many bytes the record takes; then writes exactly
 * those to `out` (8-byte aligned). The second call belongs to the first; `snapper` is whose cache
 * the capture's codes are in. */
size_t lw_record_measure(lw_record_writer *writer, const lw_report *report,
                         const lw_snapper *snapper);
void lw_record_write(const lw_record_writer *writer, const lw_report *report,
                     const lw_snapper *snapper, void *out);

/* --- reading: where the arrays are --- */

const lw_node *lw_record_nodes(const lw_record *record);
const lw_record_code *lw_record_codes(const lw_record *record);
const lw_record_sample *lw_record_samples(const lw_record *record);
const lw_task *lw_record_tasks(const lw_record *record);
const lw_holder *lw_record_holders(const lw_record *record);
const lw_step_time *lw_record_steps(const lw_record *record);
const char *lw_record_strings(const lw_record *record);

#endif
