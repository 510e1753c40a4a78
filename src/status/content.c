/* The JSON of a status page: content.h. Each part has a bound, so that all of it has room: the loops
 * and the past stalls come first, and stacks get what is left. */
#include "content.h"

#include <inttypes.h>

#include "evidence/gc_clock.h"
#include "evidence/gc_pauses.h"
#include "history/history.h"
#include "note.h"
#include "past.h"
#include "report/report.h"
#include "watch/visit.h"
#include "watch/watchdog.h"

#define RELAXED memory_order_relaxed
#define LOOPS_MAX 8
#define RECENT_NS (10 * LW_NS_PER_S)
#define WAITING_QUANTILE 0.99
#define STACK_BYTES (24 * 1024)
#define CURRENT_MIN 8192  /* room for a stall that goes on, */
#define CURRENT_KEPT 1024 /* and of it for what comes after its stack */
#define NAME_ROOM (2 * LW_PAST_NAME)

/* The watchdog's, alone. */
static lw_window recent;
static char stack_bytes[STACK_BYTES];

/* --- JSON --- */

static void
put(lw_text *text, char byte)
{
    if (text->length + 1 < text->room) {
        text->bytes[text->length++] = byte;
        text->bytes[text->length] = '\0';
    }
}

/* A string with its quotes, escaped, in at most `room` bytes. Bytes above 127 go as they are: a
 * character that was cut is the reader's to replace. */
static void
say_string(lw_text *text, const char *string, size_t room)
{
    size_t end = text->length + room - sizeof "\\u0000\"";
    put(text, '"');
    for (const unsigned char *at = (const unsigned char *)string; *at && text->length < end; at++) {
        if (*at < ' ') {
            lw_say(text, "\\u%04x", (unsigned)*at);
            continue;
        }
        if (*at == '"' || *at == '\\') {
            put(text, '\\');
        }
        put(text, (char)*at);
    }
    put(text, '"');
}

static void
say_name(lw_text *text, const char *key, const char *value, size_t room)
{
    lw_say(text, ",\"%s\":", key);
    say_string(text, value, room);
}

static void
say_number(lw_text *text, const char *key, uint64_t value)
{
    lw_say(text, ",\"%s\":%" PRIu64, key, value);
}

/* --- loops --- */

static const char *
phase_name(lw_phase phase)
{
    switch (phase) {
    case LW_PHASE_OFF:
        return "off";
    case LW_PHASE_WAIT:
        return "waiting";
    case LW_PHASE_BUSY:
        return "busy";
    }
    return "off";
}

static const char *
pulse_name(uint32_t pulse)
{
    switch ((lw_pulse_kind)pulse) {
    case LW_PULSE_TURN:
    case LW_PULSE_WRAPPED:
        return "turn";
    case LW_PULSE_UV:
        return "uv";
    case LW_PULSE_HEARTBEAT:
        return "heartbeat";
    }
    return "heartbeat";
}

/* Only what the pulse can tell (as Lag does in _windows.py): a heartbeat neither turns nor waits, and
 * the GIL is seen where the kernel's wait is. */
static void
say_totals(lw_text *text, const lw_slot *slot, const lw_totals *totals)
{
    say_number(text, "busy", totals->busy_ns);
    if (slot->pulse != LW_PULSE_HEARTBEAT) {
        say_number(text, "turns", totals->turns);
        say_number(text, "idle", totals->idle_ns);
    }
    if (slot->pulse == LW_PULSE_TURN) {
        say_number(text, "gil_wait", totals->gil_wait_ns);
    }
}

static void
say_recent(lw_text *text, lw_slot *slot, lw_ns now_ns)
{
    if (!lw_history_window(slot, now_ns, RECENT_NS, &recent) || !recent.end_ns) {
        return;
    }
    lw_say(text, ",\"recent\":{\"seconds\":%.3f",
           (double)(recent.end_ns - recent.begin_ns) / (double)LW_NS_PER_S);
    say_totals(text, slot, &recent.totals);
    say_number(text, "worst", recent.worst_ns);
    if (slot->pulse != LW_PULSE_HEARTBEAT) {
        say_number(text, "waiting_p99", lw_window_waiting_ns(&recent, WAITING_QUANTILE));
    }
    if (lw_gc_clock_runs()) {
        say_number(text, "gc", recent.totals.gc_ns);
    }
    lw_say(text, "}");
}

