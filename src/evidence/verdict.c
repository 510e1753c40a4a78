/* The rules: verdict.h.
 *
 * A turn is cut at its looks into intervals (interval.h). Each has two accounts, the time on a CPU
 * and the time off it. The rules take from them one after the other, each what its evidence
 * explains, until nothing is left; so the parts always add up, and the order of the rules is the
 * order of precedence. Two ends that a rule applies to have half each. The table below is the whole
 * of it; tests/core/test_verdict_rules.py has a test for each row, named after it, that fails
 * without it.
 */
#include "verdict.h"

#include <string.h>

#include "interval.h"

typedef void (*lw_rule)(lw_interval *at);

static void stopped_with_the_process(lw_interval *at);
static void waited_in_the_run_queue(lw_interval *at);
static void waited_for_its_gil(lw_interval *at);
static void collected_on_cpu(lw_interval *at);
static void collected_off_cpu(lw_interval *at);
static void begin_of_a_stop(lw_interval *at);
static void runnable_but_clock_stands(lw_interval *at);
static void runnable_but_throttled(lw_interval *at);
static void waited_where_it_stood(lw_interval *at);
static void waited_as_beyond(lw_interval *at);
static void waited_unseen(lw_interval *at);
static void ran_what_was_seen(lw_interval *at);
static void ran_as_beyond(lw_interval *at);
static void ran_between_waits(lw_interval *at);
static void could_not_be_seen(lw_interval *at);

static const lw_rule rules[] = {
    /* off → suspended: the watchdog was late and no run queue held it, so all the process stood */
    stopped_with_the_process,
    /* off → not-scheduled: the kernel says that the thread was runnable; throttling is in it */
    waited_in_the_run_queue,
    /* off → gil: the pulse measured the wait with which the turn began */
    waited_for_its_gil,
    /* on → gc: a collection computes. Python that a finalizer was seen to run stays python */
    collected_on_cpu,
    /* off → gc: the rest of it, but for a finalizer's waits; a wait for the GIL goes first */
    collected_off_cpu,
    /* off → suspended: the stop began before the deadline that the watchdog missed */
    begin_of_a_stop,
    /* off → not-scheduled: runnable at both ends. In a throttle or a queue no counter moves */
    runnable_but_clock_stands,
    /* off → not-scheduled: likewise where it ran in between, as long as the cgroup was throttled */
    runnable_but_throttled,
    /* off → gil, lock, blocking-call, not-scheduled (a page): where the looks found it */
    waited_where_it_stood,
    /* off → the same: both ends ran, but looks nearby found waits. So was this one, and shorter */
    waited_as_beyond,
    /* off → blocking-call: it slept where no look found it, and not for the GIL */
    waited_unseen,
    /* on → python, native: what the looks found it running */
    ran_what_was_seen,
    /* on → the same: neither end found it running, but looks nearby did */
    ran_as_beyond,
    /* on → python: no look found it running. What runs for moments between waits calls them */
    ran_between_waits,
    /* off → unknown: there is neither a clock nor a stand */
    could_not_be_seen,
};

/* --- taking from an account --- */

static lw_ns
least(lw_ns a, lw_ns b)
{
    return a < b ? a : b;
}

/* At most `at_most_ns` from an account, to the ends whose cause is not LW_NO_CAUSE, half each where
 * both are. Nothing happens where neither is. */
static void
take(lw_interval *at, lw_ns *account, lw_ns at_most_ns, const lw_cause causes[2])
{
    bool first = causes[0] != LW_NO_CAUSE, second = causes[1] != LW_NO_CAUSE;
    if (!first && !second) {
        return;
    }
    lw_ns amount_ns = least(at_most_ns, *account);
    lw_ns first_ns = !first ? 0 : second ? amount_ns / 2 : amount_ns;
    *account -= amount_ns;
    if (first) {
        at->ends[0].parts->ns[causes[0]] += first_ns;
    }
    if (second) {
        at->ends[1].parts->ns[causes[1]] += amount_ns - first_ns;
    }
}

static void
take_off(lw_interval *at, lw_ns at_most_ns, lw_cause cause)
{
    take(at, &at->off_ns, at_most_ns, (lw_cause[2]){cause, cause});
}

