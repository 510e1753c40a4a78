/* The history of a loop, with times that the test makes up. */
#include "testcore.h"

#include <pthread.h>
#include <string.h>

#include "glue/py_history.h"
#include "glue/py_slot.h"
#include "history/history.h"
#include "pulses/pulse.h"

/* One call of a pulse, as its name and up to two times. */
static int
play_one(lw_slot *slot, const char *name, unsigned long long a, unsigned long long b)
{
    if (strcmp(name, "run_begin") == 0) {
        lw_pulse_run_begin(slot, a);
    }
    else if (strcmp(name, "wait") == 0) {
        lw_pulse_wait(slot, a, LW_NS_NEVER);
    }
    else if (strcmp(name, "back") == 0) {
        lw_pulse_back(slot, a);
    }
    else if (strcmp(name, "gil") == 0) {
        lw_pulse_gil(slot, a);
    }
    else if (strcmp(name, "run_end") == 0) {
        lw_pulse_run_end(slot, a);
    }
    else if (strcmp(name, "turn") == 0) {
        lw_pulse_turns(slot, 1, 0, a, b, LW_NS_NEVER);
    }
    else if (strcmp(name, "fill") == 0) { /* a turn more in each bucket, which takes no time */
        for (size_t i = 0; i < LW_HISTOGRAM_BUCKETS; i++) {
            lw_histogram_add(&slot->histogram, lw_histogram_edge(i), (uint32_t)a);
        }
    }
    else if (strcmp(name, "beat") == 0) {
        lw_pulse_beat(slot, a, b);
    }
    else {
        PyErr_Format(PyExc_ValueError, "no call of a pulse: %s", name);
        return -1;
    }
    return 0;
}

/* The slot is active from then on, without a watchdog. */
static PyObject *
history_play(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object, *calls;
    if (!PyArg_ParseTuple(args, "OO!", &object, &PyList_Type, &calls)) {
        return NULL;
    }
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    lw_slot_start(slot);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(calls); i++) {
        const char *name;
        unsigned long long a, b = 0;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(calls, i), "sK|K", &name, &a, &b) ||
            play_one(slot, name, a, b) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
history_cells(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    unsigned long long now_ns;
    int n;
    return PyArg_ParseTuple(args, "OKi", &object, &now_ns, &n) ? lw_cells_at(object, now_ns, n)
                                                               : NULL;
}

static PyObject *
history_window(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    unsigned long long now_ns, length_ns;
    return PyArg_ParseTuple(args, "OKK", &object, &now_ns, &length_ns)
               ? lw_window_at(object, now_ns, length_ns)
               : NULL;
}

/* A fork in the middle of a pass leaves the sequence lock as a writer had it that is not there. */
static PyObject *
history_interrupt(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    atomic_fetch_or_explicit(&slot->history->sequence, 1, memory_order_relaxed);
    Py_RETURN_NONE;
}

static PyObject *
history_forget(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    lw_history_forget(slot);
    Py_RETURN_NONE;
}

/* --- read while it is written --- */

/* A turn and a wait of 20 us each, so that a second passes in about a millisecond. */
#define HALF_CYCLE_NS (20 * LW_NS_PER_US)
#define CYCLE_NS (2 * HALF_CYCLE_NS)
#define RACE_WINDOW_NS (60 * LW_NS_PER_S)

typedef struct race {
    lw_slot *slot;
    lw_ns begin_ns, end_ns;
    _Atomic uint64_t now_ns; /* a moment before the last call */
    _Atomic bool finished;
} race;

static void *
write_all(void *argument)
{
    race *shared = argument;
    lw_pulse_run_begin(shared->slot, shared->begin_ns);
    for (lw_ns at_ns = shared->begin_ns; at_ns < shared->end_ns; at_ns += CYCLE_NS) {
        atomic_store_explicit(&shared->now_ns, at_ns, memory_order_release);
        lw_pulse_wait(shared->slot, at_ns + HALF_CYCLE_NS, LW_NS_NEVER);
        lw_pulse_back(shared->slot, at_ns + CYCLE_NS);
    }
    atomic_store_explicit(&shared->finished, true, memory_order_release);
    return NULL;
}

