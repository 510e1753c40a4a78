/* The last so many seconds: the histogram now less that of the youngest mark which is old
 * enough. Reading only, on any thread. */
#include "history.h"

#include <string.h>

#define RELAXED memory_order_relaxed

/* The span as a mark: the totals before it stand for each moment of it. */
static lw_mark
as_mark(const lw_span *span)
{
    return (lw_mark){
        .begin_ns = span->begin_ns,
        .end_ns = span->end_ns,
        .phase = span->phase,
        .totals = lw_totals_at(span, span->begin_ns),
    };
}

/* The moment at which a window begins that shall begin at from_ns: within a turn, with the turn;
 * before all, with the first. */
static lw_ns
begin_within(const lw_mark *start, lw_ns from_ns)
{
    if (start->phase == LW_PHASE_BUSY || from_ns < start->begin_ns) {
        return start->begin_ns;
    }
    return from_ns < start->end_ns ? from_ns : start->end_ns;
}

static void
add_since_base(lw_slot *slot, uint64_t *counts)
{
    lw_history *history = slot->history;
    for (size_t i = 0; i < LW_HISTOGRAM_BUCKETS; i++) {
        uint32_t count = (uint32_t)atomic_load_explicit(&slot->histogram.buckets[i], RELAXED);
        counts[i] += count - atomic_load_explicit(&history->base[i], RELAXED);
    }
}

static void
keep_worst(lw_window *out, lw_ns ns)
{
    out->worst_ns = ns > out->worst_ns ? ns : out->worst_ns;
}

/* Adds what the histogram grew by since the youngest mark that had begun at from_ns, and says
 * which that is. */
static lw_mark
add_back_to(lw_slot *slot, const lw_history_head *head, lw_ns from_ns, lw_window *out)
{
    lw_history *history = slot->history;
    lw_mark at = {0};
    add_since_base(slot, out->counts);
    keep_worst(out, head->worst_ns);
    keep_worst(out, atomic_load_explicit(&slot->worst_ns, RELAXED));
    for (uint64_t number = head->first + head->n; number-- > head->first;) {
        lw_words_load(&at, history->marks[number % LW_MARKS_MAX], LW_WORDS(lw_mark));
        if (at.begin_ns <= from_ns || number == head->first ||
            at.offset > LW_GROWTH_ROOM - LW_GROWTH_MAX || at.length > LW_GROWTH_MAX) {
            break; /* the last two: torn */
        }
        lw_growth_add(history->growth + at.offset, at.length, out->counts);
        keep_worst(out, at.worst_ns);
    }
    return at;
}

/* The window's totals: those of now less those of its begin. A beat that is being written as we read
 * may count twice; but no more time can have passed than there is. */
static void
subtract(lw_window *out, const lw_totals *now, const lw_totals *then)
{
    lw_ns length_ns = out->end_ns - out->begin_ns;
    lw_totals *totals = &out->totals;
    totals->turns = lw_ns_between(then->turns, now->turns);
    totals->busy_ns = lw_ns_between(then->busy_ns, now->busy_ns);
    totals->idle_ns = lw_ns_between(then->idle_ns, now->idle_ns);
    totals->gil_wait_ns = lw_ns_between(then->gil_wait_ns, now->gil_wait_ns);
    totals->gc_ns = lw_ns_between(then->gc_ns, now->gc_ns);
    if (totals->busy_ns > length_ns) {
        totals->busy_ns = length_ns;
    }
    if (totals->idle_ns > length_ns - totals->busy_ns) {
        totals->idle_ns = length_ns - totals->busy_ns;
    }
}

static void
fill(lw_slot *slot, const lw_history_head *head, const lw_span *open, lw_ns length_ns,
     lw_window *out)
{
    lw_ns from_ns = lw_ns_between(length_ns, open->end_ns);
    lw_mark start = as_mark(open);
    if (open->begin_ns > from_ns) {
        start = add_back_to(slot, head, from_ns, out);
    }
    out->begin_ns = begin_within(&start, from_ns);
    out->end_ns = open->end_ns > out->begin_ns ? open->end_ns : out->begin_ns;
    if (start.phase == LW_PHASE_WAIT) {
        start.totals.idle_ns += out->begin_ns - start.begin_ns;
    }
    lw_totals now = lw_totals_at(open, open->end_ns);
    subtract(out, &now, &start.totals);
}

/* A turn that goes on counts as if it ended now. Of a heartbeat it is no turn. */
static void
add_open_turn(lw_slot *slot, const lw_span *open, lw_window *out)
{
    lw_ns age_ns = open->end_ns - open->begin_ns;
    if (open->phase != LW_PHASE_BUSY) {
        return;
    }
    keep_worst(out, age_ns);
    if (slot->pulse != LW_PULSE_HEARTBEAT) {
        out->counts[lw_histogram_bucket(age_ns)]++;
        out->totals.turns++;
    }
}

bool
lw_history_window(lw_slot *slot, lw_ns now_ns, lw_ns length_ns, lw_window *out)
{
    lw_history *history = slot->history;
    for (int tries = 0; tries < LW_HISTORY_TRIES; tries++) {
        memset(out, 0, sizeof *out);
        uint32_t sequence = lw_history_begin_read(history, tries);
        lw_history_head head;
        lw_span open;
        lw_words_load(&head, history->seen, LW_WORDS(lw_history_head));
        if (!head.origin_ns) { /* alone of all words it is right at any time */
            return true;
        }
        if (!lw_span_open(slot, now_ns, head.second_end_ns - LW_NS_PER_S, &open)) {
            continue;
        }
        fill(slot, &head, &open, length_ns, out);
        if (lw_history_end_read(history, sequence)) {
            add_open_turn(slot, &open, out);
            return true;
        }
    }
    memset(out, 0, sizeof *out);
    return false;
}
