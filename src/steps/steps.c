/* Named steps: steps.h says what.
 *
 * lw_steps belongs to one turn at a time: the loop thread empties it when it first writes in a new
 * turn. The watchdog copies it while it changes, as with a sequence lock whose number is the turn:
 * the loop thread stores the turn before anything of that turn, the reader looks at the turn again
 * after the copy. Within a turn a copy may miss the last change or see half of it; that is a step
 * of a report off by one look, and the next look has it.
 */
#include "steps.h"

#include <stdlib.h>
#include <string.h>

#define RELAXED memory_order_relaxed
#define NOT_THERE UINT32_MAX

/* --- names --- */

static _Atomic(const char *) step_names[LW_STEP_NAMES_MAX] = {"other"};

static size_t
cut_at_character(const char *name, size_t length)
{
    if (length <= LW_STEP_NAME_MAX) {
        return length;
    }
    length = LW_STEP_NAME_MAX;
    while (length > 0 && ((unsigned char)name[length] & 0xC0) == 0x80) {
        length--;
    }
    return length;
}

static bool
is_name(const char *published, const char *name, size_t length)
{
    return strncmp(published, name, length) == 0 && published[length] == '\0';
}

uint32_t
lw_step_index(const char *name, size_t length)
{
    length = cut_at_character(name, length);
    char *copy = NULL;
    uint32_t i;
    for (i = 0; i < LW_STEP_NAMES_MAX; i++) {
        const char *published = atomic_load_explicit(&step_names[i], memory_order_acquire);
        if (!published) {
            copy = copy ? copy : strndup(name, length);
            /* Where another thread was first with this place, `published` becomes its name. */
            if (!copy || atomic_compare_exchange_strong_explicit(&step_names[i], &published, copy,
                                                                 memory_order_acq_rel,
                                                                 memory_order_acquire)) {
                return copy ? i : LW_STEP_OTHER;
            }
        }
        if (is_name(published, name, length)) {
            break;
        }
    }
    free(copy);
    return i < LW_STEP_NAMES_MAX ? i : LW_STEP_OTHER;
}

const char *
lw_step_name(uint32_t index)
{
    const char *name = NULL;
    if (index < LW_STEP_NAMES_MAX) {
        name = atomic_load_explicit(&step_names[index], memory_order_acquire);
    }
    return name ? name : "other";
}

/* --- the loop of a thread --- */

static _Thread_local lw_step_scope scope;

lw_step_scope
lw_step_scope_enter(lw_slot *slot)
{
    lw_step_scope outer = scope;
    scope = (lw_step_scope){slot, slot->key};
    return outer;
}

void
lw_step_scope_leave(lw_step_scope outer)
{
    scope = outer;
}

lw_step_scope
lw_step_scope_here(void)
{
    return scope;
}

lw_slot *
lw_step_scope_slot(void)
{
    lw_slot *slot = scope.slot;
    return slot && lw_slot_active(slot) && slot->key == scope.key ? slot : NULL;
}

/* --- the steps of a turn --- */

/* Empties the steps when the turn is a new one. */
static void
turn_over(lw_steps *steps, uint64_t turn)
{
    if (atomic_load_explicit(&steps->turn, RELAXED) == turn) {
        return;
    }
    atomic_store_explicit(&steps->turn, turn, RELAXED);
    /* A reader that sees anything stored from here on sees the turn too, when it looks at it again.
     */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&steps->n, 0, RELAXED);
    atomic_store_explicit(&steps->open, 0, RELAXED);
}

static uint64_t
current_turn(lw_slot *slot)
{
    return atomic_load_explicit(&slot->cell.turn, RELAXED);
}

lw_step_entry
lw_steps_enter(uint32_t name, lw_ns now_ns)
{
    lw_slot *slot = lw_step_scope_slot();
    if (!slot) {
        return (lw_step_entry){0};
    }
    lw_steps *steps = &slot->steps;
    lw_step_entry entry = {slot, current_turn(slot), now_ns};
    turn_over(steps, entry.turn);
    uint32_t open = atomic_load_explicit(&steps->open, RELAXED);
    if (open < LW_OPEN_STEPS_MAX) {
        atomic_store_explicit(&steps->open_names[open], name, RELAXED);
        atomic_store_explicit(&steps->open_since_ns[open], now_ns, RELAXED);
        atomic_store_explicit(&steps->open, open + 1, memory_order_release);
    }
    return entry;
}

/* Takes one open step off the list, where it is on it. Tasks may leave in another order than they
 * entered in. */
static void
close_open(lw_steps *steps, uint32_t name, lw_ns begin_ns)
{
    uint32_t open = atomic_load_explicit(&steps->open, RELAXED);
    uint32_t i = open;
    while (i-- > 0) {
        if (atomic_load_explicit(&steps->open_names[i], RELAXED) == name &&
            atomic_load_explicit(&steps->open_since_ns[i], RELAXED) == begin_ns) {
            break;
        }
    }
    if (i == NOT_THERE) {
        return;
    }
    for (; i + 1 < open; i++) {
        uint32_t next_name = atomic_load_explicit(&steps->open_names[i + 1], RELAXED);
        lw_ns next_since_ns = atomic_load_explicit(&steps->open_since_ns[i + 1], RELAXED);
        atomic_store_explicit(&steps->open_names[i], next_name, RELAXED);
        atomic_store_explicit(&steps->open_since_ns[i], next_since_ns, RELAXED);
    }
    atomic_store_explicit(&steps->open, open - 1, memory_order_release);
}

