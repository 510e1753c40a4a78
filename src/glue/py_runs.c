/* Module functions that put and take the hook on every run (runs.h), and look for loops that run
 * already. */
#include "py_runs.h"

#include "frames/running_loops.h"
#include "runs/runs.h"
#include "state.h"

static PyObject *
watch_runs(PyObject *module, PyObject *callback)
{
    lw_state *state = lw_state_of(module);
    if (!PyCallable_Check(callback)) {
        return PyErr_Format(PyExc_TypeError, "callback must be callable, not %.100s",
                            Py_TYPE(callback)->tp_name);
    }
    /* A callback is kept when the hook is taken off, for a thread that is about to call it. */
    PyObject *before = state->on_run;
    int result = lw_runs_watch(callback);
    if (result < 0) {
        return NULL;
    }
    state->on_run = Py_NewRef(callback);
    Py_XDECREF(before);
    return PyBool_FromLong(result == 0);
}

static PyObject *
unwatch_runs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    lw_runs_unwatch();
    Py_RETURN_NONE;
}

static PyObject *
run_begins(PyObject *Py_UNUSED(module), PyObject *loop)
{
    lw_runs_begin(loop);
    Py_RETURN_NONE;
}

static PyObject *
run_ends(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    lw_runs_end();
    Py_RETURN_NONE;
}

static PyObject *
running_loops(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return lw_running_loops();
}

void
lw_py_runs_clear(PyObject *module)
{
    lw_runs_unwatch();
    Py_CLEAR(lw_state_of(module)->on_run);
}

PyMethodDef lw_runs_methods[] = {
    {"watch_runs", watch_runs, METH_O,
     "watch_runs(callback) -> bool: call it with each loop that begins to run."},
    {"unwatch_runs", unwatch_runs, METH_NOARGS, "Call it no longer."},
    {"run_begins", run_begins, METH_O, "run_begins(loop): right after it became the running one."},
    {"run_ends", run_ends, METH_NOARGS, "Right before the running loop is no more."},
    {"running_loops", running_loops, METH_NOARGS,
     "The loops that run now in any thread; None where that cannot be told."},
    {NULL, NULL, 0, NULL},
};
