/* One look at one loop: is it late, take a sample, report. look.h. */
#include "look.h"

#include <stdlib.h>
#include <string.h>

#include "observe.h"
#include "profile/profile.h"
#include "report/dump.h"
#include "report/outbox.h"
#include "report/report.h"
#include "routes/routes.h"
#include "schedule.h"
#include "steps/steps.h"

#define RELAXED memory_order_relaxed

lw_look *
lw_look_new(void)
{
    lw_look *look = calloc(1, sizeof *look);
    if (look) {
        lw_look_reset(look);
    }
    return look;
}

void
lw_look_reset(lw_look *look)
{
    uint32_t epoch =
        look->capture.epoch; /* what lies in the capture's table stays older than what comes */
    memset(look, 0, offsetof(lw_look, capture.samples));
    look->capture.epoch = epoch;
    look->finished = look->lost = 0;
    look->next_sample_ns = look->report_age_ns = look->urgent_until_ns = 0;
    look->started_id = look->started_at_ns = 0;
    look->stall_id = look->urgent = look->asked_frames = look->first_turn = 0;
    look->dump_fd = LW_DUMP_OFF;
}

static lw_ns
first_report_age_ns(lw_slot *slot)
{
    lw_ns hang_after_ns = atomic_load_explicit(&slot->hang_after_ns, RELAXED);
    lw_ns threshold_ns = lw_slot_threshold_ns(slot);
    return hang_after_ns > threshold_ns ? hang_after_ns : threshold_ns;
}

static void
begin(lw_eye *eye, lw_slot *slot, uint64_t turn, lw_ns begin_ns)
{
    lw_look *look = slot->look;
    lw_capture_begin(&look->capture, turn, begin_ns);
    look->capture.late_ns = eye->late_ns;
    eye->captures++;
    look->next_sample_ns = begin_ns + lw_first_point_ns(lw_slot_threshold_ns(slot));
    look->report_age_ns = first_report_age_ns(slot);
    look->stall_id = 0;
    look->urgent = 0;
    lw_observe_unseen_begin(eye, look, turn, begin_ns);
}

static void
drain_ended(lw_eye *eye, lw_slot *slot)
{
    lw_ended_ring *ring = &slot->ended;
    uint32_t tail = atomic_load_explicit(&ring->tail, RELAXED);
    while (tail != atomic_load_explicit(&ring->head, memory_order_acquire)) {
        lw_report_ended(eye, slot, &ring->entries[tail % LW_ENDED_MAX]);
        atomic_store_explicit(&ring->tail, ++tail, memory_order_release);
    }
}

/* --- samples --- */

static void
note_sample(lw_slot *slot, const lw_snapshot *snapshot)
{
    lw_count(&slot->samples, 1);
    if (snapshot->quality == LW_EXACT) {
        lw_count(&slot->samples_exact, 1);
    }
    else if (snapshot->quality == LW_MOVING) {
        lw_count(&slot->samples_moving, 1);
    }
}

static void
ask_reporter(lw_eye *eye, lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    lw_look *look = slot->look;
    if (look->asked_frames && lw_outbox_waits(look->asked_frames)) {
        return; /* it does not get the GIL; one request is enough */
    }
    look->asked_frames = lw_outbox_token();
    lw_report report = {
        .kind = LW_RECORD_CAPTURE,
        .slot = slot,
        .token = look->asked_frames,
        .turn = beat->turn,
        .begin_ns = look->capture.begin_ns,
        .end_ns = now_ns,
    };
    lw_report_send(eye, slot, &report);
}

/* The run that nobody saw begin has ended, at some time after the last sample. */
static void
end_lost_run(lw_eye *eye, lw_slot *slot, uint64_t turn)
{
    lw_look *look = slot->look;
    const lw_capture *capture = &look->capture;
    look->lost = turn;
    if (capture->n_samples) {
        lw_ended ended = {
            .turn = turn,
            .begin_ns = capture->begin_ns,
            .end_ns = capture->samples[capture->n_samples - 1].at_ns,
        };
        if (ended.end_ns - ended.begin_ns >= lw_slot_threshold_ns(slot)) {
            lw_report_ended(eye, slot, &ended);
        }
    }
    lw_report_drop(eye, look);
}

/* The frames of the thread, where they are read raw; else nothing, and the evidence speaks
 * alone. */
static void
snapshot_of(lw_eye *eye, lw_slot *slot, const lw_thread_ref *thread, lw_snapshot *out)
{
    if (slot->capture == LW_CAPTURE_RAW && eye->snapper) {
        lw_snapshot_take(eye->snapper, thread, out);
    }
    else {
        lw_snapshot_clear(out);
    }
}