static void
say_loop(lw_text *text, lw_slot *slot, lw_ns now_ns)
{
    lw_thread thread;
    lw_span span;
    bool bound = lw_slot_thread(slot, &thread);
    lw_say(text, "{\"key\":%" PRIu64, slot->key);
    if (bound) {
        say_name(text, "thread", thread.name, NAME_ROOM);
        say_number(text, "tid", (uint64_t)thread.ref.tid);
    }
    if (lw_span_open(slot, now_ns, 0, &span)) {
        say_name(text, "phase", phase_name(span.phase), NAME_ROOM);
        say_number(text, "since", span.begin_ns);
        say_totals(text, slot, &span.before);
    }
    say_name(text, "pulse", pulse_name(slot->pulse), NAME_ROOM);
    say_number(text, "threshold", lw_slot_threshold_ns(slot));
    say_number(text, "max", atomic_load_explicit(&slot->histogram.max_ns, RELAXED));
    say_number(text, "stalls", atomic_load_explicit(&slot->stalls, RELAXED));
    say_recent(text, slot, now_ns);
    lw_say(text, "}");
}

static void
say_loops(lw_text *text, lw_ns now_ns)
{
    uint32_t n = 0, more = 0;
    lw_say(text, ",\"loops\":[");
    for (lw_slot *slot = lw_slot_first(); slot; slot = atomic_load_explicit(&slot->next, RELAXED)) {
        bool watched = lw_visit_enter(slot);
        if (watched && n < LOOPS_MAX) {
            lw_say(text, "%s", n++ ? "," : "");
            say_loop(text, slot, now_ns);
        }
        else if (watched) {
            more++;
        }
        lw_visit_over();
    }
    lw_say(text, "],\"more_loops\":%" PRIu32, more);
}

/* --- stalls --- */

static void
say_past(lw_text *text)
{
    const lw_past *it;
    lw_say(text, ",\"stalls\":[");
    for (uint32_t back = 0; (it = lw_past_get(back)) != NULL; back++) {
        lw_say(text, "%s{\"id\":%" PRIu64, back ? "," : "", it->id);
        say_number(text, "key", it->key);
        say_number(text, "begin", it->begin_ns);
        say_number(text, "end", it->end_ns);
        say_name(text, "verdict", lw_cause_name(it->verdict), NAME_ROOM);
        say_name(text, "thread", it->thread, NAME_ROOM);
        if (it->qualname[0]) {
            say_name(text, "function", it->qualname, NAME_ROOM);
            say_name(text, "file", it->filename, 2 * LW_PAST_FILE);
            lw_say(text, ",\"line\":%" PRId32, it->lineno);
        }
        if (it->task[0]) {
            say_name(text, "task", it->task, NAME_ROOM);
        }
        lw_say(text, "}");
    }
    lw_say(text, "]");
}

static void
say_causes(lw_text *text, const lw_parts *parts)
{
    const char *before = "";
    lw_say(text, ",\"causes\":{");
    for (int cause = 0; cause < LW_CAUSES; cause++) {
        if (parts->ns[cause]) {
            lw_say(text, "%s\"%s\":%" PRIu64, before, lw_cause_name((lw_cause)cause),
                   parts->ns[cause]);
            before = ",";
        }
    }
    lw_say(text, "}");
}

static void
say_stack(lw_text *text, const lw_report *report, const lw_snapper *snapper, const lw_blame *blame)
{
    lw_text stack = {.bytes = stack_bytes, .room = sizeof stack_bytes};
    lw_say_stacks(&stack, report, snapper, blame);
    say_name(text, "stack", stack_bytes, text->room - text->length - CURRENT_KEPT);
}

