/* The uv pulse's turns: what libuv calls on the loop's thread.
 *
 * A loop that hurries, turn after turn of a microsecond or two without a wait between them, would
 * feel that: an active prepare handle costs libuv some 30 ns a turn, our callback 25 more where it
 * does not stamp and 60 to 100 where it does. So such turns are stamped a few at a time, and once
 * the loop has hurried for a while the handle rests: it is stopped, and a timer of ours starts it
 * again when a millisecond has passed. libuv counts its polls, so no turn is lost, and the sum of
 * their times is exact; turns stamped together count with their mean. Turns up to a millisecond are
 * not told apart there. A long one is: libuv runs the timer, long due, as soon as it has polled
 * after that turn, and the timer stamps. What such a turn loses is its begin: it seems to begin up to a
 * millisecond early. (A timer of the program's that is due in the same millisecond and was set
 * before ours is called first; what it does counts to that turn.) A loop that goes to wait while
 * the handle rests is woken by the timer, once; it must hurry for a while again before the handle rests
 * again.
 *
 * All of it runs on the loop's thread (or with the GIL while the loop does not run) and, but for
 * enter_run(), touches no Python object.
 */
#include "uv_turns.h"

#include "process.h"
#include "pulse.h"

/* A poll that libuv said will not wait may wait all the same (stamp() says when). So long may
 * such a wait be taken for busy time; it saves most turns of a busy loop libuv's mutex. */
#define LW_UV_UNSEEN_NS (20 * LW_NS_PER_US)

/* Turns shorter than this on average are measured up to LW_UV_UNSTAMPED_MAX + 1 at a time. */
#define LW_UV_HURRY_NS (20 * LW_NS_PER_US)
#define LW_UV_UNSTAMPED_MAX 7

/* After so many in a row, without a wait, the handle rests. A wait that the timer interrupts costs
 * some 10 to 50 us: about a hundredth of so many turns. */
#define LW_UV_RESTS_AFTER 4096
/* After a long turn it starts from here: the turns' pace is to be measured anew, nothing else. */
#define LW_UV_RESTS_AGAIN (LW_UV_RESTS_AFTER - 24)
#define LW_UV_REST_MS 1
/* Longer than this, a rest had a long turn in it. */
#define LW_UV_REST_LONG_NS (1100 * LW_NS_PER_US)
/* No rest below this threshold: what is stamped together must look neither like a stall nor like
 * the begin of one, which is an eighth of it. */
#define LW_UV_REST_THRESHOLD_NS (20 * LW_NS_PER_MS)

static bool
is_open(lw_uv *uv)
{
    return atomic_load_explicit(&uv->state, memory_order_acquire) == LW_UV_OPEN;
}

/* On the loop's thread, which writes the cell: no need for a consistent copy. */
static lw_phase
phase_of(lw_slot *slot)
{
    return (lw_phase)atomic_load_explicit(&slot->cell.phase, memory_order_relaxed);
}

/* The first turn of a run whose begin was not seen, or after a fork: the only one that takes the
 * GIL. False where there is no run, because the loop is being closed, or where the pulse was
 * stopped in here. */
static bool
enter_run(lw_uv *uv)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *closed = PyObject_CallMethod(uv->loop, "is_closed", NULL);
    if (!closed) {
        PyErr_WriteUnraisable(uv->loop);
    }
    if (closed == Py_True) {
        lw_uv_stop(uv);
    }
    else {
        if (lw_pulse_forked(uv->slot) && lw_process_rearm(uv->slot) < 0) {
            PyErr_WriteUnraisable(uv->loop);
        }
        if (lw_pulse_bind(uv->slot) < 0) {
            PyErr_WriteUnraisable(uv->loop);
        }
    }
    Py_XDECREF(closed);
    PyGILState_Release(state);
    return is_open(uv);
}

/* On the loop's thread: since when its last wait is over, if it is. */
static lw_ns
back_since_ns(lw_uv *uv, lw_ns idle_ns)
{
    return atomic_load_explicit(&uv->base_ns, memory_order_relaxed) + idle_ns;
}

/* On the loop's thread, outside of a wait: the idle clock, which stands still. */
static lw_ns
idle_until(lw_uv *uv, lw_ns now_ns)
{
    if (uv->may_wait || now_ns - uv->idle_read_ns >= LW_UV_UNSEEN_NS) {
        uv->idle_ns = uv->library.metrics_idle_time(uv->uv_loop);
        uv->idle_read_ns = now_ns;
    }
    return uv->idle_ns;
}

