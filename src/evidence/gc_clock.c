/* When collections began and ended: what the stamp (gc_stamp.c) has seen.
 *
 * Why: a collection looks like a slow call of whatever line happened to allocate. Only the
 * collector knows when it began and ended, and it tells its callbacks.
 *
 * How: the interpreter runs one collection at a time, on the thread that began it; a finalizer may
 * let other threads run meanwhile, but none of them can collect. So there is one current span, a
 * ring of past ones, and a total for each thread. The stamps are written with the GIL (on a
 * free-threaded build by the one thread that collects; a program that calls the stamp itself is
 * held off by `writing`) and read without it.
 *
 * A thread's total is one word, so that it is right at any moment, also while the writer has lost
 * its CPU in the middle: the sum, or, with the highest bit set while the thread collects, the time
 * at which a clock would have to have started that has never stopped. Spans are read under a
 * sequence lock, odd while they are written. A reader that cannot get through sits at the edge of a
 * collection, where "none" is as true as its opposite.
 */
#include "gc_clock.h"

#include <stdatomic.h>
#include <string.h>

#include "frames/snapshot.h"
#include "gc_pauses.h"

#define RELAXED memory_order_relaxed
#define TRIES_MAX 64 /* of a reader */
#define COLLECTS (UINT64_C(1) << 63)

typedef struct cell {
    _Atomic uint64_t begin_ns, end_ns; /* begin 0: free */
    _Atomic uint64_t ident;
    _Atomic uintptr_t frame;
    _Atomic int32_t generation;
} cell;

typedef struct total {
    _Atomic uint64_t ident; /* 0: free */
    _Atomic uint64_t
        word; /* the sum, or COLLECTS and the current span's begin less the sum before it */
    _Atomic uint64_t most_ns; /* what a reader was told at most */
    _Atomic uint64_t used;    /* number of the thread's last collection, to replace the oldest */
} total;

static struct {
    atomic_flag writing;
    _Atomic uint32_t sequence; /* odd: being written */
    cell current;
    cell past[LW_GC_PAST];
    total totals[LW_GC_THREADS];
    _Atomic uint64_t
        floor_ns; /* the largest total that had to go: others begin there, so that none goes back */
    _Atomic uint64_t collections; /* finished; the next one's place in `past` */
} seen = {.writing = ATOMIC_FLAG_INIT};

/* --- writing: with the GIL --- */

/* False: somebody else writes, which on a build with a GIL cannot be. */
static bool
begin_write(void)
{
    if (atomic_flag_test_and_set_explicit(&seen.writing, memory_order_acquire)) {
        return false;
    }
    atomic_store_explicit(&seen.sequence, atomic_load_explicit(&seen.sequence, RELAXED) + 1,
                          RELAXED);
    atomic_thread_fence(memory_order_release);
    return true;
}

static void
end_write(void)
{
    uint32_t sequence = atomic_load_explicit(&seen.sequence, RELAXED);
    atomic_store_explicit(&seen.sequence, sequence + 1, memory_order_release);
    atomic_flag_clear_explicit(&seen.writing, memory_order_release);
}

static void
store(cell *to, const lw_gc_span *span)
{
    atomic_store_explicit(&to->begin_ns, span->begin_ns, RELAXED);
    atomic_store_explicit(&to->end_ns, span->end_ns, RELAXED);
    atomic_store_explicit(&to->ident, span->ident, RELAXED);
    atomic_store_explicit(&to->frame, span->frame, RELAXED);
    atomic_store_explicit(&to->generation, span->generation, RELAXED);
}

static lw_gc_span
load(cell *from)
{
    return (lw_gc_span){
        .begin_ns = atomic_load_explicit(&from->begin_ns, RELAXED),
        .end_ns = atomic_load_explicit(&from->end_ns, RELAXED),
        .ident = atomic_load_explicit(&from->ident, RELAXED),
        .frame = atomic_load_explicit(&from->frame, RELAXED),
        .generation = atomic_load_explicit(&from->generation, RELAXED),
    };
}

static const lw_gc_span no_span = {.generation = -1};

