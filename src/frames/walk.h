/* One walk along a thread's frames, from the innermost out. Without the GIL. */
#ifndef LW_WALK_H
#define LW_WALK_H

#include "code.h"
#include "layout.h"
#include "snapshot.h"
#include "view.h"

typedef struct lw_walk_frame {
    uintptr_t address;
    uint32_t code;
    int32_t instruction;
} lw_walk_frame;

typedef struct lw_walk {
    bool readable; /* the thread is there: its state was read, and is that thread's */
    bool whole;    /* the walk came to the outermost frame */
    bool torn;     /* left out a frame that is being torn down */
    bool cut; /* ended at a generator, whose link to its caller is gone for a moment when it ends:
                 not whole */
    uint32_t total; /* frames seen */
    bool loop_known;
    uintptr_t loop;
    lw_task task;
    bool in_turn; /* met a frame of asyncio's _run_once; of the innermost one: */
    int32_t turn_callbacks, turn_callback;
    /* The innermost LW_INNER_MAX, then a ring of the last LW_OUTER_MAX seen beyond them. */
    lw_walk_frame frames[LW_FRAMES_MAX];
} lw_walk;

/* Fills `walk`; counts what it meets. */
void lw_walk_take(lw_view *view, lw_codes *codes, lw_snap_counts *counts,
                  const lw_thread_ref *thread, lw_walk *walk);

/* With the GIL, where lw_frames_setup agreed: the frame of the calling thread that a walk would
 * meet first; 0: none. */
uintptr_t lw_walk_top_here(void);

/* The frame with `index` from the innermost one (0); NULL where it was not kept. */
const lw_walk_frame *lw_walk_frame_at(const lw_walk *walk, uint32_t index);

/* Reads the head of the thread's state and checks that it is that thread's; `current` is the
 * address of its newest frame, 0: none. */
bool lw_walk_begin(lw_view *view, const lw_thread_ref *thread, lw_raw_thread *out,
                   uintptr_t *current);

#endif
