/* The seconds of the last hour: a ring of cells, each closed by the first time that ends after it.
 *
 * Why on the loop thread: it knows when each time of its own began and ended; whoever looks now and
 * then from elsewhere knows only sums. And it is there anyway: a clock of our own would have to wake.
 *
 * How: what is counted grows in a straight line through a span (a wait, a turn, a time without a
 * run), so the totals at any moment of it are known, and a second's part is the difference of two of
 * them. A span that ends a second is cut at each border in it; all others cost a compare. The totals
 * at the last border (`mark`) are kept, so what the second that goes on has is known as well.
 *
 * All of it is bounded: a span over a day writes an hour of cells.
 */
#include "history.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "evidence/gc_clock.h"

#define RELAXED memory_order_relaxed

static_assert(sizeof(lw_second) % 8 == 0 && sizeof(lw_mark) % 8 == 0 &&
                  sizeof(lw_history_head) % 8 == 0,
              "copied by words");

/* --- the memory --- */

/* Pages that read as zero and take no memory until they are written, which malloc's are only where
 * they were never used; and never a huge one. */
lw_history *
lw_history_new(void)
{
    void *memory =
        mmap(NULL, sizeof(lw_history), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
#ifdef MADV_NOHUGEPAGE
    (void)madvise(memory, sizeof(lw_history), MADV_NOHUGEPAGE);
#endif
    return memory;
}

void
lw_words_store(_Atomic uint64_t *to, const void *from, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)from + i * sizeof word, sizeof word);
        atomic_store_explicit(&to[i], word, RELAXED);
    }
}

void
lw_words_load(void *to, _Atomic uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t word = atomic_load_explicit(&from[i], RELAXED);
        memcpy((unsigned char *)to + i * sizeof word, &word, sizeof word);
    }
}

/* --- the sequence lock --- */

/* Also where it is odd already: a fork has copied a writer that is not there. */
static void
begin_write(lw_history *history)
{
    uint32_t sequence = atomic_load_explicit(&history->sequence, RELAXED) | 1;
    atomic_store_explicit(&history->sequence, sequence, RELAXED);
    atomic_thread_fence(memory_order_release);
}

static void
end_write(lw_history *history)
{
    lw_words_store(history->seen, &history->head, LW_WORDS(lw_history_head));
    uint32_t sequence = atomic_load_explicit(&history->sequence, RELAXED);
    atomic_store_explicit(&history->sequence, sequence + 1, memory_order_release);
}

/* A writer takes some microseconds; one that lost its CPU gets it back while we sleep. */
uint32_t
lw_history_begin_read(lw_history *history, int tries)
{
    if (tries > LW_HISTORY_TRIES / 4) {
        nanosleep(&(struct timespec){.tv_nsec = 200 * (long)LW_NS_PER_US}, NULL);
    }
    return atomic_load_explicit(&history->sequence, memory_order_acquire);
}

bool
lw_history_end_read(lw_history *history, uint32_t sequence)
{
    atomic_thread_fence(memory_order_acquire);
    return sequence % 2 == 0 && atomic_load_explicit(&history->sequence, RELAXED) == sequence;
}

/* --- totals --- */

static lw_ns
gc_at(const lw_span *span, lw_ns at_ns)
{
    int32_t generation;
    lw_ns later_ns = at_ns < span->end_ns
                         ? lw_gc_clock_within(span->ident, at_ns, span->end_ns, &generation)
                         : 0;
    return lw_ns_between(later_ns, span->before.gc_ns);
}

/* Before the span began nothing is known of it: as if nothing had been counted. */
lw_totals
lw_totals_at(const lw_span *span, lw_ns at_ns)
{
    lw_ns passed_ns = lw_ns_between(span->begin_ns, at_ns);
    lw_totals totals = span->before;
    if (span->phase == LW_PHASE_WAIT) {
        totals.idle_ns += passed_ns;
    }
    else if (span->phase == LW_PHASE_BUSY) {
        totals.busy_ns += passed_ns;
        totals.gil_wait_ns =
            lw_ns_between(lw_ns_between(passed_ns, span->gil_ns), totals.gil_wait_ns);
        totals.gc_ns = gc_at(span, at_ns);
    }
    return totals;
}

/* --- one second --- */

/* What goes into 32 bits: what does not was measured by clocks that disagree. */
static uint32_t
within_second(lw_ns ns)
{
    return (uint32_t)(ns < LW_NS_PER_S ? ns : LW_NS_PER_S);
}

