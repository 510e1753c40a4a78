/* Snapshots: how many walks it takes, and how sure the result is.
 *
 * A walk is exact where the thread did not run meanwhile: the thread's CPU clock, read before and
 * after it, stood still. Two equal walks in a row are no proof, since a thread that recurses comes
 * back to the same stack, but good evidence: consistent. After three walks only what all of them
 * share is kept, the outer part: moving. In all comparisons the innermost frame may have gone on to
 * another instruction; the one that is shown was read with the rest of its walk.
 *
 * Names are read in the walk, positions after it, for the frames that are shown. Everything a
 * snapper needs is allocated in lw_snapper_new(), about 4 MB, of which the pages that are never
 * used stay the kernel's.
 */
#include <Python.h>

#include "snapshot.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "code.h"
#include "task.h"
#include "view.h"
#include "walk.h"

#define WALKS_MAX 3 /* whole walks of one snapshot */
#define TRIES_MAX 6 /* walks altogether, with those that met something torn and broke off */

/* Where the last glance looked. */
typedef struct glanced {
    uintptr_t tstate;  /* 0: nowhere yet */
    uintptr_t current; /* as the thread state says: the frame, or what leads to it */
    uintptr_t frame;
    uintptr_t instruction;
} glanced;

struct lw_snapper {
    lw_reader *reader;
    glanced glanced;
    lw_view *view;
    lw_codes *codes;
    lw_snap_counts counts;
    lw_walk walks[2]; /* the one before and the one now */
};

/* --- with the GIL --- */

void
lw_thread_ref_here(lw_thread_ref *ref)
{
    PyThreadState *tstate = PyThreadState_Get();
    *ref = (lw_thread_ref){
        .tstate = (uintptr_t)tstate,
        .interpreter = (uintptr_t)PyThreadState_GetInterpreter(tstate),
        .tid = gettid(),
        .ident = PyThread_get_thread_ident(),
    };
    ref->has_cpu_clock = pthread_getcpuclockid(pthread_self(), &ref->cpu_clock) == 0;
}

uintptr_t
lw_snapshot_top_here(void)
{
    return lw_frames_reason()
               ? 0
               : lw_walk_top_here(); /* plain loads: only by a layout that was tested */
}

lw_snapper *
lw_snapper_new(lw_reader *reader)
{
    lw_snapper *snapper = calloc(1, sizeof *snapper);
    if (!snapper) {
        return NULL;
    }
    snapper->reader = reader;
    snapper->view = lw_view_new(reader);
    snapper->codes = lw_codes_new(reader, &snapper->counts);
    if (!snapper->view || !snapper->codes) {
        lw_snapper_free(snapper);
        return NULL;
    }
    return snapper;
}

void
lw_snapper_free(lw_snapper *snapper)
{
    if (snapper) {
        lw_view_free(snapper->view);
        lw_codes_free(snapper->codes);
        free(snapper);
    }
}

/* --- comparing walks --- */

static bool
same_activation(const lw_walk_frame *a, const lw_walk_frame *b)
{
    return a->address == b->address && a->code == b->code;
}

/* How many frames, from the outermost one in, two whole walks share. Frames that were not kept are
 * not compared: those on both sides of them are. The innermost shared one may have moved to another
 * instruction. */
static uint32_t
shared_frames(const lw_walk *a, const lw_walk *b)
{
    uint32_t most = a->total < b->total ? a->total : b->total;
    uint32_t shared = 0;
    while (shared < most) {
        const lw_walk_frame *one = lw_walk_frame_at(a, a->total - 1 - shared);
        const lw_walk_frame *two = lw_walk_frame_at(b, b->total - 1 - shared);
        if (one && two) {
            if (!same_activation(one, two)) {
                break;
            }
            if (one->instruction != two->instruction) {
                return shared + 1;
            }
        }
        shared++;
    }
    return shared;
}

static bool
same_task(const lw_walk *a, const lw_walk *b)
{
    return a->loop_known == b->loop_known && a->loop == b->loop && a->task.known == b->task.known &&
           a->task.address == b->task.address;
}

static bool
agree(const lw_walk *a, const lw_walk *b)
{
    return a->total == b->total && shared_frames(a, b) == a->total && same_task(a, b);
}

/* --- the result --- */