/* `thrifty`: with fewer clocks, and one quick look at whether it moves in place of four. */
static void
take_sample(lw_eye *eye, lw_slot *slot, const lw_beat *beat, lw_ns now_ns, bool thrifty)
{
    lw_thread thread;
    lw_moment moment;
    lw_evidence evidence;
    lw_thread_ref holder;
    char target[LW_TARGET_MAX] = "";
    if (slot->capture == LW_CAPTURE_GIL) {
        ask_reporter(eye, slot, beat, now_ns);
    }
    if (!lw_slot_thread(slot, &thread)) {
        return;
    }
    if (thrifty) {
        lw_observe_moment_begin(eye, slot, &thread.ref, &moment);
    }
    snapshot_of(eye, slot, &thread.ref, &eye->snapshot);
    if (thrifty) {
        lw_observe_moment_end(eye, slot, &thread.ref, &eye->snapshot, &moment, &evidence);
    }
    else {
        lw_observe(eye, slot, &thread.ref, &eye->snapshot, &evidence);
    }
    bool held =
        slot->capture == LW_CAPTURE_RAW && lw_observe_holder(eye, &thread.ref, &evidence, &holder);
    if (held) {
        lw_snapshot_take(eye->snapper, &holder, &eye->holder_snapshot);
    }
    if (evidence.stand == LW_STAND_CALL && !thrifty) {
        lw_call_target(&evidence, thread.ref.tid, &eye->fds, &eye->reader, target);
    }
    lw_beat after;
    if (!lw_cell_read(&slot->cell, &after) || after.turn != beat->turn) {
        return; /* it may be of the next turn */
    }
    if (lw_observe_no_run(slot, &eye->snapshot)) {
        end_lost_run(eye, slot, beat->turn);
        return;
    }
    lw_sight sight = {
        .at_ns = now_ns,
        .snapshot = &eye->snapshot,
        .evidence = &evidence,
        .holder = held ? &holder : NULL,
        .holder_snapshot = &eye->holder_snapshot,
        .target = target,
    };
    lw_capture_add(&slot->look->capture, &sight);
    note_sample(slot, &eye->snapshot);
}

/* While the loop waits, or has only just come back, its clocks stand where the turn will begin. */
static void
note_first(lw_eye *eye, lw_slot *slot, const lw_beat *beat)
{
    lw_look *look = slot->look;
    lw_thread thread;
    if (look->first_turn == beat->turn || !lw_slot_thread(slot, &thread)) {
        return;
    }
    look->first = (lw_evidence){0};
    look->first_turn = beat->turn;
    if (!lw_thrift_allows(&eye->thrift, lw_now_ns())) {
        lw_observe_own_clocks(eye, &thread.ref, &look->first);
        return;
    }
    lw_ns before_ns = lw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    lw_observe_clocks(eye, slot, &thread.ref, &look->first);
    lw_thrift_spend(&eye->thrift, lw_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns);
}

/* A sample of a turn that is no stall yet is paid from the account. */
static void
take_early_sample(lw_eye *eye, lw_slot *slot, const lw_beat *beat, lw_ns now_ns, bool thrifty)
{
    lw_ns before_ns = lw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    take_sample(eye, slot, beat, now_ns, thrifty);
    lw_thrift_spend(&eye->thrift, lw_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns);
}

/* --- one look --- */

static lw_ns
earlier(lw_ns a, lw_ns b)
{
    return a < b ? a : b;
}

static lw_ns
later_by(lw_ns at_ns, lw_ns by_ns)
{
    return at_ns > LW_NS_NEVER - by_ns ? LW_NS_NEVER : at_ns + by_ns;
}

/* The loop is late since begin_ns: sample it and report it as they fall due. */
static lw_ns
visit_late(lw_eye *eye, lw_slot *slot, const lw_beat *beat, lw_ns begin_ns, lw_ns now_ns)
{
    lw_look *look = slot->look;
    lw_ns threshold_ns = lw_slot_threshold_ns(slot);
    bool thrifty = !lw_thrift_allows(&eye->thrift, now_ns);
    lw_ns first_ns =
        begin_ns + (thrifty ? lw_thrifty_point_ns(threshold_ns) : lw_first_point_ns(threshold_ns));
    if (now_ns < first_ns) {
        note_first(eye, slot, beat);
        return first_ns;
    }
    if (look->capture.turn != beat->turn) {
        begin(eye, slot, beat->turn, begin_ns);
    }
    look->capture.begin_ns =
        begin_ns; /* a wait that was overdue by less than the threshold is over */
    if (now_ns >= look->next_sample_ns) {
        if (now_ns - begin_ns < threshold_ns) {
            take_early_sample(eye, slot, beat, now_ns, thrifty);
        }
        else {
            take_sample(eye, slot, beat, now_ns, false);
        }
        if (!look->capture.turn) {
            return LW_NS_NEVER;
        }
        look->next_sample_ns =
            lw_next_sample_ns(threshold_ns, begin_ns, now_ns, thrifty, lw_eye_random(eye));
    }
    if (now_ns - begin_ns >= look->report_age_ns) {
        lw_report_ongoing(eye, slot, now_ns);
    }
    if (look->urgent && now_ns >= look->urgent_until_ns) {
        lw_report_dump(eye, slot, now_ns);
    }
    lw_ns next_ns = earlier(look->next_sample_ns, later_by(begin_ns, look->report_age_ns));
    return look->urgent ? earlier(next_ns, look->urgent_until_ns) : next_ns;
}

