/* Slot.cells() and Slot.window(): the history of a loop as Python objects. It is read into memory of
 * our own first, without the GIL, because a reader may have to wait for a writer. */
#include "py_history.h"

#include "history/history.h"
#include "py_buckets.h"
#include "py_slot.h"

static PyObject *
cell_tuple(const lw_second *second)
{
    PyObject *gc_ns =
        second->gc_ns == LW_NOT_KNOWN ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(second->gc_ns);
    return gc_ns
               ? Py_BuildValue("(KKIIKNI)", (unsigned long long)second->number,
                               (unsigned long long)second->at_ns, second->busy_ns, second->idle_ns,
                               (unsigned long long)second->worst_ns, gc_ns, second->gil_wait_ns)
               : NULL;
}

static PyObject *
cell_list(const lw_second *seconds, int n)
{
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *tuple = cell_tuple(&seconds[i]);
        if (!tuple) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, tuple);
    }
    return list;
}

PyObject *
lw_cells_at(PyObject *object, unsigned long long now_ns, int seconds)
{
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    if (seconds < 1 || seconds > LW_SECONDS_MAX) {
        return PyErr_Format(PyExc_ValueError, "from 1 to %d cells are kept, not %d", LW_SECONDS_MAX,
                            seconds);
    }
    lw_second *found = PyMem_RawMalloc((size_t)seconds * sizeof *found);
    if (!found) {
        return PyErr_NoMemory();
    }
    int n;
    Py_BEGIN_ALLOW_THREADS
    n = lw_history_seconds(slot, now_ns, seconds, found);
    Py_END_ALLOW_THREADS
    PyObject *list = cell_list(found, n < 0 ? 0 : n);
    PyMem_RawFree(found);
    return list;
}

PyObject *
lw_slot_cells(PyObject *object, PyObject *argument)
{
    int overflow;
    long seconds = PyLong_AsLongAndOverflow(argument, &overflow);
    if (seconds == -1 && PyErr_Occurred()) {
        return NULL;
    }
    bool fits = !overflow && seconds >= 0 && seconds <= LW_SECONDS_MAX;
    return lw_cells_at(object, lw_now_ns(), fits ? (int)seconds : -1);
}

static PyObject *
window_tuple(const lw_window *window)
{
    const lw_totals *totals = &window->totals;
    PyObject *buckets = lw_buckets_in_use(window->counts);
    return buckets ? Py_BuildValue(
                         "N{sKsKsKsKsK}KK", buckets, "turns", (unsigned long long)totals->turns,
                         "busy_ns", (unsigned long long)totals->busy_ns, "idle_ns",
                         (unsigned long long)totals->idle_ns, "gil_wait_ns",
                         (unsigned long long)totals->gil_wait_ns, "max_ns",
                         (unsigned long long)window->worst_ns, (unsigned long long)window->begin_ns,
                         (unsigned long long)window->end_ns)
                   : NULL;
}

PyObject *
lw_window_at(PyObject *object, unsigned long long now_ns, unsigned long long length_ns)
{
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    lw_window *window = PyMem_RawMalloc(sizeof *window);
    if (!window) {
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS(void)
    lw_history_window(slot, now_ns, length_ns, window);
    Py_END_ALLOW_THREADS
    PyObject *tuple = window_tuple(window);
    PyMem_RawFree(window);
    return tuple;
}

PyObject *
lw_slot_window(PyObject *object, PyObject *argument)
{
    unsigned long long length_ns = PyLong_AsUnsignedLongLong(argument);
    if (length_ns == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return lw_window_at(object, lw_now_ns(), length_ns);
}
