/* What the watchdog says of a loop, and to whom: report.h. */
#include "report.h"

#include "dump.h"
#include "evidence/gc_clock.h"
#include "outbox.h"
#include "routes/routes.h"
#include "status/past.h"
#include "steps/steps.h"
#include "watch/observe.h"
#include "watch/tracer.h"

#define RELAXED memory_order_relaxed

static _Atomic uint64_t last_stall_id;

void
lw_report_drop(lw_eye *eye, lw_look *look)
{
    if (look->capture.turn) {
        lw_capture_end(&look->capture);
        eye->captures--;
    }
    look->urgent = 0;
}

/* --- what the whole stall cost --- */

/* The last sample in which the thread sat in a system call, of those that the verdict is about;
 * NULL: none did. */
static const lw_sample *
call_of(const lw_capture *capture, const lw_parts *parts)
{
    const lw_sample *found = NULL;
    lw_ns most_ns = 0;
    for (uint32_t i = 0; i < capture->n_samples; i++) {
        const lw_sample *sample = &capture->samples[i];
        lw_ns waited_ns = parts[i].ns[LW_BLOCKING_CALL] + parts[i].ns[LW_LOCK];
        bool in_call =
            sample->evidence.stand == LW_STAND_CALL || sample->evidence.stand == LW_STAND_FUTEX;
        if (in_call && waited_ns > most_ns) {
            found = sample;
            most_ns = waited_ns;
        }
    }
    return found;
}

static lw_ns
moved_ns(lw_ns from_ns, lw_ns upto_ns, lw_ns at_most_ns)
{
    lw_ns moved = upto_ns > from_ns ? upto_ns - from_ns : 0;
    return moved < at_most_ns ? moved : at_most_ns;
}

static void
total_up(lw_eye *eye, const lw_turn_facts *turn, lw_report *report)
{
    lw_record_totals *totals = &report->totals;
    const lw_capture *capture = report->capture;
    *totals = (lw_record_totals){.gc_generation = -1, .callbacks = -1, .syscall = -1};
    if (!capture || !capture->n_samples) {
        return;
    }
    const lw_evidence *first = turn->first->known ? turn->first : &capture->samples[0].evidence;
    const lw_evidence *last =
        turn->last ? turn->last : &capture->samples[capture->n_samples - 1].evidence;
    const lw_clocks *a = &first->clocks, *b = &last->clocks;
    lw_ns duration_ns = report->end_ns - report->begin_ns;
    totals->known =
        (first->known & last->known) | (capture->samples[0].evidence.known & LW_KNOWS_GIL);
    totals->cpu_ns = moved_ns(a->cpu_ns, b->cpu_ns, duration_ns);
    totals->run_queue_ns = moved_ns(a->run_queue_ns, b->run_queue_ns, duration_ns);
    totals->throttled_ns = moved_ns(a->throttled_ns, b->throttled_ns, totals->run_queue_ns);
    totals->watchdog_late_ns = moved_ns(capture->late_ns, eye->late_ns, duration_ns);
    totals->major_faults = b->major_faults - a->major_faults;
    totals->gc_ns = lw_gc_clock_within(0, report->begin_ns, report->end_ns, &totals->gc_generation);
    for (uint32_t i = 0; i < capture->n_samples; i++) {
        int32_t callbacks = capture->samples[i].evidence.turn_callbacks;
        totals->callbacks = callbacks > totals->callbacks ? callbacks : totals->callbacks;
    }
    const lw_sample *call = call_of(capture, eye->parts);
    lw_thread thread;
    if (call && lw_slot_thread(report->slot, &thread)) {
        totals->syscall = call->evidence.syscall;
        memcpy(totals->target, call->target, sizeof totals->target);
    }
}

/* Judges the samples and adds everything up. `last`: a look at, or just after, the end; NULL while
 * it goes on. */
static void
judge(lw_eye *eye, lw_report *report, const lw_evidence *last)
{
    lw_look *look = report->slot->look;
    lw_observe_unseen_begin(eye, look, report->turn, report->begin_ns);
    lw_turn_facts turn = {
        .begin_ns = report->begin_ns,
        .end_ns = report->end_ns,
        .gil_begin_ns = lw_slot_turn_gil_ns(report->slot, report->turn),
        .first = &look->first,
        .last = last,
    };
    lw_capture_judge(report->capture, &turn, eye->parts);
    report->parts = eye->parts;
    total_up(eye, &turn, report);
}

static uint64_t
id_of(lw_look *look)
{
    if (!look->stall_id) {
        look->stall_id = atomic_fetch_add_explicit(&last_stall_id, 1, RELAXED) + 1;
    }
    return look->stall_id;
}

/* The same in each report of a stall, also where the clock is set while it lasts. */
static lw_ns
started_at_ns(lw_look *look, uint64_t id, lw_ns begin_ns)
{
    if (look->started_id != id) {
        look->started_id = id;
        look->started_at_ns = lw_realtime_ns(begin_ns);
    }
    return look->started_at_ns;
}

