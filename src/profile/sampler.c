/* Looks at random moments of a busy loop: profile.h, pace.h.
 *
 * A look is one walk along the frames, and where the thread stands: about a third of what a sample
 * of a stall costs. Whether the loop was busy is read
 * just before the walk, so that turns of microseconds have their share too. The stack may then be
 * of a turn or two later, which changes nothing on average.
 */
#include "pace.h"
#include "profile.h"
#include "report/outbox.h"
#include "report/report.h"
#include "watch/observe.h"
#include "watch/schedule.h"

#define RELAXED memory_order_relaxed

/* No hook of uvloop's says that a long wait is over: while it lasts, the looks go on for so long. */
#define UV_AWAKE_NS (250 * LW_NS_PER_MS)

/* A heartbeat that is so much overdue is held up by something, not by the loop's own clock. */
#define BEAT_LATE_NS (2 * LW_NS_PER_MS)

/* A look stands for at most so many moments: a process that was stopped saw none of them. */
#define LATE_MAX 8

/* --- one look --- */

/* The cause of a look, by the rules of stalls: what lies between its begin and its end is a turn of
 * some ten microseconds. */
static lw_cause
cause_of(const lw_evidence *before, const lw_evidence *after)
{
    const lw_evidence *const samples[2] = {before, after};
    lw_parts parts[2];
    lw_turn_facts turn = {
        .begin_ns = before->clocks.at_ns,
        .end_ns = after->clocks.at_ns,
        .first = before,
        .last = after,
    };
    lw_judge(&turn, samples, 2, parts);
    lw_parts_add(&parts[0], &parts[1]);
    return lw_largest(&parts[0]);
}

/* A task's name and address tell one request from another; the profile has no use for that. */
static void
keep_coroutine_alone(lw_task *task)
{
    if (task->known && task->address) {
        task->address = 1;
        task->name[0] = '\0';
    }
}

/* capture="gil": the cause is seen here, the frames by the reporter once it gets the GIL. False where
 * it has not taken the last request yet: one is enough. */
static bool
ask_reporter(lw_eye *eye, lw_slot *slot, lw_ns now_ns, const lw_portion *portion)
{
    lw_profile *profile = slot->profile;
    lw_parts parts = {{0}};
    if (profile->asked && lw_outbox_waits(profile->asked)) {
        return false;
    }
    parts.ns[portion->cause] = portion->weight_ns;
    profile->asked = lw_outbox_token();
    lw_report report = {
        .kind = LW_RECORD_LOOK,
        .slot = slot,
        .token = profile->asked,
        .id = portion->count,
        .begin_ns = now_ns,
        .end_ns = now_ns,
        .parts = &parts,
        .totals = {.gc_generation = -1, .callbacks = -1, .syscall = -1},
    };
    return lw_report_send(eye, slot, &report);
}

static void
look(lw_eye *eye, lw_slot *slot, lw_ns now_ns, uint32_t moments, lw_ns period_ns)
{
    lw_thread thread;
    lw_thread_ref holder;
    lw_moment moment;
    lw_evidence after;
    if (!lw_slot_thread(slot, &thread)) {
        return;
    }
    bool raw = slot->capture == LW_CAPTURE_RAW && eye->snapper;
    lw_observe_moment_begin(eye, slot, &thread.ref, &moment);
    if (raw) {
        lw_snapshot_take_once(eye->snapper, &thread.ref, &eye->snapshot);
    }
    else {
        lw_snapshot_clear(&eye->snapshot);
    }
    lw_observe_moment_end(eye, slot, &thread.ref, &eye->snapshot, &moment, &after);
    bool held = raw && lw_observe_holder(eye, &thread.ref, &after, &holder);
    if (held) {
        lw_snapshot_take_once(eye->snapper, &holder, &eye->holder_snapshot);
    }
    if (lw_observe_no_run(slot, &eye->snapshot)) {
        return;
    }
    keep_coroutine_alone(&eye->snapshot.task);
    lw_portion portion = {.cause = cause_of(&moment.before, &after),
                          .weight_ns = moments * period_ns,
                          .count = moments};
    if (slot->capture == LW_CAPTURE_GIL && ask_reporter(eye, slot, now_ns, &portion)) {
        return;
    }
    lw_sight sight = {
        .at_ns = now_ns,
        .snapshot = &eye->snapshot,
        .evidence = &after,
        .holder = held && portion.cause == LW_GIL ? &holder : NULL,
        .holder_snapshot = &eye->holder_snapshot,
        .target = "",
    };
    lw_profile_add(eye, slot, LW_RECORD_PROFILE, &sight, &portion);
}

