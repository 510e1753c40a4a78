/* Many looks at a loop in fixed memory: like ones are one entry with their weights added up.
 *
 * The entries are the samples of a capture (watch/capture.h), whose tree holds their stacks; beside
 * each stands what it stands for. Like means the same stack down to the instruction's place, the
 * same coroutine, the same thread that held the GIL and the same cause. A tally that is full is
 * sent to the reporter and begun anew. On the watchdog thread, without the GIL; nothing allocates.
 */
#ifndef LW_TALLY_H
#define LW_TALLY_H

#include "watch/capture.h"

#define LW_TALLY_ENTRIES 64 /* a record of more would keep the reporter busy for too long at once */
#define LW_TALLY_LOOKS 256
#define LW_TALLY_NODES (LW_NODES_MAX / 2) /* two stacks still fit */

typedef struct lw_tally {
    uint64_t sequence; /* of the last record */
    lw_ns begin_ns;
    uint64_t looks;                  /* the sum of counts */
    uint64_t counts[LW_SAMPLES_MAX]; /* looks, or slow turns */
    lw_ns worst_ns[LW_SAMPLES_MAX];  /* the longest of these slow turns */
    uint32_t pairs[LW_SAMPLES_MAX];  /* looks of which it is known whether the thread moved... */
    uint32_t moved[LW_SAMPLES_MAX];  /* ...and those in which it did */
    lw_parts parts[LW_SAMPLES_MAX];  /* one cause each */
    lw_capture capture;
} lw_tally;

/* What one look, or one part of a slow turn, adds. */
typedef struct lw_portion {
    lw_cause cause;
    lw_ns weight_ns;
    uint64_t count;
    lw_ns worst_ns;
} lw_portion;

/* Empty; what lies in the capture's table stays older than what comes. */
void lw_tally_begin(lw_tally *tally, lw_ns now_ns);

/* The task counts as its coroutine alone. Not where it is full. */
void lw_tally_add(lw_tally *tally, const lw_sight *sight, const lw_portion *portion);

bool lw_tally_full(const lw_tally *tally);

/* Python or C, decided anew where single looks did, or could not: a line, or function, that was
 * found moved in a fifth of its looks runs Python. To be called before the entries are read. */
void lw_tally_settle(lw_tally *tally);

#endif
