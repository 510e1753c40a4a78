/* Between two looks: interval.h. The Python twin of each function is in
 * tests/reference/interval.py. */
#include "interval.h"

#define NEAR 12   /* samples on each side that say with one whether it runs Python */
#define STANDS 16 /* a CPU clock that moved by no more than this part of the time stands */

/* Both sides of a ratio are cut down below this, so that times of hours can be multiplied in 64
 * bits. */
#define RATIO_MAX ((lw_ns)1 << 16)

static lw_ns
least(lw_ns a, lw_ns b)
{
    return a < b ? a : b;
}

static lw_ns
less(lw_ns a, lw_ns b)
{
    return a > b ? a - b : 0;
}

/* --- one look --- */

static bool
runs(const lw_evidence *look)
{
    return look->stand == LW_STAND_RUNNING || look->stand == LW_STAND_UNKNOWN;
}

typedef struct lw_pace {
    lw_ns cpu_ns, time_ns;
} lw_pace;

/* How far the CPU clock moved from the sample before sample i, and to the one after it. */
static uint32_t
paces_around(const lw_evidence *const *samples, uint32_t n, uint32_t i, lw_pace paces[2])
{
    uint32_t found = 0;
    for (uint32_t b = i ? i : 1; b <= i + 1 && b < n; b++) {
        const lw_evidence *before = samples[b - 1], *after = samples[b];
        if (before->known & after->known & LW_KNOWS_CPU) {
            paces[found++] = (lw_pace){
                .cpu_ns = less(after->clocks.cpu_ns, before->clocks.cpu_ns),
                .time_ns = less(after->clocks.at_ns, before->clocks.at_ns),
            };
        }
    }
    return found;
}

/* On a CPU without the GIL: another thread has it, and the CPU clock moves all the same. A thread
 * that waits for the GIL runs for some microseconds in 5 ms. */
static bool
computes(const lw_evidence *const *samples, uint32_t n, uint32_t i)
{
    lw_pace paces[2];
    bool fast = false;
    if (!runs(samples[i]) || !samples[i]->gil_others) {
        return false;
    }
    for (uint32_t k = paces_around(samples, n, i, paces); k-- > 0;) {
        fast |= 2 * paces[k].cpu_ns >= paces[k].time_ns;
    }
    return fast;
}

/* In how many of its pairs a sample moved, -1 where that does not tell or there is no such
 * sample. */
static int
moves(const lw_evidence *const *samples, uint32_t n, uint32_t i)
{
    const lw_evidence *look = i < n ? samples[i] : NULL;
    bool tells = look && runs(look) && !look->gil_others && (look->known & LW_KNOWS_MOVED);
    return tells ? look->moved : -1;
}

/* Pairs of looks at Python move in 55 to 100 % of cases, in a loop that mostly calls what is short
 * in C (5 to 10 us) in 20 to 45 %; at C in 0 to 8 %. One sample's three pairs are not enough to
 * tell, so the samples around it have a say: what counts is the likeliest course of the three,
 * which seldom changes. */
enum runs { NATIVE, CALLS, CODE, RUNS };

/* 100 times the logarithm of the chance that so many of the pairs moved. */
static const int chances[RUNS][LW_GLANCE_PAIRS + 1] = {
    [NATIVE] = {-11, -238, -492, -849},
    [CALLS] = {-107, -82, -167, -361},
    [CODE] = {-361, -167, -82, -107},
};

/* Likewise of a change between two samples: once in 20. C and a loop that mostly calls it look alike
 * for some samples, so a change between these two must have more to show: once in 90. */
static const int changes[RUNS][RUNS] = {
    [NATIVE] = {0, 450, 290},
    [CALLS] = {450, 0, 290},
    [CODE] = {290, 290, 0},
};

/* How likely a course is, by what it runs at its end. */
typedef struct lw_course {
    int at[RUNS];
} lw_course;

static void
go_on(lw_course *course)
{
    const lw_course from = *course;
    for (int k = NATIVE; k < RUNS; k++) {
        for (int j = NATIVE; j < RUNS; j++) {
            int at = from.at[j] - changes[j][k];
            course->at[k] = at > course->at[k] ? at : course->at[k];
        }
    }
}