static void
say_current(lw_text *text, const lw_report *report, const lw_snapper *snapper)
{
    lw_blame blame;
    lw_blame_find(report, snapper, &blame);
    lw_say(text, "{\"id\":%" PRIu64, report->id);
    say_number(text, "key", report->slot->key);
    say_number(text, "begin", report->begin_ns);
    say_number(text, "seen", report->end_ns);
    say_name(text, "verdict", lw_cause_name(blame.verdict), NAME_ROOM);
    say_causes(text, &blame.sum);
    if (blame.code) {
        say_name(text, "function", blame.code->qualname, NAME_ROOM);
        say_name(text, "file", blame.code->filename, 2 * LW_PAST_FILE);
        lw_say(text, ",\"line\":%" PRId32, blame.lineno);
    }
    if (blame.task) {
        say_name(text, "task", blame.task_name, NAME_ROOM);
        say_name(text, "coroutine", blame.task->coroutine, NAME_ROOM);
    }
    if (blame.shown != LW_SAMPLES_MAX) {
        say_stack(text, report, snapper, &blame);
    }
    lw_say(text, "}");
}

static void
say_all_current(lw_text *text, lw_eye *eye, lw_ns now_ns)
{
    const char *before = "";
    lw_say(text, ",\"current\":[");
    for (lw_slot *slot = lw_slot_first(); slot; slot = atomic_load_explicit(&slot->next, RELAXED)) {
        lw_step_time steps[LW_STEPS_MAX];
        lw_report report;
        if (lw_visit_enter(slot) && text->room - text->length > CURRENT_MIN &&
            lw_report_current(eye, slot, now_ns, steps, &report)) {
            lw_say(text, "%s", before);
            say_current(text, &report, eye->snapper);
            before = ",";
        }
        lw_visit_over();
    }
    lw_say(text, "]");
}

/* --- all of it --- */

static void
say_gc(lw_text *text)
{
    lw_say(text, ",\"gc\":[");
    for (int32_t generation = 0; generation < LW_GC_GENERATIONS; generation++) {
        lw_gc_pause_sum sum = lw_gc_pauses(generation);
        lw_say(text, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", generation ? "," : "", sum.count,
               sum.ns, sum.worst_ns);
    }
    lw_say(text, "]");
}

void
lw_content_say(lw_eye *eye, lw_ns now_ns, lw_text *text)
{
    lw_watchdog_stats dog;
    lw_watchdog_stats_get(&dog);
    lw_say(text, "{\"at\":%" PRIu64, now_ns);
    say_number(text, "wall", lw_clock_ns(CLOCK_REALTIME));
    lw_say(text, ",\"watchdog\":{\"cpu\":%" PRIu64 ",\"wakeups\":%" PRIu64 "}", dog.cpu_ns,
           dog.wakeups);
    say_gc(text);
    lw_say(text, ",\"executors\":%s", lw_note_get());
    say_loops(text, now_ns);
    say_past(text);
    say_all_current(text, eye, now_ns);
    lw_say(text, "}");
}

/* --- what has changed --- */

static uint64_t
mixed(uint64_t mark, uint64_t value)
{
    return (mark ^ value) * UINT64_C(0x9E3779B97F4A7C15) + (mark >> 29);
}

uint64_t
lw_content_mark(void)
{
    uint64_t mark = lw_note_version() + 1;
    for (lw_slot *slot = lw_slot_first(); slot; slot = atomic_load_explicit(&slot->next, RELAXED)) {
        if (lw_visit_enter(slot)) {
            const lw_capture *capture = &slot->look->capture;
            mark = mixed(mark, slot->key);
            mark = mixed(mark, atomic_load_explicit(&slot->cell.turn, RELAXED));
            mark = mixed(mark, atomic_load_explicit(&slot->cell.phase, RELAXED));
            mark = mixed(mark, lw_slot_threshold_ns(slot));
            mark = mixed(mark, atomic_load_explicit(&slot->stalls, RELAXED));
            if (capture->turn) {
                mark = mixed(mark, capture->n_samples + capture->merged);
            }
        }
        lw_visit_over();
    }
    return mark;
}
