/* Frames of threads by their idents: stacks.h. */
#include "stacks.h"

#include <string.h>

#include "frames/gil.h"
#include "frames/layout.h"

/* Thread states looked at for one question; a list that is longer, or was torn into a ring, ends
 * here. */
#define LW_THREADS_MAX 16384

static bool
is_wanted(uint64_t ident, const lw_threads *wanted)
{
    for (uint32_t i = 0; i < wanted->n; i++) {
        if (wanted->idents[i] == ident) {
            return true;
        }
    }
    return false;
}

static void
add_thread(lw_eye *eye, const lw_thread_ref *thread, lw_capture *capture)
{
    static const lw_evidence nothing;
    lw_snapshot_take(eye->snapper, thread, &eye->snapshot);
    if (!eye->snapshot.readable) {
        return;
    }
    lw_sight sight = {
        .at_ns = lw_now_ns(),
        .snapshot = &eye->snapshot,
        .evidence = &nothing,
        .holder = thread,
        .holder_snapshot = &eye->snapshot,
        .target = "",
    };
    lw_capture_add(capture, &sight);
}

bool
lw_stacks_look(lw_eye *eye, lw_slot *slot, const lw_threads *wanted, lw_capture *capture,
               lw_report *report)
{
    const lw_layout *layout = &lw_the_layout;
    lw_reader *reader = &eye->reader;
    lw_thread_ref thread;
    if (slot->capture != LW_CAPTURE_RAW || !eye->snapper) {
        return false;
    }
    lw_ns now_ns = lw_now_ns();
    lw_capture_begin(capture, 1, now_ns);
    uintptr_t tstate = lw_read_word(reader, wanted->interpreter + layout->interpreter_threads, 0);
    for (uint32_t seen = 0; tstate && seen < LW_THREADS_MAX && capture->n_samples < wanted->n;
         seen++) {
        if (lw_gil_holder_ref(reader, tstate, wanted->interpreter, &thread) &&
            is_wanted(thread.ident, wanted)) {
            add_thread(eye, &thread, capture);
        }
        tstate = lw_read_word(reader, tstate + layout->thread_next, 0);
    }
    memset(eye->parts, 0, sizeof eye->parts);
    *report = (lw_report){
        .kind = LW_RECORD_CAPTURE,
        .slot = slot,
        .begin_ns = now_ns,
        .end_ns = now_ns,
        .capture = capture,
        .parts = eye->parts,
        .totals = {.gc_generation = -1, .callbacks = -1, .syscall = -1},
    };
    return true;
}