/* The samples on one side of sample i, the furthest first, up to it. */
static lw_course
beyond(const lw_evidence *const *samples, uint32_t n, uint32_t i, bool before)
{
    lw_course course = {{0}};
    for (uint32_t k = NEAR; k > 0; k--) {
        int there = moves(samples, n, before ? i - k : i + k); /* i - k may wrap: none such */
        go_on(&course);
        for (int run = NATIVE; run < RUNS; run++) {
            course.at[run] = there < 0 ? 0 : course.at[run] + chances[run][there];
        }
    }
    go_on(&course);
    return course;
}

static lw_cause
on_cpu(const lw_evidence *const *samples, uint32_t n, uint32_t i)
{
    if (computes(samples, n, i)) {
        return LW_NATIVE;
    }
    int own = moves(samples, n, i);
    if (own < 0) {
        return LW_NO_CAUSE;
    }
    lw_course before = beyond(samples, n, i, true), after = beyond(samples, n, i, false);
    int sum[RUNS];
    for (int run = NATIVE; run < RUNS; run++) {
        sum[run] = before.at[run] + chances[run][own] + after.at[run];
    }
    return sum[CALLS] > sum[NATIVE] || sum[CODE] > sum[NATIVE] ? LW_PYTHON : LW_NATIVE;
}

static lw_cause
off_cpu(const lw_evidence *const *samples, uint32_t n, uint32_t i)
{
    switch (samples[i]->stand) {
    case LW_STAND_GIL:
        return LW_GIL;
    case LW_STAND_FUTEX:
        return LW_LOCK;
    case LW_STAND_CALL:
        return LW_BLOCKING_CALL;
    case LW_STAND_PAGE:
        return LW_NOT_SCHEDULED;
    case LW_STAND_RUNNING:
    case LW_STAND_UNKNOWN:
        return samples[i]->gil_others && !computes(samples, n, i) ? LW_GIL : LW_NO_CAUSE;
    }
    return LW_NO_CAUSE;
}

/* --- the ends --- */

typedef lw_cause (*lw_tells)(const lw_evidence *const *samples, uint32_t n, uint32_t i);

/* What the nearest sample that tells it says, from sample i outward: before it or after it. */
static lw_cause
nearest(const lw_evidence *const *samples, uint32_t n, uint32_t i, bool before, lw_tells tells)
{
    lw_cause found = LW_NO_CAUSE;
    uint32_t steps = before ? i : n - 1 - i;
    for (uint32_t k = 1; k <= steps && found == LW_NO_CAUSE; k++) {
        found = tells(samples, n, before ? i - k : i + k);
    }
    return found;
}

/* Sample i as the end of an interval that it begins, or that it ends. */
static lw_end
end_at(const lw_evidence *const *samples, uint32_t n, uint32_t i, bool begins, lw_parts *parts)
{
    return (lw_end){
        .look = samples[i],
        .parts = &parts[i],
        .on = on_cpu(samples, n, i),
        .off = off_cpu(samples, n, i),
        .on_beyond = nearest(samples, n, i, begins, on_cpu),
        .off_beyond = nearest(samples, n, i, begins, off_cpu),
    };
}

static lw_end
edge(lw_parts *parts)
{
    return (lw_end){
        .parts = parts,
        .on = LW_NO_CAUSE,
        .off = LW_NO_CAUSE,
        .on_beyond = LW_NO_CAUSE,
        .off_beyond = LW_NO_CAUSE,
    };
}

/* --- the clocks --- */

/* amount * to / of, with as many bits of the ratio as there is room for. */
static lw_ns
scaled(lw_ns amount_ns, lw_ns to_ns, lw_ns of_ns)
{
    while (to_ns >= RATIO_MAX || of_ns >= RATIO_MAX) {
        to_ns >>= 1;
        of_ns >>= 1;
    }
    return of_ns ? amount_ns * to_ns / of_ns : amount_ns;
}

/* A `first` that was read after the begin: what was seen from then on stands for the time before,
 * too. */
static void
stretch(lw_interval *at, lw_ns late_ns, lw_ns seen_ns)
{
    lw_ns to_ns = seen_ns + late_ns;
    if (late_ns && seen_ns) {
        at->on_ns = scaled(least(at->on_ns, seen_ns), to_ns, seen_ns);
        at->run_queue_ns = scaled(least(at->run_queue_ns, seen_ns), to_ns, seen_ns);
        at->gc_ns = scaled(least(at->gc_ns, seen_ns), to_ns, seen_ns);
    }
}