/* The loop waits, and not longer than it asked for. After a short wait it is looked at as if it
 * were busy, because it may be by then; after a longer one its hook wakes us (lw_watchdog_unpark),
 * where the pulse has such a hook. */
static lw_ns
visit_waiting(lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    lw_ns threshold_ns = lw_slot_threshold_ns(slot);
    lw_ns first_ns = lw_first_point_ns(threshold_ns);
    lw_ns overdue_ns = later_by(beat->due_ns, first_ns);
    /* Twice what makes the hook wake us: it may have stamped the end of this wait already, when a
     * little less than that had passed, and not have stored it yet. */
    if (now_ns < beat->since_ns + 2 * first_ns) {
        return earlier(beat->since_ns + 2 * first_ns, overdue_ns);
    }
    if (atomic_load_explicit(&slot->refine, RELAXED)) {
        return earlier(now_ns + threshold_ns / 10 * 9, overdue_ns);
    }
    return overdue_ns;
}

static lw_ns
visit_beat(lw_eye *eye, lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    lw_ns begin_ns;
    if (beat->turn != slot->look->lost &&
        lw_beat_late_since(beat, lw_slot_threshold_ns(slot), now_ns, &begin_ns)) {
        return visit_late(eye, slot, beat, begin_ns, now_ns);
    }
    if (beat->phase == LW_PHASE_WAIT) {
        note_first(eye, slot, beat);
        return visit_waiting(slot, beat, now_ns);
    }
    return LW_NS_NEVER; /* it does not run; the hook of its next run wakes us */
}

static void
adopt_dump(lw_eye *eye, lw_slot *slot)
{
    lw_look *look = slot->look;
    uint32_t asked = atomic_load_explicit(&slot->dump_asked, memory_order_acquire);
    if (asked == atomic_load_explicit(&slot->dump_adopted, RELAXED)) {
        return;
    }
    lw_dump_close(look->dump_fd);
    int fd = atomic_load_explicit(&slot->dump_fd, RELAXED);
    look->dump_fd = fd >= 0 ? lw_fdtable_adopt(&eye->fds, fd) : fd;
    atomic_store_explicit(&slot->dump_adopted, asked, memory_order_release);
}

/* The watch is over: a stall that goes on ends here, as far as anyone will know. */
static void
retire(lw_eye *eye, lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    lw_look *look = slot->look;
    lw_ns threshold_ns = lw_slot_threshold_ns(slot);
    lw_ns begin_ns;
    if (beat->turn > look->finished && beat->turn != look->lost &&
        lw_beat_late_since(beat, threshold_ns, now_ns, &begin_ns) &&
        now_ns - begin_ns >= threshold_ns) {
        lw_ended ended = {
            .turn = beat->turn,
            .begin_ns = begin_ns,
            .end_ns = now_ns,
            .exempt = atomic_load_explicit(&slot->exempt_turn, RELAXED) == beat->turn,
        };
        ended.n_steps = lw_steps_collect(slot, ended.turn, begin_ns, now_ns, ended.steps);
        lw_routes_collect(slot, ended.turn, begin_ns, now_ns, &ended.routes);
        lw_report_ended(eye, slot, &ended);
    }
    lw_report_drop(eye, look);
    lw_profile_flush(eye, slot);
    lw_thread_files_close(&look->files);
    lw_dump_close(look->dump_fd);
    look->dump_fd = LW_DUMP_OFF;
    lw_slot_let_go(slot);
}

lw_ns
lw_look_visit(lw_eye *eye, lw_slot *slot, lw_ns now_ns)
{
    lw_look *look = slot->look;
    bool retiring = lw_slot_state_of(slot) == LW_SLOT_RETIRING;
    adopt_dump(eye, slot);
    lw_beat beat = {0};
    if (!lw_cell_read(&slot->cell, &beat)) {
        if (!retiring) {
            return now_ns + LW_SOON_NS;
        }
        beat = (lw_beat){.phase = LW_PHASE_OFF};
    }
    now_ns = lw_now_ns();   /* not before the beat was stamped */
    drain_ended(eye, slot); /* after the cell was read: each turn before beat.turn that was a stall
                               is in there */
    lw_profile_drain_slow(eye, slot); /* likewise */
    if (look->capture.turn && look->capture.turn != beat.turn) {
        lw_report_drop(eye, look);
    }
    if (!retiring && beat.turn <= look->finished) { /* its end came after the cell was read */
        return now_ns + LW_SOON_NS;
    }
    lw_refine_function refine = atomic_load_explicit(&slot->refine, memory_order_acquire);
    if (refine && beat.phase == LW_PHASE_WAIT) {
        refine(slot, &beat, now_ns);
    }
    if (retiring) {
        retire(eye, slot, &beat, now_ns);
        return LW_NS_NEVER;
    }
    lw_ns next_ns = visit_beat(eye, slot, &beat, now_ns);
    return earlier(next_ns, lw_profile_visit(eye, slot));
}
