/* The uv pulse: how the turns of a uvloop loop are seen.
 *
 * uvloop runs its loop in C: there is no selector to wrap. But its libuv keeps a clock of the time
 * spent waiting in the kernel, which any thread may read, and calls prepare handles on the loop's
 * thread, without the GIL, right before each poll. So a prepare handle of ours ends each turn: it
 * was busy from (the last stamp + how far the idle clock moved) to now. The stamp that it leaves is
 * one number, `base_ns` = now - idle clock: at any later moment of the same turn
 *
 *     base_ns + idle clock    is now, less a moment, while the loop waits (the idle clock moves on)
 *                             is when its wait ended, once it is back (the idle clock stands still)
 *
 * which is what lw_uv_refine() asks on the watchdog's behalf: nothing needs to run on the loop's
 * thread when a wait ends. libuv ends the wait before it runs a callback, so a callback's wait for
 * the GIL is busy time; how long it was is not known. What lies between our handle and the poll,
 * and polls that do not wait, count as busy: microseconds.
 *
 * Not each turn of a loop that hurries is stamped: uv_turns.c.
 *
 * Who may touch libuv. All but the idle clock belongs to the loop's thread, or to whoever holds the
 * GIL while the loop does not run; nothing may be called once the loop is closed. The life of a
 * handle:
 *
 *   OPEN      start(): its callback stamps, and slot->pulse_data names it
 *   STOPPED   stop(), any thread, takes effect at once: no more stamps, and the watchdog is out of
 *             libuv for good
 *   CLOSED    uv_close() was called: by stop() where it may, else by the handle's own callback, in
 *             the next turn or when the timer is due
 *
 * The timer has the same life. The memory of both goes when the pulse is gone and libuv has called
 * back for each, in the loop's next turn or in its close(). A loop that is dropped without either
 * keeps it: uvloop does not free such a loop's memory.
 *
 * uvloop looks at each handle when it closes: one that is not its own and still open makes it
 * complain and fail. So the installer shadows close() and stops the pulse first. For a close() that
 * gets around that, the prepare handle closes both when it is called outside of a run (it does not
 * rest then); the loop then complains (through its exception handler) but closes.
 *
 * libuv's idle clock cannot be switched off again; it counts on until the loop is closed.
 */
#include "uv_handle.h"

#include <errno.h>
#include <pthread.h>

#include "uv_turns.h"

/* A busy time shorter than this is not worth an answer: the watchdog's threshold is a millisecond
 * at least. */
#define LW_UV_SLACK_NS (50 * LW_NS_PER_US)

/* --- the gate: the watchdog in libuv, or somebody who must keep it out
 * ----------------------------------------------- */

/* Held by the watchdog while it reads an idle clock (it only tries), by stop() while it takes a
 * handle from it, and over a fork: the child would inherit libuv's metrics mutex locked, and its
 * loop thread wait for it forever. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void
gate_lock(void)
{
    pthread_mutex_lock(&gate);
}

static void
gate_unlock(void)
{
    pthread_mutex_unlock(&gate);
}

int
lw_uv_guard_forks(void)
{
    static bool guarded;
    if (!guarded) {
        int error = pthread_atfork(gate_lock, gate_unlock, gate_unlock);
        if (error) {
            errno = error;
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        guarded = true;
    }
    return 0;
}

/* --- the handle
 * ---------------------------------------------------------------------------------------------------------
 */

lw_uv *
lw_uv_of_prepare(void *handle)
{
    return (lw_uv *)(void *)((unsigned char *)handle - offsetof(lw_uv, prepare));
}

lw_uv *
lw_uv_of_timer(void *handle)
{
    return (lw_uv *)(void *)((unsigned char *)handle - offsetof(lw_uv, timer));
}

void
lw_uv_decref(lw_uv *uv)
{
    if (atomic_fetch_sub_explicit(&uv->references, 1, memory_order_acq_rel) == 1) {
        lw_slot_decref(uv->slot);
        PyMem_RawFree(uv);
    }
}

void
lw_uv_stop(lw_uv *uv)
{
    uint32_t open = LW_UV_OPEN;
    gate_lock();
    atomic_compare_exchange_strong_explicit(&uv->state, &open, LW_UV_STOPPED, memory_order_acq_rel,
                                            memory_order_relaxed);
    void *named = uv; /* unless another pulse has taken the slot over */
    atomic_compare_exchange_strong_explicit(&uv->slot->pulse_data, &named, NULL,
                                            memory_order_relaxed, memory_order_relaxed);
    gate_unlock();
}

/* libuv calls these in the loop's next turn, or in close(), without the GIL. */
static void
on_prepare_closed(void *handle)
{
    lw_uv_decref(lw_uv_of_prepare(handle));
}