static void
take_on(lw_interval *at, lw_ns at_most_ns, lw_cause cause)
{
    take(at, &at->on_ns, at_most_ns, (lw_cause[2]){cause, cause});
}

/* --- what the looks say together --- */

typedef bool (*lw_property)(const lw_end *end);

static uint32_t
count(const lw_interval *at, lw_property has)
{
    return (uint32_t)has(&at->ends[0]) + (uint32_t)has(&at->ends[1]);
}

static bool
looked(const lw_end *end)
{
    return end->look;
}

static bool
stood_readably(const lw_end *end)
{
    return end->look && end->look->stand != LW_STAND_UNKNOWN;
}

static bool
runnable(const lw_end *end)
{
    return end->look && end->look->stand == LW_STAND_RUNNING && end->off == LW_NO_CAUSE;
}

static bool
waited(const lw_end *end)
{
    return end->off != LW_NO_CAUSE;
}

static bool
wanted_gil(const lw_end *end)
{
    return end->off == LW_GIL;
}

static bool
finalized(const lw_end *end)
{
    return end->look && end->look->in_finalizer;
}

static bool
finalized_on_cpu(const lw_end *end)
{
    return finalized(end) && end->look->stand == LW_STAND_RUNNING;
}

static bool
all_runnable(const lw_interval *at)
{
    return count(at, looked) && count(at, runnable) == count(at, looked);
}

/* --- the rules --- */

static void
stopped_with_the_process(lw_interval *at)
{
    take_off(at, at->stopped_ns, LW_SUSPENDED);
}

static void
waited_in_the_run_queue(lw_interval *at)
{
    take_off(at, at->run_queue_ns, LW_NOT_SCHEDULED);
}

static void
waited_for_its_gil(lw_interval *at)
{
    take_off(at, at->gil_begin_ns, LW_GIL);
}

static void
collected_on_cpu(lw_interval *at)
{
    lw_ns amount_ns = least(at->gc_ns, at->on_ns);
    uint32_t looks = count(at, looked), finalizers = count(at, finalized_on_cpu);
    if (finalizers) {
        amount_ns = looks == finalizers ? 0 : amount_ns / 2;
    }
    take_on(at, amount_ns, LW_GC);
    at->gc_ns -= amount_ns;
}

static void
collected_off_cpu(lw_interval *at)
{
    if (!count(at, finalized) && !count(at, wanted_gil)) {
        take_off(at, at->gc_ns, LW_GC);
    }
}

static void
begin_of_a_stop(lw_interval *at)
{
    if (at->stopped_ns && !count(at, waited)) {
        take_off(at, at->off_ns, LW_SUSPENDED);
    }
}

static void
runnable_but_clock_stands(lw_interval *at)
{
    if (at->clocked && at->stands && all_runnable(at)) {
        take_off(at, at->off_ns, LW_NOT_SCHEDULED);
    }
}

static void
runnable_but_throttled(lw_interval *at)
{
    if (all_runnable(at)) {
        take_off(at, at->throttled_ns, LW_NOT_SCHEDULED);
    }
}

static void
waited_where_it_stood(lw_interval *at)
{
    take(at, &at->off_ns, at->off_ns, (lw_cause[2]){at->ends[0].off, at->ends[1].off});
}

static void
waited_as_beyond(lw_interval *at)
{
    take(at, &at->off_ns, at->off_ns,
         (lw_cause[2]){at->ends[0].off_beyond, at->ends[1].off_beyond});
}

static void
waited_unseen(lw_interval *at)
{
    if (count(at, looked) && (at->clocked || count(at, stood_readably))) {
        take_off(at, at->off_ns, LW_BLOCKING_CALL);
    }
}

static void
ran_what_was_seen(lw_interval *at)
{
    take(at, &at->on_ns, at->on_ns, (lw_cause[2]){at->ends[0].on, at->ends[1].on});
}

static void
ran_as_beyond(lw_interval *at)
{
    take(at, &at->on_ns, at->on_ns, (lw_cause[2]){at->ends[0].on_beyond, at->ends[1].on_beyond});
}

