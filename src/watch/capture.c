/* Samples and their stacks, in fixed memory: capture.h. */
#include "capture.h"

#include <string.h>

#define TABLE_MASK (2 * LW_NODES_MAX - 1)

void
lw_capture_begin(lw_capture *capture, uint64_t turn, lw_ns begin_ns)
{
    capture->turn = turn;
    capture->begin_ns = begin_ns;
    capture->n_samples = capture->n_tasks = capture->n_holders = 0;
    capture->n_nodes = 1; /* the root */
    capture->merged = capture->nodes_lost = 0;
    capture->debugger = false;
    if (++capture->epoch == 0) { /* after 2^32 turns old entries would look new */
        memset(capture->table, 0, sizeof capture->table);
        capture->epoch = 1;
    }
}

void
lw_capture_end(lw_capture *capture)
{
    capture->turn = 0;
}

/* --- the tree --- */

static uint32_t
hash_node(uint32_t parent, const lw_frame *frame)
{
    uint64_t hash = parent * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ frame->code) * UINT64_C(0xC2B2AE3D27D4EB4F);
    hash = (hash ^ (uint32_t)frame->position.lineno) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ (uint32_t)frame->position.colno) * UINT64_C(0xC2B2AE3D27D4EB4F);
    return (uint32_t)(hash >> 32);
}

static bool
same_position(const lw_position *a, const lw_position *b)
{
    return a->lineno == b->lineno && a->end_lineno == b->end_lineno && a->colno == b->colno &&
           a->end_colno == b->end_colno;
}

/* The node of `frame` under `parent`, made where it is not there; LW_NODES_MAX where the tree is
 * full. The table has twice as many places as there are nodes, so that a search always meets a free
 * one. */
static uint32_t
child(lw_capture *capture, uint32_t parent, const lw_frame *frame)
{
    for (uint32_t place = hash_node(parent, frame) & TABLE_MASK;;
         place = (place + 1) & TABLE_MASK) {
        uint64_t entry = capture->table[place];
        if (entry >> 32 != capture->epoch) {
            if (capture->n_nodes == LW_NODES_MAX) {
                return LW_NODES_MAX;
            }
            uint32_t made = capture->n_nodes++;
            capture->nodes[made] = (lw_node){parent, frame->code, frame->position};
            capture->table[place] = (uint64_t)capture->epoch << 32 | made;
            return made;
        }
        const lw_node *node = &capture->nodes[(uint32_t)entry];
        if (node->parent == parent && node->code == frame->code &&
            same_position(&node->position, &frame->position)) {
            return (uint32_t)entry;
        }
    }
}

static uint32_t
add_stack(lw_capture *capture, const lw_snapshot *snapshot)
{
    uint32_t node = LW_NO_NODE;
    for (uint32_t i = snapshot->depth; i-- > 0;) {
        uint32_t next = child(capture, node, &snapshot->frames[i]);
        if (next == LW_NODES_MAX) {
            capture->nodes_lost += i + 1;
            break;
        }
        node = next;
    }
    return node;
}

static int16_t
add_task(lw_capture *capture, const lw_task *task)
{
    if (!task->known || !task->address) {
        return LW_NO_TASK;
    }
    for (uint32_t i = capture->n_tasks; i-- > 0;) { /* mostly the last one */
        const lw_task *seen = &capture->tasks[i];
        if (seen->address == task->address && strcmp(seen->name, task->name) == 0 &&
            strcmp(seen->coroutine, task->coroutine) == 0) {
            return (int16_t)i;
        }
    }
    if (capture->n_tasks == LW_TASKS_MAX) {
        return LW_NO_TASK;
    }
    capture->tasks[capture->n_tasks] = *task;
    return (int16_t)capture->n_tasks++;
}

static int16_t
add_holder(lw_capture *capture, const lw_thread_ref *holder)
{
    for (uint32_t i = capture->n_holders; i-- > 0;) {
        if (capture->holders[i].tid == holder->tid && capture->holders[i].ident == holder->ident) {
            return (int16_t)i;
        }
    }
    if (capture->n_holders == LW_HOLDERS_MAX) {
        return LW_NO_HOLDER;
    }
    capture->holders[capture->n_holders] = (lw_holder){holder->tid, holder->ident};
    return (int16_t)capture->n_holders++;
}

/* --- the samples --- */

static bool
alike(const lw_sample *a, const lw_sample *b)
{
    return a->node == b->node && a->task == b->task && a->holder_node == b->holder_node;
}

/* From half-way to the sample before to half-way to the one behind. */
static lw_ns
span_ns(const lw_capture *capture, uint32_t sample)
{
    lw_ns from_ns = sample ? capture->samples[sample - 1].at_ns : capture->begin_ns;
    lw_ns upto_ns = sample + 1 < capture->n_samples ? capture->samples[sample + 1].at_ns
                                                    : capture->samples[sample].at_ns;
    return upto_ns > from_ns ? (upto_ns - from_ns) / 2 : 0;
}

/* Drops one of two neighbours, so that the other stands for both: in the pair that stands for the
 * least time, one of a kind first, the one that stands for less. Nothing short drives out something
 * long. */
static void
merge_two(lw_capture *capture)
{
    uint32_t best = 0;
    lw_ns best_ns = LW_NS_NEVER;
    for (uint32_t i = 0; i + 1 < capture->n_samples; i++) {
        lw_ns pair_ns = span_ns(capture, i) + span_ns(capture, i + 1);
        if (alike(&capture->samples[i], &capture->samples[i + 1])) {
            pair_ns /= 4;
        }
        if (pair_ns < best_ns) {
            best = i;
            best_ns = pair_ns;
        }
    }
    uint32_t dropped = span_ns(capture, best + 1) > span_ns(capture, best) ? best : best + 1;
    lw_sample *at = &capture->samples[dropped];
    memmove(at, at + 1, (capture->n_samples - dropped - 1) * sizeof *at);
    capture->n_samples--;
    capture->merged++;
}

void
lw_capture_add(lw_capture *capture, const lw_sight *sight)
{
    if (capture->n_samples == LW_SAMPLES_MAX) {
        merge_two(capture);
    }
    const lw_snapshot *snapshot = sight->snapshot;
    capture->debugger |= snapshot->debugger;
    lw_sample *sample = &capture->samples[capture->n_samples++];
    *sample = (lw_sample){
        .at_ns = sight->at_ns,
        .node = snapshot->readable ? add_stack(capture, snapshot) : LW_NO_NODE,
        .truncated = snapshot->truncated,
        .task = add_task(capture, &snapshot->task),
        .holder = LW_NO_HOLDER,
        .quality = (uint8_t)snapshot->quality,
        .evidence = *sight->evidence,
    };
    strncpy(sample->target, sight->target, sizeof sample->target - 1);
    if (sight->holder) {
        sample->holder = add_holder(capture, sight->holder);
        sample->holder_node = add_stack(capture, sight->holder_snapshot);
        sample->holder_truncated = sight->holder_snapshot->truncated;
        sample->holder_quality = (uint8_t)sight->holder_snapshot->quality;
    }
}

void
lw_capture_judge(const lw_capture *capture, const lw_turn_facts *turn,
                 lw_parts parts[LW_SAMPLES_MAX])
{
    const lw_evidence *evidence[LW_SAMPLES_MAX];
    uint32_t n = capture ? capture->n_samples : 0;
    for (uint32_t i = 0; i < n; i++) {
        evidence[i] = &capture->samples[i].evidence;
    }
    lw_judge(turn, evidence, n, parts);
}