static bool
still_open(lw_steps *steps, uint32_t name)
{
    uint32_t open = atomic_load_explicit(&steps->open, RELAXED);
    for (uint32_t i = 0; i < open; i++) {
        if (atomic_load_explicit(&steps->open_names[i], RELAXED) == name) {
            return true;
        }
    }
    return false;
}

/* The place of a name in the turn's list, added where it is new. The last place becomes "other"
 * when one name more comes than there are places, and keeps its time. */
static uint32_t
place_of(lw_steps *steps, uint32_t name)
{
    uint32_t n = atomic_load_explicit(&steps->n, RELAXED);
    for (uint32_t i = 0; i < n; i++) {
        if (atomic_load_explicit(&steps->names[i], RELAXED) == name) {
            return i;
        }
    }
    if (n == LW_STEPS_MAX) {
        atomic_store_explicit(&steps->names[n - 1], LW_STEP_OTHER, RELAXED);
        return n - 1;
    }
    atomic_store_explicit(&steps->names[n], name, RELAXED);
    atomic_store_explicit(&steps->ns[n], 0, RELAXED);
    steps->counted_until_ns[n] = 0;
    atomic_store_explicit(&steps->n, n + 1, memory_order_release);
    return n;
}

void
lw_steps_leave(uint32_t name, const lw_step_entry *entry, lw_ns now_ns)
{
    lw_slot *slot = lw_step_scope_slot();
    if (!slot || slot != entry->slot) {
        return;
    }
    lw_steps *steps = &slot->steps;
    uint64_t turn = current_turn(slot);
    turn_over(steps, turn);
    lw_ns begin_ns = atomic_load_explicit(&slot->cell.since_ns, RELAXED);
    if (entry->turn == turn) {
        begin_ns = entry->begin_ns;
        close_open(steps, name, begin_ns);
        if (still_open(steps, name)) {
            return;
        }
    }
    uint32_t i = place_of(steps, name);
    if (begin_ns < steps->counted_until_ns[i]) {
        begin_ns = steps->counted_until_ns[i];
    }
    if (begin_ns < now_ns) {
        lw_ns ns = atomic_load_explicit(&steps->ns[i], RELAXED);
        atomic_store_explicit(&steps->ns[i], ns + (now_ns - begin_ns), RELAXED);
        steps->counted_until_ns[i] = now_ns;
    }
}

/* --- reading --- */

/* Adds time under a name to a list that may be full, as place_of does. Returns how long the list is
 * then. */
static uint32_t
add_time(lw_step_time *out, uint32_t n, uint32_t name, lw_ns ns)
{
    uint32_t i = 0;
    while (i < n && out[i].name != name) {
        i++;
    }
    if (i == LW_STEPS_MAX) {
        out[--i].name = LW_STEP_OTHER;
    }
    if (i == n) {
        out[n++] = (lw_step_time){name, 0};
    }
    out[i].ns += ns;
    return n;
}

uint32_t
lw_steps_collect(lw_slot *slot, uint64_t turn, lw_ns begin_ns, lw_ns now_ns, lw_step_time *out)
{
    lw_steps *steps = &slot->steps;
    if (atomic_load_explicit(&steps->turn, memory_order_acquire) != turn) {
        return 0;
    }
    uint32_t n = 0;
    uint32_t n_closed = atomic_load_explicit(&steps->n, memory_order_acquire);
    for (uint32_t i = 0; i < n_closed && i < LW_STEPS_MAX; i++) {
        n = add_time(out, n, atomic_load_explicit(&steps->names[i], RELAXED),
                     atomic_load_explicit(&steps->ns[i], RELAXED));
    }
    uint32_t open_names[LW_OPEN_STEPS_MAX];
    uint32_t n_open = atomic_load_explicit(&steps->open, memory_order_acquire);
    for (uint32_t i = 0; i < n_open && i < LW_OPEN_STEPS_MAX; i++) {
        uint32_t name = open_names[i] = atomic_load_explicit(&steps->open_names[i], RELAXED);
        lw_ns since_ns = atomic_load_explicit(&steps->open_since_ns[i], RELAXED);
        uint32_t outer =
            0; /* the list is in order of entry: the first of a name contains the others */
        while (open_names[outer] != name) {
            outer++;
        }
        if (outer == i && since_ns < now_ns) {
            n = add_time(out, n, name, now_ns - since_ns);
        }
    }
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&steps->turn, RELAXED) != turn) {
        return 0;
    }
    lw_ns longest_ns = now_ns > begin_ns ? now_ns - begin_ns : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (out[i].ns > longest_ns) {
            out[i].ns = longest_ns;
        }
    }
    return n;
}