static void
ran_between_waits(lw_interval *at)
{
    take_on(at, at->on_ns, LW_PYTHON);
}

static void
could_not_be_seen(lw_interval *at)
{
    take_off(at, at->off_ns, LW_UNKNOWN);
}

/* --- many callbacks --- */

#define MANY 3

static lw_ns
sum_of(const lw_parts *parts)
{
    lw_ns sum_ns = 0;
    for (int cause = 0; cause < LW_CAUSES; cause++) {
        sum_ns += parts->ns[cause];
    }
    return sum_ns;
}

/* The most that one callback took: samples of one callback follow each other. */
static lw_ns
longest_callback_ns(const lw_evidence *const *samples, uint32_t n, const lw_parts *parts)
{
    lw_ns longest_ns = 0, callback_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool goes_on = i && samples[i]->turn_callback == samples[i - 1]->turn_callback;
        callback_ns = (goes_on ? callback_ns : 0) + sum_of(&parts[i]);
        longest_ns = callback_ns > longest_ns ? callback_ns : longest_ns;
    }
    return longest_ns;
}

/* Where no callback took half of the turn, none is to blame for what they ran; waits, collections
 * and the machine keep their names. */
static void
blame_many_callbacks(const lw_evidence *const *samples, uint32_t n, lw_ns duration_ns,
                     lw_parts *parts)
{
    int32_t callbacks = -1;
    for (uint32_t i = 0; i < n; i++) {
        callbacks = samples[i]->turn_callbacks > callbacks ? samples[i]->turn_callbacks : callbacks;
    }
    lw_ns longest_ns = longest_callback_ns(samples, n, parts);
    if (callbacks < MANY || longest_ns >= duration_ns - longest_ns) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        lw_ns *ns = parts[i].ns;
        ns[LW_MANY_CALLBACKS] += ns[LW_PYTHON] + ns[LW_NATIVE];
        ns[LW_PYTHON] = ns[LW_NATIVE] = 0;
    }
}

/* --- the whole --- */

void
lw_judge(const lw_turn_facts *turn, const lw_evidence *const *samples, uint32_t n, lw_parts *parts)
{
    lw_ns duration_ns = turn->end_ns > turn->begin_ns ? turn->end_ns - turn->begin_ns : 0;
    lw_ns end_ns = turn->begin_ns + duration_ns, owed_ns = 0;
    memset(parts, 0, (n ? n : 1) * sizeof *parts);
    for (uint32_t i = n + 1;
         i-- > 0;) { /* backwards: a wait in the run queue is booked when it ends */
        lw_interval at;
        end_ns = lw_interval_measure(turn, samples, n, i, end_ns, owed_ns, parts, &at);
        owed_ns = lw_interval_owes(&at, owed_ns);
        for (size_t rule = 0; rule < sizeof rules / sizeof *rules; rule++) {
            rules[rule](&at);
        }
    }
    blame_many_callbacks(samples, n, duration_ns, parts);
}

void
lw_parts_add(lw_parts *sum, const lw_parts *parts)
{
    for (int cause = 0; cause < LW_CAUSES; cause++) {
        sum->ns[cause] += parts->ns[cause];
    }
}

lw_cause
lw_largest(const lw_parts *parts)
{
    int largest = 0;
    for (int cause = 1; cause < LW_CAUSES; cause++) {
        largest = parts->ns[cause] > parts->ns[largest] ? cause : largest;
    }
    return (lw_cause)largest;
}

const char *
lw_cause_name(lw_cause cause)
{
    static const char *const names[LW_CAUSES] = {
        [LW_SUSPENDED] = "suspended",
        [LW_NOT_SCHEDULED] = "not-scheduled",
        [LW_GIL] = "gil",
        [LW_GC] = "gc",
        [LW_PYTHON] = "python",
        [LW_NATIVE] = "native",
        [LW_LOCK] = "lock",
        [LW_BLOCKING_CALL] = "blocking-call",
        [LW_MANY_CALLBACKS] = "many-callbacks",
        [LW_UNKNOWN] = "unknown",
    };
    return (unsigned)cause < LW_CAUSES ? names[cause] : names[LW_UNKNOWN];
}