/* --- when --- */

static bool
is_busy(const lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    if (slot->pulse == LW_PULSE_HEARTBEAT) { /* it knows no more than that it did not come back */
        return beat->phase == LW_PHASE_WAIT && now_ns > beat->due_ns &&
               now_ns - beat->due_ns > BEAT_LATE_NS;
    }
    return beat->phase == LW_PHASE_BUSY && beat->turn != slot->look->lost;
}

/* The loop waits for long: no look is due before it is back, which its hook says, or its clock. A
 * heartbeat's loop is never back for sure. */
static bool
rests(lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    lw_ns awake_ns = 2 * lw_first_point_ns(lw_slot_threshold_ns(slot)); /* as visit_waiting() */
    if (slot->pulse == LW_PULSE_UV && awake_ns < UV_AWAKE_NS) {
        awake_ns = UV_AWAKE_NS;
    }
    return beat->phase == LW_PHASE_OFF ||
           (beat->phase == LW_PHASE_WAIT && slot->pulse != LW_PULSE_HEARTBEAT &&
            now_ns >= beat->since_ns + awake_ns && now_ns < beat->due_ns);
}

/* The moments up to now_ns are over; how many of them one look stands for: where the watchdog is
 * late, those too that the phase which goes on has seen. */
static uint32_t
pass_moments(lw_eye *eye, lw_profile *profile, lw_ns since_ns, lw_ns now_ns, lw_ns period_ns)
{
    uint32_t due = 1;
    for (int i = 0; i < LATE_MAX && profile->next_ns <= now_ns; i++) {
        due += i > 0 && profile->next_ns >= since_ns;
        profile->next_ns += lw_pace_gap_ns(period_ns, lw_eye_random(eye));
    }
    if (profile->next_ns <= now_ns) {
        profile->next_ns = now_ns + lw_pace_gap_ns(period_ns, lw_eye_random(eye));
    }
    return due;
}

lw_ns
lw_profile_visit(lw_eye *eye, lw_slot *slot)
{
    lw_profile *profile = slot->profile;
    lw_ns period_ns = atomic_load_explicit(&slot->profile_period_ns, RELAXED);
    lw_beat beat;
    if (!period_ns) {
        return LW_NS_NEVER;
    }
    if (!lw_cell_read(&slot->cell, &beat)) {
        return lw_now_ns() + LW_SOON_NS;
    }
    lw_ns now_ns = lw_now_ns();
    lw_refine_function refine = atomic_load_explicit(&slot->refine, memory_order_acquire);
    if (refine && beat.phase == LW_PHASE_WAIT) {
        refine(slot, &beat, now_ns);
    }
    if (rests(slot, &beat, now_ns)) {
        profile->next_ns = 0;
        return beat.phase == LW_PHASE_WAIT ? beat.due_ns : LW_NS_NEVER;
    }
    if (!profile->next_ns) {
        profile->next_ns = now_ns + lw_pace_gap_ns(period_ns, lw_eye_random(eye));
    }
    else if (now_ns >= profile->next_ns) {
        uint32_t due = pass_moments(eye, profile, beat.since_ns, now_ns, period_ns);
        if (is_busy(slot, &beat, now_ns)) {
            look(eye, slot, now_ns, due, period_ns);
        }
    }
    return profile->next_ns;
}