bool
lw_report_send(lw_eye *eye, lw_slot *slot, const lw_report *report)
{
    size_t size = lw_record_measure(eye->writer, report, eye->snapper);
    void *room = lw_outbox_reserve(size);
    if (!room) {
        lw_count(&slot->dropped, 1);
        return false;
    }
    lw_record_write(eye->writer, report, eye->snapper, room);
    lw_outbox_commit();
    return true;
}

/* A stop in a debugger is no stall: its frames are on the stack, or something traces the process.
 */
static bool
debugged(const lw_eye *eye, const lw_capture *capture)
{
    return (capture && capture->debugger) || lw_tracer_attached(eye->status_fd);
}

void
lw_report_ended(lw_eye *eye, lw_slot *slot, const lw_ended *ended)
{
    lw_look *look = slot->look;
    const lw_capture *capture = look->capture.turn == ended->turn ? &look->capture : NULL;
    if (ended->exempt) {
        lw_count(&slot->exempt, 1);
    }
    else if (debugged(eye, capture)) {
        lw_count(&slot->debugged, 1);
    }
    else {
        if (!capture) {
            look->stall_id = 0; /* the id that is there belongs to another turn */
        }
        uint64_t id = id_of(look);
        lw_report report = {
            .kind = LW_RECORD_ENDED,
            .slot = slot,
            .id = id,
            .turn = ended->turn,
            .begin_ns = ended->begin_ns,
            .end_ns = ended->end_ns,
            .started_at_ns = started_at_ns(look, id, ended->begin_ns),
            .overdue = ended->overdue,
            .capture = capture,
            .n_steps = ended->n_steps,
            .steps = ended->steps,
            .routes = ended->routes,
        };
        lw_count(&slot->stalls, 1);
        lw_evidence last = {0};
        lw_thread thread;
        bool seen = lw_slot_thread(slot, &thread);
        if (seen) {
            lw_observe_clocks(eye, slot, &thread.ref, &last);
        }
        judge(eye, &report, seen ? &last : NULL);
        lw_past_note(&report, eye->snapper);
        lw_report_send(eye, slot, &report);
    }
    look->finished = ended->turn;
    if (capture) {
        lw_report_drop(eye, look);
    }
}

/* The turn that the capture is of goes on. It may have ended since the visit, in which a sample was
 * taken: that takes longer than the rest of a run. */
static bool
goes_on(lw_slot *slot)
{
    lw_beat beat;
    return lw_cell_read(&slot->cell, &beat) && beat.phase != LW_PHASE_OFF &&
           beat.turn == slot->look->capture.turn;
}

bool
lw_report_current(lw_eye *eye, lw_slot *slot, lw_ns now_ns, lw_step_time steps[LW_STEPS_MAX],
                  lw_report *report)
{
    lw_look *look = slot->look;
    lw_capture *capture = &look->capture;
    if (!capture->turn || !goes_on(slot) ||
        now_ns - capture->begin_ns < lw_slot_threshold_ns(slot) || debugged(eye, capture) ||
        atomic_load_explicit(&slot->exempt_turn, RELAXED) == capture->turn) {
        return false;
    }
    uint64_t id = id_of(look);
    *report = (lw_report){
        .kind = LW_RECORD_ONGOING,
        .slot = slot,
        .id = id,
        .turn = capture->turn,
        .begin_ns = capture->begin_ns,
        .end_ns = now_ns,
        .started_at_ns = started_at_ns(look, id, capture->begin_ns),
        .capture = capture,
        .n_steps = lw_steps_collect(slot, capture->turn, capture->begin_ns, now_ns, steps),
        .steps = steps,
    };
    lw_routes_collect(slot, capture->turn, capture->begin_ns, now_ns, &report->routes);
    judge(eye, report, NULL);
    return true;
}

void
lw_report_ongoing(lw_eye *eye, lw_slot *slot, lw_ns now_ns)
{
    lw_step_time steps[LW_STEPS_MAX];
    lw_report report;
    lw_look *look = slot->look;
    look->report_age_ns *= 10;
    if (!lw_report_current(eye, slot, now_ns, steps, &report)) {
        return;
    }
    report.token = lw_outbox_token();
    look->urgent = report.token;
    look->urgent_until_ns = now_ns + LW_TAKE_WITHIN_NS;
    lw_report_send(eye, slot, &report);
}

void
lw_report_dump(lw_eye *eye, lw_slot *slot, lw_ns now_ns)
{
    lw_look *look = slot->look;
    lw_step_time steps[LW_STEPS_MAX];
    lw_report report;
    if (look->dump_fd != LW_DUMP_OFF && lw_report_current(eye, slot, now_ns, steps, &report) &&
        lw_outbox_take_over(look->urgent)) {
        bool written = lw_dump_write(&eye->fds, look->dump_fd, &report, eye->snapper);
        lw_observe_waited(eye); /* for room there, for a disk */
        lw_count(written ? &slot->dumps : &slot->dumps_failed, 1);
    }
    look->urgent = 0;
}
