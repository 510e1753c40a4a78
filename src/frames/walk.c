/* One walk: thread state, newest frame, and along `previous` to the outermost one.
 *
 * The thread may run meanwhile, so each step checks what it got before it goes on: an owner that is
 * in the enum, a code object by its type, an instruction within its code, a frame that was not met
 * before, and in a chunk of the data stack one that lies below its successor. What fails ends the
 * walk, as not whole. Whether a whole walk is to be believed is decided by the caller (snapshot.c),
 * who knows whether the thread ran.
 */
#include "walk.h"

#include <Python.h>

#include "task.h"
#include "turn.h"

#define UNIT_BYTES 2

/* What became of one frame. */
typedef enum step {
    STEP_KEPT,    /* a frame of the program */
    STEP_SKIPPED, /* the interpreter's own, or not begun yet */
    STEP_TORN,    /* being torn down: left out, look again */
    STEP_BAD,     /* not a frame */
} step;

const lw_walk_frame *
lw_walk_frame_at(const lw_walk *walk, uint32_t index)
{
    if (index < LW_INNER_MAX) {
        return &walk->frames[index];
    }
    if (walk->total - index > LW_OUTER_MAX) {
        return NULL;
    }
    return &walk->frames[LW_INNER_MAX + (index - LW_INNER_MAX) % LW_OUTER_MAX];
}

static void
keep(lw_walk *walk, uintptr_t address, uint32_t code, int32_t instruction)
{
    uint32_t index = walk->total++;
    uint32_t place =
        index < LW_INNER_MAX ? index : LW_INNER_MAX + (index - LW_INNER_MAX) % LW_OUTER_MAX;
    walk->frames[place] = (lw_walk_frame){address, code, instruction};
}

/* In bytes from the code's first instruction. */
static int64_t
instruction_offset(const lw_raw_frame *frame)
{
    return (int64_t)(frame->instruction - frame->executable - lw_the_layout.code_instructions);
}

/* As the interpreter's own _PyFrame_IsIncomplete, on the copies. */
static bool
is_incomplete(const lw_raw_frame *frame, const lw_raw_code *code, int64_t offset)
{
    return frame->owner != LW_OWNER_GENERATOR &&
           offset < (int64_t)code->firsttraceable * UNIT_BYTES;
}

static step
look_at_code(lw_view *view, lw_codes *codes, uintptr_t address, const lw_raw_frame *frame,
             lw_walk *walk)
{
    lw_piece *piece;
    lw_raw_code code;
    if (!frame->executable) {
        return frame->previous ? STEP_TORN : STEP_BAD; /* both null: not begun, or gone */
    }
    const char *copy = lw_view_get(view, frame->executable, lw_the_layout.code_length, &piece);
    if (!copy) {
        return STEP_BAD;
    }
    lw_layout_read_code(copy, frame->executable, &code);
    if (code.type != lw_the_layout.code_type) {
        return STEP_BAD;
    }
    /* Before the first instruction by one unit: a frame that was just made, on 3.11 and 3.12. */
    int64_t offset = instruction_offset(frame);
    if (offset < -UNIT_BYTES || offset >= code.identity.size * UNIT_BYTES || offset % UNIT_BYTES) {
        return STEP_BAD;
    }
    if (is_incomplete(frame, &code, offset)) {
        return STEP_SKIPPED;
    }
    uint32_t id = piece && piece->tag ? piece->tag - 1 : lw_codes_resolve(codes, &code.identity);
    if (piece) {
        piece->tag = id + 1; /* one look into the cache for all frames of this code */
    }
    keep(walk, address, id, (int32_t)offset);
    if (!walk->in_turn && lw_turn_is(frame->executable)) {
        walk->in_turn = true;
        lw_turn_read(view, address, &walk->turn_callbacks, &walk->turn_callback);
    }
    return STEP_KEPT;
}

