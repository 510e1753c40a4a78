/* The stamps of collections, for tests/core/test_gc_clock.py. */
#include "testcore.h"

#include <pthread.h>
#include <stdatomic.h>

#include "evidence/gc_clock.h"

static PyObject *
gc_runs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(lw_gc_clock_runs());
}

static PyObject *
gc_ns(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long ident, now_ns;
    if (!PyArg_ParseTuple(args, "KK", &ident, &now_ns)) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(lw_gc_clock_ns(ident, now_ns));
}

static PyObject *
gc_current(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long ident;
    lw_gc_span span;
    if (!PyArg_ParseTuple(args, "K", &ident)) {
        return NULL;
    }
    if (!lw_gc_clock_current(ident, &span)) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("KKKKi", (unsigned long long)span.begin_ns,
                         (unsigned long long)span.end_ns, (unsigned long long)span.ident,
                         (unsigned long long)span.frame, (int)span.generation);
}

static PyObject *
gc_within(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long ident, begin_ns, end_ns;
    if (!PyArg_ParseTuple(args, "KKK", &ident, &begin_ns, &end_ns)) {
        return NULL;
    }
    int32_t generation;
    lw_ns ns = lw_gc_clock_within(ident, begin_ns, end_ns, &generation);
    return Py_BuildValue("Ki", (unsigned long long)ns, (int)generation);
}

/* --- a thread that reads all the time, as the watchdog but faster --- */

static pthread_t spy;
static _Atomic bool spying;
static uint64_t spy_ident, spy_reads, spy_wrong;

static void *
run_spy(void *unused)
{
    lw_ns before_ns = 0;
    while (atomic_load(&spying)) {
        lw_gc_span span;
        int32_t generation;
        lw_ns now_ns = lw_now_ns();
        lw_ns ns = lw_gc_clock_ns(spy_ident, now_ns);
        bool collects = lw_gc_clock_current(spy_ident, &span);
        (void)lw_gc_clock_within(spy_ident, 0, now_ns, &generation);
        spy_reads++;
        spy_wrong += ns < before_ns || generation > 2 ||
                     (collects && (span.end_ns != LW_NS_NEVER || span.generation < 0));
        before_ns = ns;
    }
    return unused;
}

static PyObject *
gc_spy_start(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long ident;
    if (!PyArg_ParseTuple(args, "K", &ident)) {
        return NULL;
    }
    spy_ident = ident;
    spy_reads = spy_wrong = 0;
    atomic_store(&spying, true);
    if (pthread_create(&spy, NULL, run_spy, NULL)) {
        PyErr_SetString(PyExc_RuntimeError, "no thread");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
gc_spy_stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    atomic_store(&spying, false);
    pthread_join(spy, NULL);
    return Py_BuildValue("KK", (unsigned long long)spy_reads, (unsigned long long)spy_wrong);
}

PyMethodDef lw_test_gc_clock_methods[] = {
    {"gc_runs", gc_runs, METH_NOARGS, "gc_runs() -> bool"},
    {"gc_ns", gc_ns, METH_VARARGS, "gc_ns(ident, now_ns) -> ns of collections"},
    {"gc_current", gc_current, METH_VARARGS,
     "gc_current(ident) -> (begin_ns, end_ns, ident, frame, generation) | None"},
    {"gc_within", gc_within, METH_VARARGS,
     "gc_within(ident, begin_ns, end_ns) -> (ns, generation)"},
    {"gc_spy_start", gc_spy_start, METH_VARARGS,
     "gc_spy_start(ident): a native thread reads all the time"},
    {"gc_spy_stop", gc_spy_stop, METH_NOARGS, "gc_spy_stop() -> (reads, impossible ones)"},
    {NULL, NULL, 0, NULL},
};
