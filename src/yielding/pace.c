/* When a yield is due, and when its task may go on: pace.h.
 *
 * What is compared with a budget is for how long others have waited already. Where the loop is
 * watched and its pulse stamps the end of each wait (turn), the beat cell says since when the turn
 * has been busy. With libuv the wait's end is computed from its idle clock; with a heartbeat, and on
 * a loop that is not watched, nobody has seen the turn begin. There this file keeps one time for
 * each thread, `since_ns`: nobody has yielded since then, as far as it knows. Until a budget has
 * passed since, nothing can be due, and that is all that most calls look at. Once it has passed, the
 * true begin may be later, because the task may have awaited something else, so it is looked for:
 *
 *   libuv, watched     the end of the turn's wait. The turn before it ended with a stamp because
 *                      wait_a_turn() asked for one. A loop that hurries and whose last yield was not
 *                      ours has stamped up to some milliseconds earlier: one yield too many.
 *   asyncio's loop     the local variable `end_time` of its _run_once(), which it reads from its
 *                      clock when the wait is over; a few microseconds, once a budget at most
 *   any other          not known: due, so that at most one yield for each budget is too many. The
 *                      first time on a thread the clock starts.
 *
 * A yield takes LW_PACE_TURNS turns. Where turns have numbers, all tasks that wait here keep out of
 * the same ones: after a turn T in which a budget was used up, T + 1 and T + 2 are the others', and in
 * T + 3 one of those that wait goes on, the one that has waited longest, so that each has its share
 * however they are queued; more of them only while the budget lasts. So a turn is as long as the
 * budget and an item, however many tasks work in this way. Who has waited longest is found without a
 * list, which tasks that are cancelled or forgotten would have to leave: in each turn those that
 * wait say their ticket, and the least one of a turn is the next one's first. If it does not come,
 * the turn after that has another first.
 */
#include "pace.h"

#include "compat.h"
#include "pulses/uv_handle.h"
#include "slot.h"
#include "steps/steps.h"

#define FRAMES_MAX 256 /* between a checkpoint and the loop's own frame */

#define RELAXED memory_order_relaxed
#define NO_TICKET UINT64_MAX

/* What those that wait may use of a turn together, also where their budgets are less: else tasks
 * that begin faster than one in LW_PACE_TURNS turns, each with a tiny budget, would pile up. */
#define SHARE_NS (100 * LW_NS_PER_US)

static _Thread_local lw_ns since_ns; /* 0: not known */

/* Who may work when, on the numbered turns of one watched loop. */
static _Thread_local struct {
    uint64_t key;         /* of the slot; another one: nothing here counts */
    uint64_t used_turn;   /* the last turn in which a budget was used up */
    uint64_t worked_turn; /* the last turn in which one that had waited went on */
    uint64_t turn;        /* the last turn in which one that waits was resumed, */
    uint64_t least;       /* the least ticket in it so far, */
    uint64_t first;       /* and in the turn before: who goes on first; NO_TICKET: anyone */
} queue;

static _Atomic uint64_t last_ticket;

/* --- asyncio's own loop, not watched --- */

static bool
is_run_once(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    bool is = PyUnicode_CompareWithASCIIString(code->co_name, "_run_once") == 0;
    Py_DECREF(code);
    return is;
}

/* A new reference to the frame of the loop's turn; NULL: not there, or not within reach. */
static PyFrameObject *
find_run_once(void)
{
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    for (int i = 0; frame && !is_run_once(frame); i++) {
        PyFrameObject *back = i < FRAMES_MAX ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = back;
    }
    return frame;
}

/* 0: not known. A loop with a clock of its own may say anything: only what can be true is. */
static lw_ns
seconds_as_ns(PyObject *seconds, lw_ns now_ns)
{
    double value = PyFloat_CheckExact(seconds) ? PyFloat_AS_DOUBLE(seconds) : 0.0;
    return value > 0.0 && value * 1e9 <= (double)now_ns ? (lw_ns)(value * 1e9) : 0;
}

static lw_ns
stock_turn_began_ns(lw_ns now_ns)
{
    PyFrameObject *frame = find_run_once();
    PyObject *end_time = frame ? lw_frame_local(frame, "end_time") : NULL;
    lw_ns began_ns = end_time ? seconds_as_ns(end_time, now_ns) : 0;
    Py_XDECREF(end_time);
    Py_XDECREF(frame);
    PyErr_Clear(); /* without memory for a frame object, or the variable */
    return began_ns;
}

/* --- any loop --- */

/* Whether the cell says since when the turn has been busy. Its thread asks, so the loop is busy; a
 * pulse that does not see waits end says so of a run's first turn only, and a heartbeat, which sees
 * no turn, of all until its first beat. */