/* The total of the thread; NULL where it has none. */
static total *
find_total(uint64_t ident)
{
    for (size_t i = 0; i < LW_GC_THREADS; i++) {
        if (atomic_load_explicit(&seen.totals[i].ident, RELAXED) == ident) {
            return &seen.totals[i];
        }
    }
    return NULL;
}

/* A free one, or that of the thread whose last collection was the longest ago. Whoever still reads
 * it for that thread gets at least what it had. */
static total *
take_total(uint64_t ident)
{
    total *oldest = &seen.totals[0];
    for (size_t i = 1; i < LW_GC_THREADS; i++) {
        total *at = &seen.totals[i];
        if (atomic_load_explicit(&at->used, RELAXED) <
            atomic_load_explicit(&oldest->used, RELAXED)) {
            oldest = at;
        }
    }
    uint64_t floor_ns = atomic_load_explicit(&seen.floor_ns, RELAXED);
    uint64_t gone_ns = atomic_load_explicit(&oldest->word, RELAXED);
    uint64_t told_ns = atomic_load_explicit(&oldest->most_ns, RELAXED);
    floor_ns = gone_ns > floor_ns ? gone_ns : floor_ns;
    floor_ns = told_ns > floor_ns ? told_ns : floor_ns;
    atomic_store_explicit(&seen.floor_ns, floor_ns, RELAXED);
    atomic_store_explicit(&oldest->word, floor_ns, RELAXED);
    atomic_store_explicit(&oldest->ident, ident, memory_order_release);
    return oldest;
}

/* The total goes with the time from now on. */
static void
run_total(const lw_gc_span *span)
{
    total *sum = find_total(span->ident);
    sum = sum ? sum : take_total(span->ident);
    uint64_t ns = atomic_load_explicit(&sum->word, RELAXED);
    atomic_store_explicit(&sum->used, atomic_load_explicit(&seen.collections, RELAXED) + 1,
                          RELAXED);
    atomic_store_explicit(&sum->word, COLLECTS | (span->begin_ns - ns), memory_order_release);
}

/* The current span, if any, is over, and its thread's total stands. */
static lw_gc_span
end_current(lw_ns end_ns)
{
    lw_gc_span span = load(&seen.current);
    total *sum = span.begin_ns ? find_total(span.ident) : NULL;
    span.end_ns = end_ns;
    store(&seen.current, &no_span);
    if (sum) {
        uint64_t since = atomic_load_explicit(&sum->word, RELAXED) & ~COLLECTS;
        atomic_store_explicit(&sum->word, end_ns - since, memory_order_release);
    }
    return span;
}

/* Where the stop of the one before was not seen, it ends here. */
void
lw_gc_clock_began(int32_t generation)
{
    const lw_gc_span span = {
        .begin_ns = lw_now_ns(),
        .end_ns = LW_NS_NEVER,
        .ident = PyThread_get_thread_ident(),
        .frame = lw_snapshot_top_here(),
        .generation = generation,
    };
    if (begin_write()) {
        end_current(span.begin_ns);
        run_total(&span);
        store(&seen.current, &span);
        end_write();
    }
}

void
lw_gc_clock_ended(void)
{
    if (!begin_write()) {
        return;
    }
    if (atomic_load_explicit(&seen.current.begin_ns, RELAXED) &&
        atomic_load_explicit(&seen.current.ident, RELAXED) == PyThread_get_thread_ident()) {
        lw_gc_span span = end_current(lw_now_ns()); /* else its start was not seen */
        uint64_t n = atomic_load_explicit(&seen.collections, RELAXED);
        store(&seen.past[n % LW_GC_PAST], &span);
        atomic_store_explicit(&seen.collections, n + 1, RELAXED);
        lw_gc_pauses_add(span.generation, span.end_ns - span.begin_ns);
    }
    end_write();
}

void
lw_gc_clock_drop(void)
{
    if (begin_write()) {
        end_current(lw_now_ns());
        end_write();
    }
}

