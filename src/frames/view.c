/* The copies of one walk, and the guesses for the next.
 *
 * Pieces are found through an open-addressing table by address; it is emptied by counting `walk`
 * up. The data stack is a list of chunks, newest first, of 16 KiB or more each; its frames grow
 * upwards and a walk goes down, so one window is enough: the part in use of one chunk, replaced by
 * the next older one when a frame lies there.
 */
#include "view.h"

#include <assert.h>
#include <stdlib.h>

#define CELLS (LW_PIECES_MAX * 2)
#define COPY_BYTES (LW_PIECES_MAX * 192u)
#define BAD_GUESSES_MAX 8 /* guesses that cannot be read before the rest of a batch is given up */
#define WINDOW_SLACK 512u /* bytes copied beyond what was in use last time */

static_assert((CELLS & (CELLS - 1)) == 0, "masks");
static_assert(LW_GUESS_MAX + 2 <= LW_BATCH_MAX, "a guess is one batch");
static_assert(LW_GUESS_MAX * LW_PIECE_BYTES_MAX + LW_WINDOW_BYTES + LW_THREAD_COPY_MAX <=
                  LW_READ_MAX,
              "a guess is one batch");

typedef struct wanted {
    uintptr_t address;
    uint32_t length;
} wanted;

/* What the last whole walk of a thread looked at. */
typedef struct guess {
    uintptr_t tstate; /* 0: free */
    uint64_t used;    /* walk that it was learned in, to replace the oldest */
    uintptr_t chunk;
    uint32_t chunk_used; /* bytes from the chunk's start */
    uint32_t n;
    wanted pieces[LW_GUESS_MAX];
} guess;

/* Of the table: one line of memory for all that is asked about a piece. */
typedef struct cell {
    uint64_t walk; /* that wrote it; in any other it is free */
    lw_piece piece;
    uint32_t place; /* index in order[] */
} cell;

typedef struct window {
    uintptr_t address;
    uint32_t length; /* bytes copied; 0: none */
    char copy[LW_WINDOW_BYTES];
} window;

struct lw_view {
    lw_reader *reader;
    lw_reader pieces_reader; /* lw_view_reader() */
    uint64_t walk;           /* counts walks */
    uintptr_t tstate;
    guess *current; /* of tstate, or NULL */
    window stack;
    uintptr_t newest;     /* the thread's newest chunk */
    uint32_t newest_used; /* bytes in use, from its start */
    size_t newest_size;   /* of the chunk, as its header says */
    uintptr_t older;      /* the chunk below the window's, 0: none */
    lw_raw_chunk older_header;
    bool older_known; /* older_header was read */
    uint32_t n_pieces;
    uint32_t copied;               /* bytes of copies[] */
    uint32_t order[LW_PIECES_MAX]; /* cells, as asked for or guessed */
    bool asked[LW_PIECES_MAX];     /* the walk looked at order[i] */
    cell cells[CELLS];
    char copies[COPY_BYTES];
    char scratch[LW_PIECE_BYTES_MAX];
    guess guesses[LW_GUESSES];
};

static size_t read_pieces(lw_reader *reader, const lw_segment *segments, size_t n);

lw_view *
lw_view_new(lw_reader *reader)
{
    lw_view *view = calloc(1, sizeof *view);
    if (view) {
        view->reader = reader;
        view->pieces_reader = (lw_reader){.read = read_pieces, .context = view};
    }
    return view;
}

void
lw_view_free(lw_view *view)
{
    free(view);
}

/* The cell of an address in this walk: its own, or the free one where it would go. */
static cell *
find_cell(lw_view *view, uintptr_t address)
{
    uint32_t i = (uint32_t)((uint64_t)address * 0x9E3779B97F4A7C15u >> 40) & (CELLS - 1);
    while (view->cells[i].walk == view->walk && view->cells[i].piece.address != address) {
        i = (i + 1) & (CELLS - 1);
    }
    return &view->cells[i];
}

/* Room for a copy; NULL where there is none left. The cell is taken by commit() once the copy is
 * made. */
static char *
reserve(lw_view *view, uint32_t length)
{
    bool room = view->n_pieces < LW_PIECES_MAX && length <= COPY_BYTES - view->copied;
    return room ? view->copies + view->copied : NULL;
}

static lw_piece *
commit(lw_view *view, cell *into, uintptr_t address, uint32_t length, uint32_t offset, bool asked)
{
    *into = (cell){view->walk, {address, length, offset, 0}, view->n_pieces};
    view->order[view->n_pieces] = (uint32_t)(into - view->cells);
    view->asked[view->n_pieces] = asked;
    view->n_pieces++;
    return &into->piece;
}

