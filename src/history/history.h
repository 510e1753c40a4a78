/* What a loop did lately: a cell for each second of the last hour, and marks of its
 * histogram, from which the last minutes are told apart from the days before.
 *
 * The loop thread writes all of it, in lw_history_pass(), which a pulse calls for the first time of
 * waiting, of being busy or of not running that ends in another second than the one before: at most
 * about once a second, never on an idle loop, and with one compare a turn and wait otherwise
 * (pulses/pulse.c). Any thread reads, under a sequence lock, and adds what goes on at that moment:
 * a stall is seen while it lasts.
 *
 *   cells.c        the seconds
 *   marks.c  what the histogram had counted, some seconds apart (growth.c: how it is kept)
 *   window.c       the histogram of the last so many seconds
 *   waiting.c      what an event waited in them
 *   open.c         what goes on just now
 */
#ifndef LW_HISTORY_H
#define LW_HISTORY_H

#include "slot.h"
#include "growth.h"

#define LW_SECONDS_MAX 3600                  /* an hour of cells */
#define LW_MARKS_MAX 64                      /* at least so many times the next: 320 s */
#define LW_MARK_NS (5 * LW_NS_PER_S)         /* they are at least this far apart */
#define LW_WINDOW_MAX_NS (300 * LW_NS_PER_S) /* so a window of this length is always there */
#define LW_NOT_KNOWN UINT32_MAX              /* lw_second.gc_ns: collections are not stamped */

/* --- what is counted from the install on --- */

typedef struct lw_totals {
    lw_ns busy_ns, idle_ns, gil_wait_ns;
    lw_ns gc_ns; /* collections run by the loop's thread: only differences mean something */
    uint64_t turns;
} lw_totals;

/* One time of waiting, of being busy or of neither, and the totals before it: what is counted at any
 * moment of it follows (lw_totals_at). */
typedef struct lw_span {
    lw_phase phase;
    lw_ns begin_ns, end_ns; /* end: or now */
    lw_totals before;       /* but gil_wait_ns and gc_ns: those of end_ns */
    lw_ns gil_ns;           /* BUSY: it began with a wait for the GIL of this length */
    uint64_t ident;         /* of the loop's thread, for the collections within the span */
} lw_span;

/* larger - smaller, or 0: two readings of clocks may disagree by a little. */
static inline lw_ns
lw_ns_between(lw_ns smaller, lw_ns larger)
{
    return larger > smaller ? larger - smaller : 0;
}

lw_totals lw_totals_at(const lw_span *span, lw_ns at_ns);

/* --- seconds --- */

typedef struct lw_second {
    uint64_t number;   /* seconds of CLOCK_MONOTONIC */
    uint64_t at_ns;    /* the wall clock, as it was set then, when it began */
    uint64_t worst_ns; /* the longest turn that ended in it, or the age at its end of one that went
                          on */
    uint32_t busy_ns, idle_ns, gil_wait_ns;
    uint32_t gc_ns; /* or LW_NOT_KNOWN */
} lw_second;

/* --- marks --- */

/* What was counted before a span. While the span lasted no turn ended, so the mark stands for
 * each moment of it; of a turn, for its begin. */
typedef struct lw_mark {
    lw_ns begin_ns, end_ns;
    uint64_t phase;          /* lw_phase of the span */
    lw_totals totals;        /* at begin_ns */
    lw_ns worst_ns;          /* the longest turn that ended between the mark before and this one */
    uint32_t offset, length; /* of what the histogram grew by since then, in lw_history.growth */
} lw_mark;

/* --- all of it --- */

/* What the loop thread keeps, and shows to readers as it stood after each pass. */
typedef struct lw_history_head {
    lw_ns origin_ns;     /* the first run's begin; 0: it never ran */
    lw_ns second_end_ns; /* the end of the second that goes on */
    lw_totals mark;      /* what was counted when that began */
    lw_ns worst_ns;      /* the longest turn since the last mark that ended before that */
    lw_ns mark_ns;       /* when the last one's span ended */
    uint64_t ident;      /* whose collections mark.gc_ns counts */
    uint64_t first, n;   /* marks: number of the oldest, and how many */
} lw_history_head;