void
lw_gc_clock_forget(void)
{
    lw_gc_pauses_forget();
    if (atomic_load_explicit(&seen.current.ident, RELAXED) != PyThread_get_thread_ident()) {
        end_current(lw_now_ns());
    }
    uint32_t sequence = atomic_load_explicit(&seen.sequence, RELAXED);
    atomic_store_explicit(&seen.sequence, (sequence + 1) & ~1u, RELAXED);
    atomic_flag_clear_explicit(&seen.writing, memory_order_release);
}

/* --- reading: no GIL --- */

/* The begin of a try to read. A writer that lost its CPU gets it back while we sleep. */
static uint32_t
begin_read(int tries)
{
    if (tries > TRIES_MAX / 4) {
        nanosleep(&(struct timespec){.tv_nsec = 20 * (long)LW_NS_PER_US}, NULL);
    }
    return atomic_load_explicit(&seen.sequence, memory_order_acquire);
}

static bool
end_read(uint32_t sequence)
{
    atomic_thread_fence(memory_order_acquire);
    return sequence % 2 == 0 && atomic_load_explicit(&seen.sequence, RELAXED) == sequence;
}

/* The current span; begin_ns 0: none. */
static lw_gc_span
read_current(void)
{
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        uint32_t sequence = begin_read(tries);
        lw_gc_span span = load(&seen.current);
        if (end_read(sequence)) {
            return span;
        }
    }
    return no_span;
}

/* The end of a collection is stamped a moment before it is written; who reads in that moment is
 * told a little too much, and must not be told less later. */
static lw_ns
never_back(total *sum, lw_ns ns)
{
    uint64_t most_ns = atomic_load_explicit(&sum->most_ns, RELAXED);
    while (ns > most_ns) {
        if (atomic_compare_exchange_weak_explicit(&sum->most_ns, &most_ns, ns, RELAXED, RELAXED)) {
            return ns;
        }
    }
    return most_ns;
}

lw_ns
lw_gc_clock_ns(uint64_t ident, lw_ns now_ns)
{
    total *sum = find_total(ident);
    if (!sum) {
        return atomic_load_explicit(&seen.floor_ns, RELAXED);
    }
    uint64_t word = atomic_load_explicit(&sum->word, memory_order_acquire);
    uint64_t since_ns = word & ~COLLECTS;
    if (!(word & COLLECTS)) {
        return never_back(sum, word);
    }
    bool goes_on = now_ns > since_ns && lw_gc_clock_runs();
    return never_back(sum, goes_on ? now_ns - since_ns : 0);
}

bool
lw_gc_clock_current(uint64_t ident, lw_gc_span *span)
{
    *span = read_current();
    return span->begin_ns && span->ident == ident && lw_gc_clock_runs();
}

static lw_ns
overlap_ns(const lw_gc_span *span, lw_ns begin_ns, lw_ns end_ns)
{
    lw_ns from_ns = span->begin_ns > begin_ns ? span->begin_ns : begin_ns;
    lw_ns to_ns = span->end_ns < end_ns ? span->end_ns : end_ns;
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

lw_ns
lw_gc_clock_within(uint64_t ident, lw_ns begin_ns, lw_ns end_ns, int32_t *generation)
{
    lw_gc_span spans[LW_GC_PAST + 1];
    lw_ns sum_ns = 0;
    bool whole = false;
    for (int tries = 0; tries < TRIES_MAX && !whole; tries++) { /* at worst one span is torn */
        uint32_t sequence = begin_read(tries);
        for (size_t i = 0; i < LW_GC_PAST; i++) {
            spans[i] = load(&seen.past[i]);
        }
        spans[LW_GC_PAST] = load(&seen.current);
        whole = end_read(sequence);
    }
    size_t n = LW_GC_PAST + lw_gc_clock_runs(); /* the current one */
    *generation = -1;
    for (size_t i = 0; i < n; i++) {
        lw_ns ns = overlap_ns(&spans[i], begin_ns, end_ns);
        if (spans[i].begin_ns && ns && (!ident || spans[i].ident == ident)) {
            sum_ns += ns;
            *generation = spans[i].generation > *generation ? spans[i].generation : *generation;
        }
    }
    return sum_ns;
}