static guess *
find_guess(lw_view *view, uintptr_t tstate)
{
    for (size_t i = 0; i < LW_GUESSES; i++) {
        if (view->guesses[i].tstate == tstate) {
            return &view->guesses[i];
        }
    }
    return NULL;
}

/* Reads the segments, stepping over those that cannot be read; got[i] says which were. */
static void
read_guessed(lw_view *view, const lw_segment *segments, uint32_t n, bool *got)
{
    uint32_t bad = 0;
    uint32_t i = 0;
    while (i < n && bad <= BAD_GUESSES_MAX) {
        uint32_t read = (uint32_t)lw_read_batch(view->reader, segments + i, n - i);
        read = read < n - i ? read : n - i;
        memset(got + i, true, read);
        i += read + 1; /* the one that it stopped at stays false */
        bad++;
    }
}

/* The guessed pieces that could be read become copies of this walk. */
static void
adopt_guessed(lw_view *view, const lw_segment *segments, const bool *got, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        cell *at = find_cell(view, segments[i].address);
        if (got[i] && at->walk != view->walk) {
            uint32_t offset = (uint32_t)((char *)segments[i].copy - view->copies);
            commit(view, at, segments[i].address, (uint32_t)segments[i].length, offset, false);
        }
        view->copied += (uint32_t)segments[i].length;
    }
}

static void
forget(lw_view *view, uintptr_t tstate)
{
    view->walk++;
    view->tstate = tstate;
    view->current = find_guess(view, tstate);
    view->n_pieces = view->copied = view->stack.length = 0;
    view->newest = view->older = 0;
    view->older_known = false;
}

bool
lw_view_begin(lw_view *view, uintptr_t tstate, char thread[LW_THREAD_COPY_MAX])
{
    lw_segment segments[LW_GUESS_MAX + 2];
    bool got[LW_GUESS_MAX + 2] = {false};
    forget(view, tstate);
    const guess *expected = view->current;
    bool has_chunk = expected && expected->chunk_used;
    uint32_t first = has_chunk ? 2 : 1; /* piece */
    uint32_t n = first;
    segments[0] = (lw_segment){tstate, thread, lw_the_layout.thread_length};
    if (has_chunk) {
        segments[1] = (lw_segment){expected->chunk, view->stack.copy, expected->chunk_used};
    }
    uint32_t offset = 0;
    for (uint32_t i = 0; expected && i < expected->n; i++) {
        const wanted *piece = &expected->pieces[i];
        segments[n++] = (lw_segment){piece->address, view->copies + offset, piece->length};
        offset += piece->length;
    }
    read_guessed(view, segments, n, got);
    if (has_chunk && got[1]) {
        view->stack.address = expected->chunk;
        view->stack.length = expected->chunk_used;
    }
    adopt_guessed(view, segments + first, got + first, n - first);
    return got[0];
}

const char *
lw_view_get(lw_view *view, uintptr_t address, uint32_t length, lw_piece **piece)
{
    lw_piece *none;
    piece = piece ? piece : &none;
    *piece = NULL;
    assert(length <= LW_PIECE_BYTES_MAX);
    cell *at = find_cell(view, address);
    if (at->walk == view->walk) {
        if (at->piece.length >= length) {
            view->asked[at->place] = true;
            *piece = &at->piece;
            return view->copies + at->piece.offset;
        }
        /* The address was something shorter before: kept as it is, this one is not. */
        return lw_read(view->reader, address, view->scratch, length) ? view->scratch : NULL;
    }
    char *copy = reserve(view, length);
    if (!copy) {
        return lw_read(view->reader, address, view->scratch, length) ? view->scratch : NULL;
    }
    if (!lw_read(view->reader, address, copy, length)) {
        return NULL;
    }
    *piece = commit(view, at, address, length, view->copied, true);
    view->copied += length;
    return copy;
}

/* As a backend of reads. What is too long for a piece is read past the view. */
static size_t
read_pieces(lw_reader *reader, const lw_segment *segments, size_t n)
{
    lw_view *view = reader->context;
    for (size_t i = 0; i < n; i++) {
        const lw_segment *segment = &segments[i];
        if (segment->length > LW_PIECE_BYTES_MAX) {
            if (!lw_read(view->reader, segment->address, segment->copy, segment->length)) {
                return i;
            }
            continue;
        }
        const char *copy = lw_view_get(view, segment->address, (uint32_t)segment->length, NULL);
        if (!copy) {
            return i;
        }
        memcpy(segment->copy, copy, segment->length);
    }
    return n;
}

