/* The stamp: a callable in gc.callbacks that tells the clock when a collection begins and ends.
 *
 * The list belongs to the program, which may clear it. That is noticed by the stamp's end: nobody
 * but the list holds a reference to it, and what it is bound to is a capsule that says goodbye.
 * Where the program keeps a copy of the list, the list is at least empty.
 */
#include "gc_clock.h"

#include <limits.h>
#include <stdatomic.h>

#include "compat.h"

#define RELAXED memory_order_relaxed

/* With the GIL, but for `alive`. */
static PyObject *callbacks; /* gc.callbacks, from the first start on */
static PyObject *stamp;     /* in it; borrowed, NULL once it is gone */
static PyObject *bound_to;  /* its capsule; likewise */
static _Atomic bool alive;  /* there is a stamp */

static int32_t
generation_of(PyObject *info)
{
    long generation = -1;
    PyObject *key = PyUnicode_InternFromString("generation");
    PyObject *value = key && PyDict_Check(info) ? lw_dict_get(info, key) : NULL;
    if (value) {
        generation = PyLong_AsLong(value);
    }
    Py_XDECREF(value);
    Py_XDECREF(key);
    return generation >= 0 && generation <= INT32_MAX ? (int32_t)generation : -1;
}

/* gc calls it as callback(phase, info). It never fails: what it does not understand it ignores. */
static PyObject *
gc_stamp(PyObject *Py_UNUSED(capsule), PyObject *const *args, Py_ssize_t n)
{
    if (n == 2 && PyUnicode_Check(args[0])) {
        if (PyUnicode_CompareWithASCIIString(args[0], "start") == 0) {
            lw_gc_clock_began(generation_of(args[1]));
        }
        else if (PyUnicode_CompareWithASCIIString(args[0], "stop") == 0) {
            lw_gc_clock_ended();
        }
    }
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyMethodDef gc_stamp_method = {
    "gc_stamp",
    (PyCFunction)(void (*)(void))gc_stamp,
    METH_FASTCALL,
    "loopwatch's stamp: when a collection began and ended.",
};

/* --- in gc.callbacks --- */

static void
forget_stamp(void)
{
    atomic_store_explicit(&alive, false, RELAXED);
    stamp = bound_to = NULL;
    lw_gc_clock_drop();
}

/* Not where an older one goes, which the program had kept. */
static void
stamp_is_gone(PyObject *capsule)
{
    if (capsule == bound_to) {
        forget_stamp();
    }
}

/* A new reference, or NULL with an exception set. */
static PyObject *
new_stamp(void)
{
    PyObject *capsule = PyCapsule_New(&gc_stamp_method, NULL, stamp_is_gone);
    PyObject *function = capsule ? PyCFunction_New(&gc_stamp_method, capsule) : NULL;
    Py_XDECREF(capsule);
    return function;
}

static int
find_callbacks(void)
{
    if (!callbacks) {
        PyObject *gc = PyImport_ImportModule("gc");
        PyObject *list = gc ? PyObject_GetAttrString(gc, "callbacks") : NULL;
        Py_XDECREF(gc);
        if (list && PyList_Check(list)) {
            callbacks = list; /* for good: the interpreter has no other */
        }
        else if (list) {
            Py_DECREF(list);
            PyErr_SetString(PyExc_RuntimeError, "gc.callbacks is not a list");
        }
    }
    return callbacks ? 0 : -1;
}

/* Where the stamp is in the list; -1: it is not there. */
static Py_ssize_t
find_stamp(void)
{
    for (Py_ssize_t i = 0; stamp && i < PyList_GET_SIZE(callbacks); i++) {
        if (PyList_GET_ITEM(callbacks, i) == stamp) {
            return i;
        }
    }
    return -1;
}

int
lw_gc_clock_start(void)
{
    if (find_callbacks() < 0) {
        return -1;
    }
    if (find_stamp() >= 0) {
        return 0;
    }
    PyObject *fresh = new_stamp(); /* also where the program keeps one that it took out */
    if (!fresh) {
        return -1;
    }
    stamp = fresh;
    bound_to = PyCFunction_GET_SELF(fresh);
    lw_gc_clock_drop();
    atomic_store_explicit(&alive, true, RELAXED);
    int failed = PyList_Append(callbacks, fresh);
    Py_DECREF(fresh); /* the list's now, or gone */
    return failed;
}

int
lw_gc_clock_stop(void)
{
    Py_ssize_t place = callbacks ? find_stamp() : -1;
    if (place < 0) {
        return 0;
    }
    forget_stamp(); /* now, since the program may keep it */
    return PySequence_DelItem(callbacks, place);
}

/* --- no GIL --- */

/* The list's length is looked at because a program may clear it and keep a copy. */
bool
lw_gc_clock_runs(void)
{
    return atomic_load_explicit(&alive, RELAXED) &&
           __atomic_load_n(&((PyVarObject *)callbacks)->ob_size, __ATOMIC_RELAXED) > 0;
}
