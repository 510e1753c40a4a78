/* Module functions between the reporter thread and the outbox: each is one call of the core. */
#include "py_reporter.h"

#include <stdlib.h>

#include "evidence/evidence.h"
#include "evidence/gc_clock.h"
#include "evidence/gc_pauses.h"
#include "evidence/thread_files.h"
#include "frames/gil.h"
#include "frames/snapshot.h"
#include "histogram.h"
#include "py_record.h"
#include "report/outbox.h"
#include "report/own.h"
#include "slot.h"
#include "state.h"
#include "watch/watchdog.h"

#define GONE_WITHIN_NS (100 * LW_NS_PER_MS)

static PyObject *
next_record(PyObject *Py_UNUSED(module), PyObject *argument)
{
    lw_ns deadline_ns = LW_NS_NEVER;
    if (argument != Py_None) {
        unsigned long long timeout_ns = PyLong_AsUnsignedLongLong(argument);
        if (PyErr_Occurred()) {
            return NULL;
        }
        deadline_ns = lw_now_ns() + timeout_ns;
    }
    bool found;
    Py_BEGIN_ALLOW_THREADS
    found = lw_outbox_wait(deadline_ns);
    Py_END_ALLOW_THREADS
    if (!found) {
        lw_outbox_interrupted();
        Py_RETURN_NONE;
    }
    PyObject *record = lw_record_decode(lw_outbox_peek());
    lw_outbox_release(); /* also where it could not be decoded: it would not get better */
    return record;
}

static PyObject *
claim(PyObject *Py_UNUSED(module), PyObject *argument)
{
    unsigned long long token = PyLong_AsUnsignedLongLong(argument);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(lw_outbox_claim(token));
}

static PyObject *
delivered(PyObject *Py_UNUSED(module), PyObject *argument)
{
    unsigned long long token = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    lw_outbox_delivered(token);
    Py_RETURN_NONE;
}

/* Stalls that ended and are not written, and, where `retiring`, slots that the watchdog has not let
 * go: it has yet to send their profiles, and is woken, since a quiet retirement did not. */
static uint64_t
unwritten(bool retiring)
{
    uint64_t n = 0;
    uint64_t n_retiring = 0;
    if (!lw_watchdog_runs()) { /* nobody will write them */
        return 0;
    }
    for (lw_slot *slot = lw_slot_first(); slot;
         slot = atomic_load_explicit(&slot->next, memory_order_relaxed)) {
        lw_slot_state state = lw_slot_state_of(slot);
        n_retiring += state == LW_SLOT_RETIRING;
        if (state == LW_SLOT_ACTIVE || state == LW_SLOT_RETIRING) {
            n += atomic_load_explicit(&slot->ended.head, memory_order_acquire) -
                 atomic_load_explicit(&slot->ended.tail, memory_order_acquire);
        }
    }
    if (retiring && n_retiring) {
        lw_watchdog_wake();
        n += n_retiring;
    }
    return n;
}

static PyObject *
pending(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    uint64_t n = unwritten(true); /* first: what is written meanwhile is pending there */
    return PyLong_FromUnsignedLongLong(n + lw_outbox_pending());
}

static PyObject *
pending_stalls(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    uint64_t n = unwritten(false);
    return PyLong_FromUnsignedLongLong(n + lw_outbox_pending());
}

static PyObject *
taken(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromUnsignedLongLong(lw_outbox_taken());
}

static PyObject *
stop_reporter(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    lw_outbox_interrupt();
    Py_RETURN_NONE;
}

static PyObject *
stop_watchdog(PyObject *Py_UNUSED(module), PyObject *argument)
{
    unsigned long long timeout_ns = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    bool ended;
    Py_BEGIN_ALLOW_THREADS
    ended = lw_watchdog_stop(timeout_ns);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(ended);
}