/* The frames of a walk without its innermost `skip` ones. */
static void
show_frames(lw_snapper *snapper, const lw_walk *walk, uint32_t skip, lw_snapshot *out)
{
    for (uint32_t i = skip; i < walk->total; i++) {
        const lw_walk_frame *frame = lw_walk_frame_at(walk, i);
        if (!frame) {
            out->truncated++;
            continue;
        }
        lw_frame *shown = &out->frames[out->depth++];
        shown->code = frame->code;
        shown->instruction = frame->instruction;
        lw_codes_position(snapper->codes, frame->code, frame->instruction, &shown->position);
        out->debugger |= lw_codes_is_debugger(snapper->codes, frame->code);
    }
    out->readable = true;
}

static void
show(lw_snapper *snapper, const lw_walk *walk, uint32_t skip, lw_quality quality, lw_snapshot *out)
{
    show_frames(snapper, walk, skip, out);
    out->quality = quality;
    out->loop = walk->loop;
    out->loop_known = walk->loop_known;
    out->task = walk->task;
    out->top_frame =
        walk->total ? walk->frames[0].address : 0; /* also where it is not shown, since it moves */
    out->turn_callbacks = walk->turn_callbacks;
    out->turn_callback = walk->turn_callback;
}

/* The thread's CPU clock; 0 where there is none, or no such thread. */
static lw_ns
cpu_ns(const lw_thread_ref *thread)
{
    return thread->has_cpu_clock ? lw_clock_ns(thread->cpu_clock) : 0;
}

/* Walks until it is sure, or WALKS_MAX times. What is torn at the moment makes a walk break off,
 * most often at its first frame; that costs little and does not count as one of them. */
static void
look(lw_snapper *snapper, const lw_thread_ref *thread, lw_snapshot *out)
{
    lw_walk *now = &snapper->walks[0];
    lw_walk *before = NULL; /* the last whole walk before `now` */
    uint32_t shared =
        UINT32_MAX;       /* frames that all whole walks so far have, from the outermost in */
    bool one_task = true; /* and whether all found the same task */
    bool stood = false;
    lw_ns begin_ns = cpu_ns(thread);
    if (thread->has_cpu_clock && !begin_ns) {
        return; /* the thread is gone; what its state's memory says is old */
    }
    for (int tries = 0, whole = 0; tries < TRIES_MAX && whole < WALKS_MAX; tries++) {
        lw_walk_take(snapper->view, snapper->codes, &snapper->counts, thread, now);
        if (!now->readable) {
            return;
        }
        lw_ns end_ns = cpu_ns(thread);
        stood = begin_ns && begin_ns == end_ns;
        begin_ns = end_ns;
        if (!now->whole || (!now->total && !stood)) {
            continue; /* the entry frame of a call that was just over: it has a link to nothing */
        }
        whole++;
        if (stood) {
            show(snapper, now, 0, LW_EXACT, out);
            return;
        }
        if (before && !now->torn && agree(before, now)) {
            show(snapper, now, 0, LW_CONSISTENT, out);
            return;
        }
        if (before) {
            uint32_t n = shared_frames(before, now);
            shared = n < shared ? n : shared;
            one_task = one_task && same_task(before, now);
        }
        before = now;
        now = now == &snapper->walks[0] ? &snapper->walks[1] : &snapper->walks[0];
    }
    if (before && shared != UINT32_MAX) {
        show(snapper, before, before->total - shared, LW_MOVING, out);
        if (!one_task) {
            out->loop = 0;
            out->loop_known = false;
            memset(&out->task, 0, sizeof out->task);
        }
    }
    else if (stood && now->total) {
        show(snapper, now, 0, LW_MOVING, out); /* at rest, and yet unreadable further out */
    }
}

/* --- without the GIL --- */

void
lw_snapshot_clear(lw_snapshot *out)
{
    memset(out, 0, offsetof(lw_snapshot, frames));
    out->turn_callbacks = out->turn_callback = -1;
}

static void
count_snapshot(lw_snap_counts *counts, const lw_snapshot *snapshot)
{
    counts->snapshots++;
    if (!snapshot->depth) {
        counts->unreadable++;
        return;
    }
    switch (snapshot->quality) {
    case LW_EXACT:
        counts->exact++;
        break;
    case LW_CONSISTENT:
        counts->consistent++;
        break;
    case LW_MOVING:
        counts->moving++;
        break;
    }
}