static step
look_at_frame(lw_view *view, lw_codes *codes, uintptr_t address, lw_walk *walk, uintptr_t *previous)
{
    lw_piece *piece;
    lw_raw_frame frame;
    if (address % sizeof(uintptr_t)) {
        return STEP_BAD;
    }
    const char *copy = lw_view_get_frame(view, address, &piece);
    if (!copy) {
        return STEP_BAD;
    }
    if (piece) {
        if (piece->tag) {
            return STEP_BAD; /* met before: the chain is a ring */
        }
        piece->tag = 1;
    }
    lw_layout_read_frame(copy, &frame);
    if (!piece && lw_view_on_stack(view, frame.previous) && frame.previous >= address) {
        return STEP_BAD; /* the data stack grows upwards */
    }
    *previous = frame.previous;
    walk->cut = frame.owner == LW_OWNER_GENERATOR && !frame.previous;
    switch (frame.owner) {
    case LW_OWNER_STACK:
    case LW_OWNER_GENERATOR:
        return look_at_code(view, codes, address, &frame, walk);
    case LW_OWNER_SKIP:
        return STEP_SKIPPED;
    case LW_OWNER_BAD:
        break;
    }
    return STEP_BAD;
}

bool
lw_walk_begin(lw_view *view, const lw_thread_ref *thread, lw_raw_thread *out, uintptr_t *current)
{
    const lw_layout *layout = &lw_the_layout;
    char copy[LW_THREAD_COPY_MAX];
    if (!lw_view_begin(view, thread->tstate, copy)) {
        return false;
    }
    lw_layout_read_thread(copy, out);
    if (out->interpreter != thread->interpreter || out->ident != thread->ident ||
        out->tid != (unsigned long)thread->tid) {
        return false;
    }
    *current = out->current;
    if (layout->current_in_cframe) {
        lw_piece *piece;
        const char *word =
            lw_view_get(view, out->current + layout->cframe_current, sizeof(uintptr_t), &piece);
        if (!word) {
            return false;
        }
        *current = lw_word_at(word, 0);
    }
    return true;
}

static void
read_task(lw_view *view, const lw_thread_ref *thread, lw_walk *walk)
{
    lw_reader *reader = lw_view_reader(view);
    walk->loop_known = lw_task_loop(reader, thread->tstate, &walk->loop);
    if (walk->loop_known) {
        lw_task_read(reader, thread->tstate, walk->loop, &walk->task);
    }
}

void
lw_walk_take(lw_view *view, lw_codes *codes, lw_snap_counts *counts, const lw_thread_ref *thread,
             lw_walk *walk)
{
    lw_raw_thread raw;
    uintptr_t address;
    memset(walk, 0, offsetof(lw_walk, frames));
    walk->turn_callbacks = walk->turn_callback = -1;
    counts->walks++;
    if (!lw_walk_begin(view, thread, &raw, &address)) {
        return;
    }
    walk->readable = true;
    lw_view_set_stack(view, raw.chunk, raw.top);
    for (uint32_t i = 0; address; i++) {
        uintptr_t previous = 0;
        if (i == LW_WALK_MAX) {
            counts->endless++;
            return;
        }
        step taken = look_at_frame(view, codes, address, walk, &previous);
        if (taken == STEP_BAD) {
            counts->broken++;
            return;
        }
        walk->torn |= taken == STEP_TORN;
        address = previous;
    }
    walk->whole = !walk->cut;
    read_task(view, thread, walk);
    lw_view_learn(view);
}

/* --- with the GIL --- */

/* Memory of the calling thread's own frames and their code: nobody else changes it, so it is read
 * as it is. */
uintptr_t
lw_walk_top_here(void)
{
    const lw_layout *layout = &lw_the_layout;
    uintptr_t address = lw_word_at((const char *)PyThreadState_Get(), layout->thread_current);
    if (layout->current_in_cframe) {
        address = lw_word_at((const char *)address, layout->cframe_current);
    }
    while (address) {
        lw_raw_frame frame;
        lw_raw_code code;
        lw_layout_read_frame((const char *)address, &frame);
        if (frame.owner != LW_OWNER_SKIP && frame.owner != LW_OWNER_BAD && frame.executable) {
            lw_layout_read_code((const char *)frame.executable, frame.executable, &code);
            if (!is_incomplete(&frame, &code, instruction_offset(&frame))) {
                return address;
            }
        }
        address = frame.previous;
    }
    return 0;
}