/* Whether this turn can go without a stamp: a loop that hurries through turns of a microsecond,
 * none of which waits, would feel the clock. A few such turns are measured together, within one tick of
 * the kernel's coarse clock, so that a long turn ends them and no two long ones become one. */
static bool
may_go_unstamped(lw_uv *uv, lw_phase phase)
{
    uint64_t turn = atomic_load_explicit(&uv->slot->cell.turn, memory_order_relaxed);
    return phase == LW_PHASE_WAIT && !uv->may_wait && !uv->wanted && uv->each_ns < LW_UV_HURRY_NS &&
           uv->unstamped < LW_UV_UNSTAMPED_MAX &&
           atomic_load_explicit(&uv->slot->exempt_turn, memory_order_relaxed) != turn &&
           uv->library.backend_timeout(uv->uv_loop) == 0 && lw_tick_ns() == uv->tick_ns;
}

/* Of `turns` turns that took busy_ns together, how long all but one were: at most the mean. */
static lw_ns
usual_ns(lw_uv *uv, uint32_t turns, lw_ns busy_ns)
{
    lw_ns mean_ns = busy_ns / turns;
    bool one_was_long = mean_ns >= LW_UV_HURRY_NS ||
                        (busy_ns > LW_UV_REST_LONG_NS && mean_ns > uv->each_ns + uv->each_ns / 2);
    return one_was_long && uv->each_ns < mean_ns ? uv->each_ns : mean_ns;
}

/* How the loop went, for what is to come: `even` where none of the turns was long. */
static void
note_pace(lw_uv *uv, uint32_t turns, lw_ns mean_ns, bool even, bool waits)
{
    uv->each_ns = mean_ns;
    if (waits) {
        uv->hurried = 0;
    }
    else if (even && mean_ns < LW_UV_HURRY_NS) {
        uv->hurried += turns;
    }
    else if (uv->hurried > LW_UV_RESTS_AGAIN) {
        uv->hurried = LW_UV_RESTS_AGAIN;
    }
}

/* On the loop's thread: `turns` turns end now. timeout_ms is libuv's for the poll to come. Zero may
 * also mean that libuv has yet to register watchers and does not know; then only the idle clock
 * tells. */
static void
stamp(lw_uv *uv, lw_phase phase, uint32_t turns, int timeout_ms)
{
    lw_ns now_ns = lw_now_ns();
    lw_ns idle_before_ns = uv->idle_ns;
    lw_ns idle_ns = idle_until(uv, now_ns);
    lw_ns begin_ns = phase == LW_PHASE_WAIT ? back_since_ns(uv, idle_ns) : now_ns;
    lw_ns busy_ns = begin_ns < now_ns ? now_ns - begin_ns : 0;
    lw_ns mean_ns = busy_ns / turns;
    lw_ns each_ns = usual_ns(uv, turns, busy_ns);
    lw_ns due_ns = timeout_ms > 0 ? now_ns + (lw_ns)timeout_ms * LW_NS_PER_MS : LW_NS_NEVER;
    uv->may_wait = timeout_ms != 0;
    if (phase == LW_PHASE_WAIT) { /* else a run has just begun, which says nothing of its turns */
        note_pace(uv, turns, mean_ns, each_ns == mean_ns,
                  uv->may_wait || idle_ns != idle_before_ns);
    }
    /* Before the beat that it belongs to: with the beat before, the new base only says that the
     * loop is back just now. */
    atomic_store_explicit(&uv->base_ns, now_ns - idle_ns, memory_order_release);
    lw_pulse_turns(uv->slot, turns, each_ns, begin_ns, now_ns, due_ns);
    uv->unstamped = 0;
    uv->wanted = false;
    uv->tick_ns = lw_tick_ns();
}

/* --- the rest --- */

static uint64_t
polls_begun(lw_uv *uv)
{
    lw_uv_metrics metrics;
    uv->library.metrics_info(uv->uv_loop, &metrics);
    return metrics.loop_count;
}

/* Where libuv may be called, outside of the prepare handle's callback: it is called before each
 * poll again. Each poll begun since is a turn that it did not see end. */