void
lw_snapshot_take(lw_snapper *snapper, const lw_thread_ref *thread, lw_snapshot *out)
{
    lw_snapshot_clear(out);
    look(snapper, thread, out);
    count_snapshot(&snapper->counts, out);
}

/* A walk that met something torn broke off, most often at its first frame; the next one starts
 * anew. */
void
lw_snapshot_take_once(lw_snapper *snapper, const lw_thread_ref *thread, lw_snapshot *out)
{
    lw_walk *walk = &snapper->walks[0];
    lw_snapshot_clear(out);
    lw_ns begin_ns = cpu_ns(thread);
    bool gone = thread->has_cpu_clock && !begin_ns;
    for (int tries = 0; tries < TRIES_MAX && !gone; tries++) {
        lw_walk_take(snapper->view, snapper->codes, &snapper->counts, thread, walk);
        gone = !walk->readable;
        if (!gone && walk->whole && walk->total) {
            bool stood = begin_ns && tries == 0 && cpu_ns(thread) == begin_ns;
            show(snapper, walk, 0, stood ? LW_EXACT : LW_MOVING, out);
            break;
        }
    }
    count_snapshot(&snapper->counts, out);
}

/* In one call where the thread is still in the frame of the last glance: the copies of what was
 * there then count only where the thread state, read with them, leads there again. */
uint64_t
lw_snapshot_glance(lw_snapper *snapper, const lw_thread_ref *thread)
{
    const lw_layout *layout = &lw_the_layout;
    glanced *last = &snapper->glanced;
    char copy[LW_THREAD_COPY_MAX];
    lw_raw_thread raw;
    uintptr_t frame = 0, instruction;
    lw_segment segments[3] = {{thread->tstate, copy, layout->thread_length}};
    size_t n = 1;
    if (last->tstate == thread->tstate) {
        if (layout->current_in_cframe) {
            segments[n++] =
                (lw_segment){last->current + layout->cframe_current, &frame, sizeof frame};
        }
        segments[n++] =
            (lw_segment){last->frame + layout->frame_instruction, &instruction, sizeof instruction};
    }
    size_t got = lw_read_batch(snapper->reader, segments, n);
    if (!got) {
        return 0;
    }
    lw_layout_read_thread(copy, &raw);
    if (raw.ident != thread->ident || raw.tid != (unsigned long)thread->tid) {
        return 0;
    }
    bool same_place = n > 1 && raw.current == last->current;
    if (!layout->current_in_cframe) {
        frame = raw.current;
    }
    else if (!same_place || got < 2) {
        frame = lw_read_word(snapper->reader, raw.current + layout->cframe_current, 0);
    }
    bool same_frame = n > 1 && got == n && frame == last->frame;
    if (!frame || (!same_frame && !lw_read(snapper->reader, frame + layout->frame_instruction,
                                           &instruction, sizeof instruction))) {
        return 0;
    }
    *last = (glanced){thread->tstate, raw.current, frame, instruction};
    uint64_t folded = (uint64_t)frame * 0x9E3779B97F4A7C15u ^ (uint64_t)instruction;
    return folded ? folded : 1;
}

/* All in one batch, which the kernel reads one after the other: that makes a look cost some 40 ns. */
uint32_t
lw_snapshot_leaves(lw_snapper *snapper)
{
    const glanced *last = &snapper->glanced;
    uintptr_t looks[LW_LEAVES_LOOKS];
    lw_segment segments[LW_LEAVES_LOOKS];
    for (size_t i = 0; i < LW_LEAVES_LOOKS; i++) {
        segments[i] =
            (lw_segment){last->frame + lw_the_layout.frame_instruction, &looks[i], sizeof looks[i]};
    }
    size_t n = lw_read_batch(snapper->reader, segments, LW_LEAVES_LOOKS);
    uint32_t leaves = 0;
    for (size_t i = 1; i < n; i++) {
        leaves += looks[i - 1] == last->instruction && looks[i] != last->instruction;
    }
    return leaves;
}

const lw_code *
lw_code_get(const lw_snapper *snapper, uint32_t id)
{
    return lw_codes_get(snapper->codes, id);
}

bool
lw_codes_want_flush(const lw_snapper *snapper)
{
    return lw_codes_nearly_full(snapper->codes);
}

void
lw_codes_flush(lw_snapper *snapper)
{
    lw_codes_clear(snapper->codes);
}

const lw_snap_counts *
lw_snap_counts_get(const lw_snapper *snapper)
{
    return &snapper->counts;
}