/* The second that ends at end_ns, or the part of it up to then, from `mark` on, which goes to its
 * end. wall_ns: what the wall clock is ahead of ours. */
static lw_second
cut_second(const lw_span *span, lw_totals *mark, uint64_t number, lw_ns end_ns, lw_ns worst_ns,
           lw_ns wall_ns)
{
    lw_totals totals = lw_totals_at(span, end_ns);
    lw_ns age_ns = span->phase == LW_PHASE_BUSY ? lw_ns_between(span->begin_ns, end_ns) : 0;
    lw_ns gc_ns = lw_ns_between(mark->gc_ns, totals.gc_ns);
    lw_second second = {
        .number = number,
        .at_ns = number * LW_NS_PER_S + wall_ns,
        .worst_ns = age_ns > worst_ns ? age_ns : worst_ns,
        .busy_ns = within_second(lw_ns_between(mark->busy_ns, totals.busy_ns)),
        .idle_ns = within_second(lw_ns_between(mark->idle_ns, totals.idle_ns)),
        .gil_wait_ns = within_second(lw_ns_between(mark->gil_wait_ns, totals.gil_wait_ns)),
        .gc_ns = lw_gc_clock_runs() ? within_second(gc_ns) : LW_NOT_KNOWN,
    };
    if (totals.gc_ns < mark->gc_ns) { /* more collections than are remembered */
        totals.gc_ns = mark->gc_ns;
    }
    *mark = totals;
    return second;
}

static lw_ns
ahead_ns(void)
{
    return lw_clock_ns(CLOCK_REALTIME) - lw_clock_ns(CLOCK_MONOTONIC);
}

/* --- writing: the loop thread --- */

void
lw_history_reset(lw_slot *slot)
{
    lw_history *history = slot->history;
    history->head = (lw_history_head){0};
    begin_write(history);
    end_write(history);
    atomic_store_explicit(&slot->second_end_ns, 0, RELAXED);
    atomic_store_explicit(&slot->worst_ns, 0, RELAXED);
    atomic_store_explicit(&slot->overdue_ns, 0, RELAXED);
}

void
lw_history_forget(lw_slot *slot)
{
    if (atomic_load_explicit(&slot->history->sequence, RELAXED) & 1) {
        lw_history_reset(slot);
    }
}

static lw_span
span_of(lw_slot *slot, lw_phase phase, lw_ns begin_ns, lw_ns end_ns)
{
    lw_thread thread;
    lw_span span = {
        .phase = phase,
        .begin_ns = begin_ns,
        .end_ns = end_ns,
        .ident = lw_slot_thread(slot, &thread) ? thread.ref.ident : 0,
    };
    lw_span_count(slot, &span);
    return span;
}

/* The first time of the first run; or, after lw_history_forget(), of any. */
static void
begin_history(lw_slot *slot, lw_span *span)
{
    lw_history_head *head = &slot->history->head;
    if (span->phase == LW_PHASE_OFF) {
        span->begin_ns = span->end_ns;
    }
    head->origin_ns = span->begin_ns;
    head->second_end_ns = (span->begin_ns / LW_NS_PER_S + 1) * LW_NS_PER_S;
    head->mark = lw_totals_at(span, span->begin_ns);
    head->ident = span->ident;
    lw_span start = *span;
    start.phase = LW_PHASE_OFF;
    start.end_ns = span->begin_ns;
    lw_mark_add(slot, &start);
}

static void
close_seconds(lw_slot *slot, const lw_span *span)
{
    lw_history *history = slot->history;
    lw_history_head *head = &history->head;
    lw_ns worst_ns = atomic_load_explicit(&slot->worst_ns, RELAXED);
    lw_ns wall_ns = ahead_ns();
    lw_ns last_ns = span->end_ns / LW_NS_PER_S * LW_NS_PER_S;
    head->worst_ns = worst_ns > head->worst_ns ? worst_ns : head->worst_ns;
    while (head->second_end_ns <= last_ns) {
        uint64_t number = head->second_end_ns / LW_NS_PER_S - 1;
        lw_second second =
            cut_second(span, &head->mark, number, head->second_end_ns, worst_ns, wall_ns);
        lw_words_store(history->seconds[number % LW_SECONDS_MAX], &second, LW_WORDS(lw_second));
        worst_ns = 0;
        head->second_end_ns += LW_NS_PER_S;
        if (lw_ns_between(head->second_end_ns, last_ns) >= LW_SECONDS_MAX * LW_NS_PER_S) {
            /* Not those that would be overwritten at once. */
            head->second_end_ns = last_ns - (LW_SECONDS_MAX - 1) * LW_NS_PER_S;
            head->mark = lw_totals_at(span, head->second_end_ns - LW_NS_PER_S);
        }
    }
    atomic_store_explicit(&slot->worst_ns, 0, RELAXED);
}

