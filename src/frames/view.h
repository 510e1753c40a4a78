/* What one walk has seen: copies of the pieces of memory it looked at, each read once.
 *
 * Frames of awaited coroutines lie in the coroutine objects, and each is known only from the one
 * above it. Reading them one by one costs a call each, so a walk first reads, in one batch,
 * everything that the last walk of the same thread looked at. That is only a guess of addresses:
 * all bytes a walk uses are read in that walk, a piece that was not guessed is read when it is
 * asked for, and one that was guessed wrong is never asked for.
 *
 * Runs without the GIL, on the snapper's thread; allocates nothing after lw_view_new().
 */
#ifndef LW_VIEW_H
#define LW_VIEW_H

#include "layout.h"
#include "snapshot.h"

#define LW_PIECES_MAX                                                                              \
    2048u /* pieces kept in one walk; what is beyond is read each time it is asked for */
#define LW_GUESS_MAX 400u            /* pieces guessed */
#define LW_GUESSES 8u                /* threads whose guesses are kept */
#define LW_WINDOW_BYTES (96u * 1024) /* of the data-stack chunk that is copied */
#define LW_PIECE_BYTES_MAX LW_CODE_COPY_MAX

/* A copy of foreign memory. */
typedef struct lw_piece {
    uintptr_t address;
    uint32_t length; /* 0: none */
    uint32_t offset; /* of the copy */
    uint32_t tag;    /* the walk's own, 0 at first */
} lw_piece;

typedef struct lw_view lw_view;

lw_view *lw_view_new(lw_reader *reader);
void lw_view_free(lw_view *view);

/* A new walk of the thread whose PyThreadState is at `tstate`: forgets all copies, then reads the
 * head of the thread state into `thread` and, with it, what was guessed. False where the thread
 * state cannot be read. */
bool lw_view_begin(lw_view *view, uintptr_t tstate, char thread[LW_THREAD_COPY_MAX]);

/* The copy of a piece, at most LW_PIECE_BYTES_MAX long; NULL where it cannot be read. Valid until
 * the next call. `piece` may be NULL; else it is set to the piece's record, or NULL where there was
 * no room to keep it. */
const char *lw_view_get(lw_view *view, uintptr_t address, uint32_t length, lw_piece **piece);

/* The same for an address that may lie on the thread's data stack, whose newest chunk and used part
 * are given: copies whole chunks. A frame, up to its locals, and anything else. */
const char *lw_view_get_stack(lw_view *view, uintptr_t address, uint32_t length, lw_piece **piece);
const char *lw_view_get_frame(lw_view *view, uintptr_t address, lw_piece **piece);
void lw_view_set_stack(lw_view *view, uintptr_t chunk, uintptr_t top);

/* A reader for whoever reads objects one by one in a walk, as the task's are: what it reads are
 * pieces, and so in the guess for the next walk. Between lw_view_begin() and lw_view_learn() only.
 */
lw_reader *lw_view_reader(lw_view *view);

/* The address lies in the part of the data stack that is copied at the moment. */
bool lw_view_on_stack(const lw_view *view, uintptr_t address);

/* The walk is over and was whole: what it looked at is the next guess for this thread. */
void lw_view_learn(lw_view *view);

#endif
