/* Marks of the histogram: what it had counted, some seconds apart, for some minutes.
 *
 * The last one is kept in full (`base`), of the others what the histogram grew by since the one
 * before each (growth.c). So a window is what the histogram has more than the base, and what it grew
 * by from mark to mark, back to the one where the window begins.
 *
 * The bytes lie in a ring that starts over as soon as there is room at its begin, not when it is
 * full: a loop whose turns are alike uses the first pages only. Where a loop's turns are so diverse
 * that the room is short, the oldest marks go early.
 */
#include "history.h"

#include <assert.h>

static_assert(LW_MARKS_MAX * LW_MARK_NS >= LW_WINDOW_MAX_NS, "the longest window is there");

static lw_mark
load(lw_history *history, uint64_t number)
{
    lw_mark mark;
    lw_words_load(&mark, history->marks[number % LW_MARKS_MAX], LW_WORDS(lw_mark));
    return mark;
}

/* Where LW_GROWTH_MAX bytes may lie; the oldest marks make room. */
static uint32_t
make_room(lw_history *history)
{
    lw_history_head *head = &history->head;
    for (; head->n; head->first++, head->n--) {
        lw_mark oldest = load(history, head->first);
        lw_mark newest = load(history, head->first + head->n - 1);
        bool started_over = newest.offset < oldest.offset;
        uint32_t end = newest.offset + newest.length;
        uint32_t limit = started_over ? oldest.offset : LW_GROWTH_ROOM;
        if (head->n == LW_MARKS_MAX) {
            continue;
        }
        if (!started_over && oldest.offset >= LW_GROWTH_MAX) {
            return 0;
        }
        if (end + LW_GROWTH_MAX <= limit) {
            return end;
        }
    }
    return 0;
}

void
lw_mark_add(lw_slot *slot, const lw_span *span)
{
    lw_history *history = slot->history;
    lw_history_head *head = &history->head;
    uint32_t offset = make_room(history);
    lw_mark mark = {
        .begin_ns = span->begin_ns,
        .end_ns = span->end_ns,
        .phase = span->phase,
        .totals = lw_totals_at(span, span->begin_ns),
        .worst_ns = head->worst_ns,
        .offset = offset,
        .length = lw_growth_encode(&slot->histogram, history->base, history->growth + offset),
    };
    uint64_t number = head->first + head->n++;
    lw_words_store(history->marks[number % LW_MARKS_MAX], &mark, LW_WORDS(lw_mark));
    head->worst_ns = 0;
    head->mark_ns = span->end_ns;
}
