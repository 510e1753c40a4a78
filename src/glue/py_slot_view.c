/* Slot.counters(), Slot.histogram() and Slot.thread: what others write, as Python objects. */
#include "py_slot_view.h"

#include <string.h>

#include "py_buckets.h"
#include "py_slot.h"
#include "status/status.h"
#include "watch/watchdog.h"

#define RELAXED memory_order_relaxed

static int
put_count(PyObject *dict, const char *name, uint64_t value)
{
    PyObject *number = PyLong_FromUnsignedLongLong(value);
    int result = number ? PyDict_SetItemString(dict, name, number) : -1;
    Py_XDECREF(number);
    return result;
}

static int
put_seconds(PyObject *dict, const char *name, lw_ns value_ns)
{
    PyObject *number = PyFloat_FromDouble((double)value_ns / 1e9);
    int result = number ? PyDict_SetItemString(dict, name, number) : -1;
    Py_XDECREF(number);
    return result;
}

PyObject *
lw_slot_thread_name(PyObject *object, void *Py_UNUSED(ignored))
{
    lw_thread thread;
    if (!lw_slot_thread(lw_slot_of(object), &thread)) {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeUTF8(thread.name, (Py_ssize_t)strlen(thread.name), "replace");
}

PyObject *
lw_slot_counters(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    lw_slot *slot = lw_slot_of(object);
    lw_watchdog_stats dog;
    lw_watchdog_stats_get(&dog);
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"turns", atomic_load_explicit(&slot->turns, RELAXED)},
        {"stalls", atomic_load_explicit(&slot->stalls, RELAXED)},
        {"stalls_exempt", atomic_load_explicit(&slot->exempt, RELAXED)},
        {"stalls_debugged", atomic_load_explicit(&slot->debugged, RELAXED)},
        {"samples", atomic_load_explicit(&slot->samples, RELAXED)},
        {"samples_exact", atomic_load_explicit(&slot->samples_exact, RELAXED)},
        {"samples_moving", atomic_load_explicit(&slot->samples_moving, RELAXED)},
        {"records_dropped", atomic_load_explicit(&slot->dropped, RELAXED) +
                                atomic_load_explicit(&slot->ended.dropped, RELAXED)},
        {"dumps", atomic_load_explicit(&slot->dumps, RELAXED)},
        {"dumps_failed", atomic_load_explicit(&slot->dumps_failed, RELAXED)},
        {"status_failed", lw_status_failed()},
        {"watchdog_wakeups", dog.wakeups},
        {"walks", dog.snaps.walks},
        {"walks_broken", dog.snaps.broken},
        {"walks_endless", dog.snaps.endless},
        {"codes_full", dog.snaps.codes_full},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof counts / sizeof *counts; i++) {
        if (put_count(dict, counts[i].name, counts[i].value) < 0) {
            Py_CLEAR(dict);
        }
    }
    if (dict && (put_seconds(dict, "watchdog_cpu_time", dog.cpu_ns) < 0 ||
                 put_seconds(dict, "watchdog_worst_lateness", dog.worst_lateness_ns) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
lw_slot_histogram(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    lw_slot *slot = lw_slot_of(object);
    uint64_t *counts = PyMem_New(uint64_t, LW_HISTOGRAM_BUCKETS);
    if (!counts) {
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < LW_HISTOGRAM_BUCKETS; i++) {
        counts[i] = atomic_load_explicit(&slot->histogram.buckets[i], RELAXED);
    }
    PyObject *buckets = lw_buckets_in_use(counts);
    PyMem_Free(counts);
    return buckets
               ? Py_BuildValue(
                     "N{sKsKsKsKsK}", buckets, "turns",
                     (unsigned long long)atomic_load_explicit(&slot->turns, RELAXED), "busy_ns",
                     (unsigned long long)atomic_load_explicit(&slot->histogram.sum_ns, RELAXED),
                     "idle_ns", (unsigned long long)atomic_load_explicit(&slot->idle_ns, RELAXED),
                     "gil_wait_ns",
                     (unsigned long long)atomic_load_explicit(&slot->gil_wait_ns, RELAXED),
                     "max_ns",
                     (unsigned long long)atomic_load_explicit(&slot->histogram.max_ns, RELAXED))
               : NULL;
}
