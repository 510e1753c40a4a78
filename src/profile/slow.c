/* Slow turns: what was seen of a turn on its way to a stall that it did not become. profile.h.
 *
 * The loop's thread leaves begin and end of such a turn in a small ring (lw_slow_ring) and wakes
 * nobody: the watchdog, which was looking at that turn, comes back at its next sampling point. What
 * the ring has no room for is counted there, and is time that nobody saw.
 */
#include "profile.h"
#include "watch/observe.h"

#define RELAXED memory_order_relaxed

/* The path to a node of another capture, as if it had been read just now. */
static void
stack_of(const lw_capture *capture, uint32_t node, lw_snapshot *out)
{
    lw_snapshot_clear(out);
    for (; node != LW_NO_NODE && out->depth < LW_FRAMES_MAX; node = capture->nodes[node].parent) {
        lw_frame *frame = &out->frames[out->depth++];
        frame->code = capture->nodes[node].code;
        frame->instruction = 0;
        frame->position = capture->nodes[node].position;
    }
    out->readable = out->depth != 0;
}

static void
add_unseen(lw_eye *eye, lw_slot *slot, uint64_t count, lw_ns weight_ns, lw_ns worst_ns)
{
    const lw_evidence nothing = {0};
    lw_portion portion = {LW_UNKNOWN, weight_ns, count, worst_ns};
    lw_snapshot_clear(&eye->snapshot);
    lw_sight sight = {.snapshot = &eye->snapshot, .evidence = &nothing, .target = ""};
    lw_profile_add(eye, slot, LW_RECORD_SLOW, &sight, &portion);
}

/* A sample of a turn that has ended, with its part of the turn's duration. */
static void
add_sample(lw_eye *eye, lw_slot *slot, uint32_t i, const lw_portion *portion)
{
    const lw_capture *capture = &slot->look->capture;
    const lw_sample *sample = &capture->samples[i];
    lw_thread_ref holder = {0};
    bool held = sample->holder != LW_NO_HOLDER;
    stack_of(capture, sample->node, &eye->snapshot);
    eye->snapshot.truncated = sample->truncated;
    if (sample->task != LW_NO_TASK) {
        eye->snapshot.task = capture->tasks[sample->task];
    }
    if (held) {
        holder.tid = capture->holders[sample->holder].tid;
        holder.ident = (unsigned long)capture->holders[sample->holder].ident;
        stack_of(capture, sample->holder_node, &eye->holder_snapshot);
    }
    /* Three pairs of looks and their neighbours have told Python from C already. */
    lw_evidence evidence = sample->evidence;
    evidence.known &= ~(uint32_t)LW_KNOWS_MOVED;
    lw_sight sight = {
        .at_ns = sample->at_ns,
        .snapshot = &eye->snapshot,
        .evidence = &evidence,
        .holder = held ? &holder : NULL,
        .holder_snapshot = &eye->holder_snapshot,
        .target = "",
    };
    lw_profile_add(eye, slot, LW_RECORD_SLOW, &sight, portion);
}

static lw_ns
sum_of(const lw_parts *parts)
{
    lw_ns sum_ns = 0;
    for (int cause = 0; cause < LW_CAUSES; cause++) {
        sum_ns += parts->ns[cause];
    }
    return sum_ns;
}

/* A turn counts once, at the sample that stands for the most of it. */
static void
add_slow_turn(lw_eye *eye, lw_slot *slot, const lw_slow_turn *turn)
{
    lw_look *look = slot->look;
    const lw_capture *capture = &look->capture;
    lw_ns duration_ns = turn->end_ns - turn->begin_ns;
    if (capture->turn != turn->turn || !capture->n_samples) {
        add_unseen(eye, slot, 1, duration_ns, duration_ns);
        return;
    }
    if (capture->debugger) {
        return;
    }
    lw_observe_unseen_begin(eye, look, turn->turn, turn->begin_ns);
    lw_turn_facts facts = {
        .begin_ns = turn->begin_ns,
        .end_ns = turn->end_ns,
        .gil_begin_ns = lw_slot_turn_gil_ns(slot, turn->turn),
        .first = &look->first,
    };
    lw_capture_judge(capture, &facts, eye->parts);
    uint32_t heaviest = 0;
    for (uint32_t i = 1; i < capture->n_samples; i++) {
        heaviest = sum_of(&eye->parts[i]) > sum_of(&eye->parts[heaviest]) ? i : heaviest;
    }
    for (uint32_t i = 0; i < capture->n_samples; i++) {
        lw_portion portion = {
            .cause = lw_largest(&eye->parts[i]),
            .weight_ns = sum_of(&eye->parts[i]),
            .count = i == heaviest,
            .worst_ns = i == heaviest ? duration_ns : 0,
        };
        add_sample(eye, slot, i, &portion);
    }
}

void
lw_profile_drain_slow(lw_eye *eye, lw_slot *slot)
{
    lw_slow_ring *ring = &slot->slow;
    lw_profile *profile = slot->profile;
    uint32_t tail = atomic_load_explicit(&ring->tail, RELAXED);
    while (tail != atomic_load_explicit(&ring->head, memory_order_acquire)) {
        add_slow_turn(eye, slot, &ring->entries[tail % LW_SLOW_MAX]);
        atomic_store_explicit(&ring->tail, ++tail, memory_order_release);
    }
    uint64_t lost = atomic_load_explicit(&ring->lost, RELAXED);
    lw_ns lost_ns = atomic_load_explicit(&ring->lost_ns, RELAXED);
    if (lost != profile->lost) {
        add_unseen(eye, slot, lost - profile->lost, lost_ns - profile->lost_ns, 0);
        profile->lost = lost;
        profile->lost_ns = lost_ns;
    }
}