/* Each second but the first and the last is full, and half of it busy. */
static bool
cells_are_whole(const lw_second *cells, int n)
{
    for (int i = 1; i + 1 < n; i++) {
        if (cells[i].number != cells[0].number + (uint64_t)i ||
            cells[i].busy_ns != LW_NS_PER_S / 2 || cells[i].idle_ns != LW_NS_PER_S / 2) {
            return false;
        }
    }
    return true;
}

/* As many turns as its length has cycles, in its counts and in its totals, but for what the writer
 * did while it was read. */
static bool
window_is_whole(const lw_window *window)
{
    uint64_t turns = 0, cycles = (window->end_ns - window->begin_ns) / CYCLE_NS;
    for (size_t i = 0; i < LW_HISTOGRAM_BUCKETS; i++) {
        turns += window->counts[i];
    }
    uint64_t tolerated = 50000 + cycles / 50; /* two seconds: a reader may lose its CPU */
    return turns <= cycles + tolerated && turns + tolerated >= cycles &&
           window->totals.turns <= cycles + tolerated && window->totals.turns + tolerated >= cycles;
}

/* (looks, wrong cells, wrong windows, looks that got nothing) */
static PyObject *
history_race(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    unsigned long long begin_ns, seconds;
    static lw_second cells[LW_SECONDS_MAX];
    static lw_window window;
    if (!PyArg_ParseTuple(args, "OKK", &object, &begin_ns, &seconds)) {
        return NULL;
    }
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    lw_slot_start(slot);
    race shared = {slot, begin_ns, begin_ns + seconds * LW_NS_PER_S, begin_ns, false};
    pthread_t writer;
    if (pthread_create(&writer, NULL, write_all, &shared) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "no thread");
        return NULL;
    }
    unsigned long looks = 0, wrong_cells = 0, wrong_windows = 0, nothing = 0;
    Py_BEGIN_ALLOW_THREADS
    while (!atomic_load_explicit(&shared.finished, memory_order_acquire)) {
        lw_ns now_ns = atomic_load_explicit(&shared.now_ns, memory_order_acquire);
        int n = lw_history_seconds(slot, now_ns, LW_SECONDS_MAX, cells);
        bool found = lw_history_window(slot, now_ns, RACE_WINDOW_NS, &window);
        looks++;
        nothing += n < 0 || !found;
        wrong_cells += n > 0 && !cells_are_whole(cells, n);
        wrong_windows += found && !window_is_whole(&window);
    }
    pthread_join(writer, NULL);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("kkkk", looks, wrong_cells, wrong_windows, nothing);
}

static PyObject *
history_waiting(PyObject *Py_UNUSED(module), PyObject *args)
{
    static lw_window window;
    PyObject *counts;
    unsigned long long busy_ns, idle_ns;
    double quantile;
    memset(&window, 0, sizeof window);
    if (!PyArg_ParseTuple(args, "O!KKd", &PyList_Type, &counts, &busy_ns, &idle_ns, &quantile)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(counts); i++) {
        unsigned long long bucket, count;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(counts, i), "KK", &bucket, &count)) {
            return NULL;
        }
        window.counts[bucket] += count;
    }
    window.totals.busy_ns = busy_ns;
    window.totals.idle_ns = idle_ns;
    return PyLong_FromUnsignedLongLong(lw_window_waiting_ns(&window, quantile));
}

PyMethodDef lw_test_history_methods[] = {
    {"history_play", history_play, METH_VARARGS,
     "history_play(slot, [(name, time, ...), ...]): calls of a pulse."},
    {"history_cells", history_cells, METH_VARARGS, "history_cells(slot, now_ns, seconds)"},
    {"history_window", history_window, METH_VARARGS, "history_window(slot, now_ns, length_ns)"},
    {"history_waiting", history_waiting, METH_VARARGS,
     "history_waiting([(bucket, turns), ...], busy_ns, idle_ns, quantile)"},
    {"history_interrupt", history_interrupt, METH_O,
     "history_interrupt(slot): as a fork in the middle of a pass."},
    {"history_forget", history_forget, METH_O, "history_forget(slot): as in the child of it."},
    {"history_race", history_race, METH_VARARGS,
     "history_race(slot, begin_ns, seconds) -> (looks, wrong cells, wrong windows, nothing): read "
     "while so many seconds are written."},
    {NULL, NULL, 0, NULL},
};