lw_reader *
lw_view_reader(lw_view *view)
{
    view->pieces_reader.backend = view->reader->backend;
    return &view->pieces_reader;
}

/* --- the data stack --- */

static bool
in_window(const lw_view *view, uintptr_t address, uint32_t length)
{
    const window *stack = &view->stack;
    return stack->length >= length && address >= stack->address &&
           address - stack->address <= stack->length - length;
}

bool
lw_view_on_stack(const lw_view *view, uintptr_t address)
{
    return in_window(view, address, 1);
}

/* Copies the first `used` bytes of a chunk. */
static void
load_window(lw_view *view, uintptr_t chunk, size_t used)
{
    window *stack = &view->stack;
    uint32_t length = used < LW_WINDOW_BYTES ? (uint32_t)used : LW_WINDOW_BYTES;
    stack->address = chunk;
    stack->length =
        length >= sizeof(lw_raw_chunk) && lw_read(view->reader, chunk, stack->copy, length) ? length
                                                                                            : 0;
}

/* The header of the window's chunk; all 0 where nothing was copied. */
static lw_raw_chunk
window_header(const lw_view *view)
{
    lw_raw_chunk header = {0};
    if (view->stack.length >= sizeof header) {
        memcpy(&header, view->stack.copy, sizeof header);
    }
    return header;
}

static void
set_older(lw_view *view, const lw_raw_chunk *header)
{
    view->older = header->previous;
    view->older_known = false;
}

void
lw_view_set_stack(lw_view *view, uintptr_t chunk, uintptr_t top)
{
    size_t used = chunk && top > chunk ? top - chunk : 0;
    view->newest = chunk;
    view->newest_used = used < LW_WINDOW_BYTES ? (uint32_t)used : LW_WINDOW_BYTES;
    if (view->stack.length < view->newest_used || view->stack.address != chunk) {
        load_window(view, chunk, used);
    }
    lw_raw_chunk header = window_header(view);
    view->newest_size = header.size;
    set_older(view, &header);
}

/* Whether the address lies in the chunk below the window's, whose header is read for that, once. */
static bool
in_older(lw_view *view, uintptr_t address)
{
    if (!view->older) {
        return false;
    }
    if (!view->older_known) {
        if (!lw_read(view->reader, view->older, &view->older_header, sizeof view->older_header)) {
            view->older = 0;
            return false;
        }
        view->older_known = true;
    }
    return address >= view->older && address - view->older < view->older_header.size;
}

const char *
lw_view_get_stack(lw_view *view, uintptr_t address, uint32_t length, lw_piece **piece)
{
    if (piece) {
        *piece = NULL;
    }
    if (!in_window(view, address, length) && in_older(view, address)) {
        size_t top = view->older_header.top;
        size_t most = view->older_header.size / sizeof(uintptr_t);
        load_window(view, view->older,
                    sizeof(lw_raw_chunk) + (top < most ? top : most) * sizeof(uintptr_t));
        lw_raw_chunk header = window_header(view);
        set_older(view, &header);
    }
    if (in_window(view, address, length)) {
        return view->stack.copy + (address - view->stack.address);
    }
    return lw_view_get(view, address, length, piece);
}

const char *
lw_view_get_frame(lw_view *view, uintptr_t address, lw_piece **piece)
{
    return lw_view_get_stack(view, address, lw_the_layout.frame_length, piece);
}

/* --- learning --- */

static guess *
oldest_guess(lw_view *view)
{
    guess *oldest = &view->guesses[0];
    for (size_t i = 1; i < LW_GUESSES; i++) {
        if (view->guesses[i].used < oldest->used) {
            oldest = &view->guesses[i];
        }
    }
    return oldest;
}

void
lw_view_learn(lw_view *view)
{
    guess *learned = view->current ? view->current : oldest_guess(view);
    size_t used = view->newest_used ? view->newest_used + WINDOW_SLACK : 0;
    used =
        used < view->newest_size ? used : view->newest_size; /* never beyond the chunk's mapping */
    learned->tstate = view->tstate;
    learned->used = view->walk;
    learned->chunk = view->newest;
    learned->chunk_used = used < LW_WINDOW_BYTES ? (uint32_t)used : LW_WINDOW_BYTES;
    learned->n = 0;
    for (uint32_t i = 0; i < view->n_pieces && learned->n < LW_GUESS_MAX; i++) {
        if (view->asked[i]) {
            const lw_piece *piece = &view->cells[view->order[i]].piece;
            learned->pieces[learned->n++] = (wanted){piece->address, piece->length};
        }
    }
    view->current = learned;
}