#define LW_WORDS(type) (sizeof(type) / sizeof(uint64_t))

/* Nothing behind `seen` is read before it was written: the memory comes as zero pages, and takes
 * none that is not used. */
typedef struct lw_history {
    lw_history_head head;      /* the loop thread's own */
    _Atomic uint32_t sequence; /* odd: all that follows is being written */
    _Atomic uint64_t seen[LW_WORDS(lw_history_head)];
    _Atomic uint64_t marks[LW_MARKS_MAX][LW_WORDS(lw_mark)];
    _Atomic uint32_t base[LW_HISTOGRAM_BUCKETS]; /* the histogram at the last mark */
    _Atomic uint64_t seconds[LW_SECONDS_MAX][LW_WORDS(lw_second)];
    _Atomic uint8_t growth[LW_GROWTH_ROOM];
} lw_history;

/* With the GIL or not; NULL without memory. Never freed, as its slot. */
lw_history *lw_history_new(void);

/* Of a slot that nobody else looks at: it never ran. */
void lw_history_reset(lw_slot *slot);

/* In a forked child, before the loop runs there: what another thread was writing when the process
 * was copied is given up. */
void lw_history_forget(lw_slot *slot);

/* --- on the loop thread, with the GIL or not: no lock, no allocation, no Python object --- */

/* A time of that kind ends now, in another second than the time before it. Before it is counted. */
__attribute__((cold)) void lw_history_pass(lw_slot *slot, lw_phase phase, lw_ns begin_ns,
                                           lw_ns end_ns);

/* marks.c: one that stands for the span, under the lock. */
void lw_mark_add(lw_slot *slot, const lw_span *span);

/* --- any thread, no GIL --- */

/* open.c: what was counted before the span, or is until now (span->end_ns and ident are set). */
void lw_span_count(lw_slot *slot, lw_span *span);

/* open.c: what goes on at now_ns, and the totals before it; of a loop that is not watched (any
 * more, or not in this process) nothing does. now_ns may be a while ago, because a reader may lose
 * its CPU; not_before_ns is what the loop thread has told already. False: it was interrupted in the
 * middle of a beat. */
bool lw_span_open(lw_slot *slot, lw_ns now_ns, lw_ns not_before_ns, lw_span *span);

/* The last n seconds (at most LW_SECONDS_MAX), oldest first, the one that goes on last; fewer where
 * the loop's first run began later. -1: the writer was interrupted in the middle, for long. */
int lw_history_seconds(lw_slot *slot, lw_ns now_ns, int n, lw_second *out);

typedef struct lw_window {
    lw_ns begin_ns, end_ns; /* what it covers */
    lw_totals totals;       /* of that time */
    lw_ns worst_ns;
    uint64_t counts[LW_HISTOGRAM_BUCKETS];
} lw_window;

/* The last length_ns (at most LW_WINDOW_MAX_NS), up to LW_MARK_NS and a turn more, or all
 * there is. A turn that goes on counts as if it ended now. False as -1 above; then, and where the
 * loop never ran, all is 0. */
bool lw_history_window(lw_slot *slot, lw_ns now_ns, lw_ns length_ns, lw_window *out);

/* waiting.c: the quantile of what an event waits that becomes ready at a random moment of it. Not of
 * a heartbeat's. */
lw_ns lw_window_waiting_ns(const lw_window *window, double quantile);

/* --- its sequence lock, for the files of this directory --- */

void lw_words_store(_Atomic uint64_t *to, const void *from, size_t words);
void lw_words_load(void *to, _Atomic uint64_t *from, size_t words);

/* The begin of a try to read, of which there are so many. */
#define LW_HISTORY_TRIES 64
uint32_t lw_history_begin_read(lw_history *history, int tries);
bool lw_history_end_read(lw_history *history, uint32_t sequence);

#endif