static void
read_clocks(lw_interval *at, const lw_evidence *a, const lw_evidence *b, lw_ns begin_ns)
{
    const lw_clocks *from = &a->clocks, *to = &b->clocks;
    uint32_t known = a->known & b->known;
    at->clocked = known & LW_KNOWS_CPU;
    at->on_ns = at->clocked ? less(to->cpu_ns, from->cpu_ns) : 0;
    at->run_queue_ns = known & LW_KNOWS_RUN_QUEUE ? less(to->run_queue_ns, from->run_queue_ns) : 0;
    at->throttled_ns = known & LW_KNOWS_THROTTLED ? less(to->throttled_ns, from->throttled_ns) : 0;
    at->gc_ns = known & LW_KNOWS_GC ? less(to->gc_ns, from->gc_ns) : 0;
    at->stopped_ns = less(to->stopped_ns, from->stopped_ns);
    stretch(at, less(from->at_ns, begin_ns), less(to->at_ns, from->at_ns));
}

/* Time on a CPU where no clock tells: half for each look that was on one. */
static lw_ns
on_by_stands(const lw_interval *at, lw_ns length_ns)
{
    lw_ns seen = 0, on = 0;
    for (int i = 0; i < 2; i++) {
        const lw_evidence *look = at->ends[i].look;
        if (look && (look->stand != LW_STAND_UNKNOWN || look->moved)) {
            seen++;
            on += runs(look) && at->ends[i].off == LW_NO_CAUSE;
        }
    }
    return seen ? length_ns / seen * on + length_ns % seen * on / seen : 0;
}

static bool
collects(const lw_end *end)
{
    return end->look && end->look->in_gc;
}

lw_ns
lw_interval_measure(const lw_turn_facts *turn, const lw_evidence *const *samples, uint32_t n,
                    uint32_t i, lw_ns end_ns, lw_ns owed_ns, lw_parts *parts, lw_interval *at)
{
    const lw_evidence *a = i > 0 ? samples[i - 1] : turn->first;
    const lw_evidence *b = i < n ? samples[i] : turn->last;
    lw_ns begin_ns = turn->begin_ns;
    if (i > 0 && a->clocks.at_ns > begin_ns) {
        begin_ns = least(a->clocks.at_ns, end_ns);
    }
    lw_ns length_ns = end_ns - begin_ns;
    *at = (lw_interval){
        .ends = {i > 0 ? end_at(samples, n, i - 1, true, parts) : edge(&parts[0]),
                 i < n ? end_at(samples, n, i, false, parts) : edge(&parts[n ? n - 1 : 0])},
        .gil_begin_ns = less(least(turn->begin_ns + turn->gil_begin_ns, end_ns), begin_ns),
    };
    if (a && b) {
        read_clocks(at, a, b, begin_ns);
    }
    at->run_queue_ns += owed_ns;
    if (!(a && b && (a->known & b->known & LW_KNOWS_GC)) &&
        (collects(&at->ends[0]) || collects(&at->ends[1]))) {
        at->gc_ns = length_ns;
    }
    if (!at->clocked) {
        lw_ns known_off_ns = at->stopped_ns + at->run_queue_ns + at->gil_begin_ns;
        at->on_ns = on_by_stands(at, less(length_ns, known_off_ns));
    }
    at->on_ns = least(at->on_ns, length_ns);
    at->off_ns = length_ns - at->on_ns;
    at->stands = at->on_ns <= length_ns / STANDS;
    return begin_ns;
}

lw_ns
lw_interval_owes(const lw_interval *at, lw_ns owed_ns)
{
    const lw_evidence *begin = at->ends[0].look;
    if (begin && !runs(begin)) {
        return 0; /* it slept there: a wait in the run queue that was booked later began later */
    }
    lw_ns free_ns = less(at->off_ns, at->stopped_ns);
    lw_ns paid_ns = least(owed_ns, free_ns);
    lw_ns own_ns = at->run_queue_ns - owed_ns;
    /* A wait that lasted to the end of the interval came after whatever the thread ran in it. */
    return less(own_ns, free_ns - paid_ns) + (at->stands ? owed_ns - paid_ns : 0);
}