static void
on_timer_closed(void *handle)
{
    lw_uv_decref(lw_uv_of_timer(handle));
}

void
lw_uv_close(lw_uv *uv)
{
    if (atomic_exchange_explicit(&uv->state, LW_UV_CLOSED, memory_order_acq_rel) != LW_UV_CLOSED) {
        uv->library.close(uv->prepare, on_prepare_closed);
        if (uv->may_rest) {
            uv->library.close(uv->timer, on_timer_closed);
        }
    }
}

/* --- what the slot's other users ask
 * ------------------------------------------------------------------------------------
 */

/* NULL where the slot has another pulse, or this one is stopped. */
lw_uv *
lw_uv_of_slot(lw_slot *slot)
{
    bool ours = atomic_load_explicit(&slot->refine, memory_order_relaxed) == lw_uv_refine;
    return ours ? atomic_load_explicit(&slot->pulse_data, memory_order_acquire) : NULL;
}

void
lw_uv_see_turn(lw_slot *slot)
{
    if (!lw_uv_of_slot(slot)) {
        return;
    }
    gate_lock(); /* against stop() on another thread, after which the handles may be closed */
    lw_uv *uv = lw_uv_of_slot(slot);
    if (uv) {
        uv->wanted = true;
        lw_uv_wake(uv);
    }
    gate_unlock();
}

/* With the gate. */
static void
refine(lw_slot *slot, lw_beat *beat, lw_ns now_ns)
{
    lw_uv *uv = atomic_load_explicit(&slot->pulse_data, memory_order_acquire);
    if (!uv) {
        return;
    }
    lw_ns idle_ns = uv->library.metrics_idle_time(uv->uv_loop);
    lw_ns base_ns = atomic_load_explicit(&uv->base_ns, memory_order_acquire);
    bool waits = uv->library.metrics_idle_time(uv->uv_loop) != idle_ns;
    lw_beat beat_now;
    bool same = lw_cell_read(&slot->cell, &beat_now) && beat_now.turn == beat->turn &&
                beat_now.phase == LW_PHASE_WAIT;
    lw_ns back_ns = base_ns + idle_ns;
    if (same && !waits && back_ns + LW_UV_SLACK_NS < now_ns) {
        beat->phase = LW_PHASE_BUSY;
        beat->since_ns = back_ns;
    }
}

void
lw_uv_refine(lw_slot *slot, lw_beat *beat, lw_ns now_ns)
{
    if (beat->phase != LW_PHASE_WAIT || pthread_mutex_trylock(&gate)) {
        return; /* a gate that is taken: the next look will tell */
    }
    refine(slot, beat, now_ns);
    gate_unlock();
}

void
lw_uv_look(lw_slot *slot, lw_beat *beat, lw_ns now_ns)
{
    if (lw_uv_of_slot(slot)) {
        gate_lock();
        refine(slot, beat, now_ns);
        gate_unlock();
    }
}

lw_uv *
lw_uv_open(PyObject *loop, lw_slot *slot)
{
    lw_uv_library library;
    void *uv_loop;
    if (lw_uv_library_open(&library, loop, &uv_loop) < 0) {
        return NULL;
    }
    lw_uv *uv = PyMem_RawCalloc(1, sizeof *uv + library.handle_size(LW_UV_PREPARE));
    if (!uv) {
        PyErr_NoMemory();
        return NULL;
    }
    bool may_rest = library.metrics_info && library.handle_size(LW_UV_TIMER) <= LW_UV_TIMER_SIZE;
    *uv = (lw_uv){.each_ns = LW_NS_PER_S, /* not known yet: no hurry */
                  .may_rest = may_rest,
                  .library = library,
                  .uv_loop = uv_loop,
                  .loop = loop,
                  .slot = slot};
    atomic_init(&uv->references, may_rest ? 3 : 2); /* the caller's, and one for each handle */
    int error = library.loop_configure(uv_loop, LW_UV_METRICS_IDLE_TIME);
    if (error) {
        PyErr_Format(PyExc_RuntimeError, "libuv has no idle clock for this loop: error %d", error);
        PyMem_RawFree(uv);
        return NULL;
    }
    lw_slot_incref(slot);
    library.prepare_init(uv_loop, uv->prepare); /* these never fail */
    library.prepare_start(uv->prepare, lw_uv_on_prepare);
    library.unref(uv->prepare);
    if (may_rest) {
        library.timer_init(uv_loop, uv->timer);
        library.unref(uv->timer);
    }
    atomic_store_explicit(&slot->pulse_data, uv, memory_order_release);
    return uv;
}