void
lw_uv_wake(lw_uv *uv)
{
    if (uv->rests) {
        uv->rests = false;
        uv->unstamped += (uint32_t)(polls_begun(uv) - uv->rests_from);
        uv->library.timer_stop(uv->timer);
        uv->library.prepare_start(uv->prepare, lw_uv_on_prepare);
    }
}

/* libuv calls it on the loop's thread after a poll, without the GIL. */
static void
on_timer(void *handle)
{
    lw_uv *uv = lw_uv_of_timer(handle);
    if (!is_open(uv)) {
        lw_uv_close(uv);
        return;
    }
    lw_uv_wake(uv);
    lw_phase phase = phase_of(uv->slot);
    if (!uv->unstamped || phase == LW_PHASE_OFF || lw_pulse_forked(uv->slot)) {
        return;
    }
    /* A long turn ends here, so that the next one, should it be long too, is not one with it. */
    lw_ns back_ns = back_since_ns(uv, uv->library.metrics_idle_time(uv->uv_loop));
    if (back_ns + LW_UV_REST_LONG_NS < lw_now_ns()) {
        stamp(uv, phase, uv->unstamped,
              0); /* there is no poll before the prepare handle is called */
    }
}

/* In the prepare handle's callback, whose poll libuv has not counted yet. */
static void
rest(lw_uv *uv)
{
    uv->rests = true;
    uv->rests_from = polls_begun(uv) + 1;
    uv->library.prepare_stop(uv->prepare);
    uv->library.timer_start(uv->timer, on_timer, LW_UV_REST_MS, 0);
}

/* libuv calls it on the loop's thread before each poll, without the GIL. */
void
lw_uv_on_prepare(void *handle)
{
    lw_uv *uv = lw_uv_of_prepare(handle);
    lw_phase phase = phase_of(uv->slot);
    bool enters = phase == LW_PHASE_OFF || lw_pulse_forked(uv->slot);
    if (!is_open(uv) || (enters && !enter_run(uv))) {
        lw_uv_close(uv);
        return;
    }
    if (may_go_unstamped(uv, phase)) {
        uv->unstamped++;
        return;
    }
    stamp(uv, phase, uv->unstamped + 1, uv->library.backend_timeout(uv->uv_loop));
    if (uv->hurried >= LW_UV_RESTS_AFTER && !uv->may_wait && uv->may_rest &&
        lw_slot_threshold_ns(uv->slot) >= LW_UV_REST_THRESHOLD_NS) {
        rest(uv);
    }
}

lw_ns
lw_uv_turn_began_ns(lw_slot *slot, lw_ns now_ns)
{
    lw_uv *uv = lw_uv_of_slot(slot); /* stays until this thread is back in libuv */
    if (!uv) {
        return 0;
    }
    lw_ns back_ns = back_since_ns(uv, uv->library.metrics_idle_time(uv->uv_loop));
    return back_ns < now_ns ? back_ns : now_ns;
}

uint64_t
lw_uv_turn_number(lw_slot *slot)
{
    lw_uv *uv = lw_uv_of_slot(slot);
    return uv && uv->library.metrics_info ? polls_begun(uv) : 0;
}

void
lw_uv_run_end(lw_slot *slot)
{
    lw_uv_see_turn(slot);
    lw_uv *uv = lw_uv_of_slot(slot);
    if (!uv || phase_of(slot) != LW_PHASE_WAIT) {
        return;
    }
    /* Between the wait's begin and now: the clocks disagree a little, and nothing may begin after the
     * end of the run, which is measured. */
    lw_ns now_ns = lw_now_ns();
    lw_ns since_ns = atomic_load_explicit(&slot->cell.since_ns, memory_order_relaxed);
    lw_ns back_ns = back_since_ns(uv, uv->library.metrics_idle_time(uv->uv_loop));
    back_ns = back_ns < since_ns ? since_ns : back_ns;
    back_ns = back_ns > now_ns ? now_ns : back_ns;
    uint32_t turns = uv->unstamped;
    if (turns && back_ns < now_ns) {
        lw_ns each_ns = usual_ns(uv, turns + 1, now_ns - back_ns);
        lw_ns end_ns = back_ns + turns * each_ns;
        lw_pulse_turns(slot, turns, each_ns, back_ns, end_ns, LW_NS_NEVER);
        back_ns = end_ns;
        uv->unstamped = 0;
    }
    lw_pulse_back(slot, back_ns);
}