void
lw_history_pass(lw_slot *slot, lw_phase phase, lw_ns begin_ns, lw_ns end_ns)
{
    lw_history *history = slot->history;
    lw_history_head *head = &history->head;
    lw_span span = span_of(slot, phase, begin_ns, end_ns);
    begin_write(history);
    if (!head->origin_ns) {
        begin_history(slot, &span);
    }
    if (head->ident != span.ident) { /* another thread's collections */
        head->ident = span.ident;
        head->mark.gc_ns = gc_at(&span, span.begin_ns);
    }
    if (head->second_end_ns <= end_ns) {
        close_seconds(slot, &span);
    }
    if (lw_ns_between(head->mark_ns, end_ns) >= LW_MARK_NS) {
        lw_mark_add(slot, &span);
    }
    end_write(history);
    atomic_store_explicit(&slot->second_end_ns, head->second_end_ns, RELAXED);
}

/* --- reading: any thread --- */

/* The seconds from `from` on that are closed; returns how many. */
static int
copy_closed(lw_history *history, const lw_history_head *head, uint64_t from, lw_second *out)
{
    int n = 0;
    uint64_t open = head->second_end_ns / LW_NS_PER_S - 1;
    for (uint64_t number = from; number < open; number++) {
        lw_words_load(&out[n++], history->seconds[number % LW_SECONDS_MAX], LW_WORDS(lw_second));
    }
    return n;
}

/* The seconds from `from` on that the loop thread has not closed: those that `span` went through,
 * and the one that goes on. */
static int
cut_open(const lw_history_head *head, const lw_span *span, uint64_t from, lw_ns worst_ns,
         lw_second *out)
{
    int n = 0;
    lw_totals mark = head->mark;
    lw_ns wall_ns = ahead_ns();
    uint64_t number = head->second_end_ns / LW_NS_PER_S - 1;
    if (number < from) {
        number = from;
        mark = lw_totals_at(span, from * LW_NS_PER_S);
        worst_ns = 0;
    }
    for (; number <= span->end_ns / LW_NS_PER_S; number++) {
        lw_ns end_ns = (number + 1) * LW_NS_PER_S;
        end_ns = end_ns < span->end_ns ? end_ns : span->end_ns;
        out[n++] = cut_second(span, &mark, number, end_ns, worst_ns, wall_ns);
        worst_ns = 0;
    }
    return n;
}

/* The earliest second to tell of: that of the first run, and n up to the last one. */
static uint64_t
earliest(const lw_history_head *head, uint64_t last, int n)
{
    uint64_t from = last < (uint64_t)n ? 0 : last - (uint64_t)n + 1;
    uint64_t origin = head->origin_ns / LW_NS_PER_S;
    return from < origin ? origin : from;
}

int
lw_history_seconds(lw_slot *slot, lw_ns now_ns, int n, lw_second *out)
{
    lw_history *history = slot->history;
    for (int tries = 0; tries < LW_HISTORY_TRIES; tries++) {
        uint32_t sequence = lw_history_begin_read(history, tries);
        lw_history_head head;
        lw_span span;
        lw_words_load(&head, history->seen, LW_WORDS(lw_history_head));
        if (!head.origin_ns) { /* alone of all words it is right at any time */
            return 0;
        }
        if (!lw_span_open(slot, now_ns, head.second_end_ns - LW_NS_PER_S, &span)) {
            continue;
        }
        lw_ns worst_ns = atomic_load_explicit(&slot->worst_ns, RELAXED);
        uint64_t from = earliest(&head, span.end_ns / LW_NS_PER_S, n);
        int closed = copy_closed(history, &head, from, out);
        if (lw_history_end_read(history, sequence)) {
            return closed + cut_open(&head, &span, from, worst_ns, out + closed);
        }
    }
    return -1;
}