/* A thread is joined before the kernel is done with it: who counts threads would still see it. */
static PyObject *
await_gone(PyObject *Py_UNUSED(module), PyObject *argument)
{
    int tid = (int)PyLong_AsLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    lw_thread_await_gone(tid, lw_now_ns() + GONE_WITHIN_NS);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
set_rearm(PyObject *module, PyObject *callback)
{
    lw_state *state = lw_state_of(module);
    PyObject *before = state->rearm;
    state->rearm = callback == Py_None ? NULL : Py_NewRef(callback);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *
gc_clock(PyObject *Py_UNUSED(module), PyObject *argument)
{
    int on = PyObject_IsTrue(argument);
    if (on < 0 || (on ? lw_gc_clock_start() : lw_gc_clock_stop()) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
gc_pauses(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *rows = PyTuple_New(LW_GC_GENERATIONS);
    for (int32_t i = 0; rows && i < LW_GC_GENERATIONS; i++) {
        lw_gc_pause_sum sum = lw_gc_pauses(i);
        PyObject *row = Py_BuildValue("KKK", (unsigned long long)sum.count,
                                      (unsigned long long)sum.ns, (unsigned long long)sum.worst_ns);
        if (!row) {
            Py_CLEAR(rows);
            break;
        }
        PyTuple_SET_ITEM(rows, i, row);
    }
    return rows;
}

static PyObject *
gc_leave_out(PyObject *Py_UNUSED(module), PyObject *argument)
{
    int leave = PyObject_IsTrue(argument);
    if (leave < 0) {
        return NULL;
    }
    lw_gc_pauses_leave_out(leave);
    Py_RETURN_NONE;
}

static PyObject *
histogram_edge(PyObject *Py_UNUSED(module), PyObject *argument)
{
    size_t bucket = PyLong_AsSize_t(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (bucket > LW_HISTOGRAM_BUCKETS) {
        return PyErr_Format(PyExc_ValueError, "bucket: %zu is more than %zu", bucket,
                            LW_HISTOGRAM_BUCKETS);
    }
    return PyLong_FromUnsignedLongLong(lw_histogram_edge(bucket));
}

static PyObject *
set_libraries(PyObject *Py_UNUSED(module), PyObject *argument)
{
    const char *directories[LW_LIBRARIES_MAX];
    PyObject *sequence = PySequence_Tuple(argument);
    if (!sequence) {
        return NULL;
    }
    size_t n = (size_t)PyTuple_GET_SIZE(sequence);
    PyObject *result = NULL;
    for (size_t i = 0; i < n && i < LW_LIBRARIES_MAX; i++) {
        directories[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(sequence, (Py_ssize_t)i));
        if (!directories[i]) {
            goto done;
        }
    }
    if (n > LW_LIBRARIES_MAX) {
        PyErr_Format(PyExc_ValueError, "directories: at most %d", LW_LIBRARIES_MAX);
    }
    else if (!lw_own_set_libraries(directories, n)) {
        lw_raise(LW_ERR_MEMORY);
    }
    else {
        result = Py_NewRef(Py_None);
    }
done:
    Py_DECREF(sequence);
    return result;
}

static PyObject *
frames_reason(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    const char *reason = lw_frames_reason();
    if (!reason) {
        Py_RETURN_NONE;
    }
    return PyUnicode_FromString(reason);
}

static PyObject *
facts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    lw_watchdog_facts dog;
    Py_BEGIN_ALLOW_THREADS
    lw_watchdog_facts_get(&dog);
    Py_END_ALLOW_THREADS
    PyObject *errors = PyDict_New();
    for (int i = LW_READ_MEMFD; errors && i <= LW_READ_PROC_MEM; i++) {
        PyObject *error = PyLong_FromLong(dog.read_errors[i]);
        if (!error ||
            PyDict_SetItemString(errors, lw_read_backend_name((lw_read_backend)i), error) < 0) {
            Py_CLEAR(errors);
        }
        Py_XDECREF(error);
    }
    if (!errors) {
        return NULL;
    }
    PyObject *evidence = Py_BuildValue(
        "{sNsNsNsNszsN}", "schedstat", PyBool_FromLong((dog.known & LW_KNOWS_RUN_QUEUE) != 0),
        "syscall", PyBool_FromLong((dog.known & LW_KNOWS_STAND) != 0), "stat",
        PyBool_FromLong((dog.known & LW_KNOWS_FAULTS) != 0), "throttled",
        PyBool_FromLong(dog.cgroup), "gil", lw_gil_reason(), "gc",
        PyBool_FromLong(lw_gc_clock_runs()));
    if (!evidence) {
        Py_DECREF(errors);
        return NULL;
    }
    return Py_BuildValue("{sNsssNsNsiszsNsN}", "watchdog", PyBool_FromLong(lw_watchdog_runs()),
                         "read_backend", lw_read_backend_name(dog.backend), "read_errors", errors,
                         "own_descriptor_table", PyBool_FromLong(dog.own_table),
                         "descriptor_table_errno", dog.table_error, "descriptor_table_failed_call",
                         dog.table_failed_call, "tracer_readable",
                         PyBool_FromLong(dog.tracer_readable), "evidence", evidence);
}

PyMethodDef lw_reporter_methods[] = {
    {"next_record", next_record, METH_O,
     "next_record(timeout_ns): wait for a record, without the GIL."},
    {"claim", claim, METH_O,
     "claim(token) -> bool: False where the watchdog has written the record itself."},
    {"delivered", delivered, METH_O, "delivered(token): a sink took the record."},
    {"pending", pending, METH_NOARGS, "How many stalls and records are on their way."},
    {"pending_stalls", pending_stalls, METH_NOARGS, "Those without what only profiles wait for."},
    {"taken", taken, METH_NOARGS, "How many records next_record() has returned."},
    {"stop_reporter", stop_reporter, METH_NOARGS, "next_record() returns None, once."},
    {"await_gone", await_gone, METH_O,
     "await_gone(native_thread_id): wait until the kernel is done with a joined thread."},
    {"stop_watchdog", stop_watchdog, METH_O, "stop_watchdog(timeout_ns) -> bool."},
    {"gc_clock", gc_clock, METH_O, "gc_clock(on): stamp collections from now on, or no longer."},
    {"gc_pauses", gc_pauses, METH_NOARGS, "((count, ns, worst_ns), ...) by generation."},
    {"gc_leave_out", gc_leave_out, METH_O,
     "gc_leave_out(leave): collections do not count in gc_pauses() from now on, or do again."},
    {"set_rearm", set_rearm, METH_O, "set_rearm(callable or None)."},
    {"set_libraries", set_libraries, METH_O,
     "set_libraries(directories): what is not the program's own code."},
    {"histogram_edge", histogram_edge, METH_O, "The least nanoseconds that fall into a bucket."},
    {"frames_reason", frames_reason, METH_NOARGS, "Why raw capture does not work here, or None."},
    {"facts", facts, METH_NOARGS, "What doctor() shows of the native half."},
    {NULL, NULL, 0, NULL},
};