static bool
knows_turn(lw_slot *slot)
{
    return slot && slot->pulse != LW_PULSE_HEARTBEAT &&
           atomic_load_explicit(&slot->cell.phase, RELAXED) == LW_PHASE_BUSY;
}

static void
look_for_begin(lw_slot *slot, lw_ns now_ns)
{
    lw_ns began_ns = slot ? lw_uv_turn_began_ns(slot, now_ns) : 0;
    if (!began_ns) {
        began_ns = stock_turn_began_ns(now_ns);
    }
    if (!began_ns && !since_ns) {
        began_ns = now_ns;
    }
    if (began_ns > since_ns) {
        since_ns = began_ns;
    }
}

bool
lw_pace_due(lw_ns budget_ns)
{
    lw_slot *slot = lw_step_scope_slot();
    lw_ns now_ns = lw_now_ns();
    if (knows_turn(slot)) {
        return now_ns - atomic_load_explicit(&slot->cell.since_ns, RELAXED) >= budget_ns;
    }
    if (!since_ns || now_ns - since_ns >= budget_ns) {
        look_for_begin(slot, now_ns);
    }
    return now_ns - since_ns >= budget_ns;
}

/* --- whose turn it is --- */

/* The number of the turn that goes on, 0 where there is none. */
static uint64_t
turn_number(lw_slot *slot)
{
    if (slot && slot->pulse == LW_PULSE_UV) {
        return lw_uv_turn_number(slot);
    }
    return knows_turn(slot) ? atomic_load_explicit(&slot->cell.turn, RELAXED) : 0;
}

static void
use_queue_of(lw_slot *slot)
{
    if (queue.key != slot->key) {
        queue.key = slot->key;
        queue.used_turn = queue.worked_turn = queue.turn = 0;
        queue.least = queue.first = NO_TICKET;
    }
}

static bool
is_others(uint64_t turn)
{
    return queue.used_turn < turn && turn < queue.used_turn + LW_PACE_TURNS;
}

static void
say_ticket(uint64_t turn, uint64_t ticket)
{
    if (queue.turn != turn) {
        queue.first = queue.turn + 1 == turn ? queue.least : NO_TICKET;
        queue.least = NO_TICKET;
        queue.turn = turn;
    }
    if (ticket < queue.least) {
        queue.least = ticket;
    }
}

/* Somebody always may once the others' turns are over, also where others use up the budget before
 * it is resumed. */
static bool
may_work(uint64_t turn, uint64_t ticket, lw_ns budget_ns)
{
    say_ticket(turn, ticket);
    if (is_others(turn)) {
        return false;
    }
    if (queue.worked_turn == turn) {
        return !lw_pace_due(budget_ns > SHARE_NS ? budget_ns : SHARE_NS);
    }
    return ticket <= queue.first;
}

static void
wait_a_turn(lw_pace *pace, lw_slot *slot)
{
    uint32_t turns = atomic_load_explicit(&pace->turns, RELAXED);
    atomic_store_explicit(&pace->turns, turns + 1, RELAXED);
    if (slot) {
        lw_uv_see_turn(slot);
    }
}

void
lw_pace_begin(lw_pace *pace)
{
    lw_slot *slot = lw_step_scope_slot();
    uint64_t turn = turn_number(slot);
    if (turn) {
        use_queue_of(slot);
        if (!is_others(turn)) { /* else a stream of new tasks would keep the others' turns going */
            queue.used_turn = turn;
        }
    }
    uint64_t ticket = atomic_fetch_add_explicit(&last_ticket, 1, RELAXED) + 1;
    atomic_store_explicit(&pace->ticket, ticket, RELAXED);
    wait_a_turn(pace, slot);
}

bool
lw_pace_resumed(lw_pace *pace, lw_ns budget_ns)
{
    lw_slot *slot = lw_step_scope_slot();
    uint64_t turn = turn_number(slot);
    bool works;
    if (!knows_turn(slot)) {
        since_ns = slot && slot->pulse == LW_PULSE_UV ? 0 : lw_now_ns();
    }
    if (turn) {
        use_queue_of(slot);
        works = may_work(turn, atomic_load_explicit(&pace->ticket, RELAXED), budget_ns);
        queue.worked_turn = works ? turn : queue.worked_turn;
    }
    else {
        works = atomic_load_explicit(&pace->turns, RELAXED) >= LW_PACE_TURNS;
    }
    if (works) {
        atomic_store_explicit(&pace->ticket, 0, RELAXED);
        atomic_store_explicit(&pace->turns, 0, RELAXED);
    }
    else {
        wait_a_turn(pace, slot);
    }
    return !works;
}
