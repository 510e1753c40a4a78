/* The cancellation that waits for a running task: running_task.h.
 *
 * A task that is cancelled while it runs (by itself, by what it calls, by a signal handler) learns
 * of it when it next suspends. asyncio notes that in Task._must_cancel, which tasks in C and in
 * Python have, and clears it with the delivery; Task.cancelling() stays up afterwards.
 *
 * The running task is asked of asyncio: from 3.12 on its current_task() is a C function of some
 * 25 ns. On 3.11 it is one in Python, and asking for the running loop is a system call there, so
 * the dict of running tasks is read; with one entry that is the task that runs here.
 *
 * asyncio is imported as a whole, and first: _asyncio imported on its own leaves asyncio with two
 * kinds of tasks.
 */
#include "running_task.h"

#include "compat.h"

static int
import_dict(lw_task_finder *finder, PyObject *tasks)
{
    PyObject *events = PyImport_ImportModule("asyncio.events");
    finder->current_tasks = PyObject_GetAttrString(tasks, "_current_tasks");
    finder->get_running_loop = events ? PyObject_GetAttrString(events, "_get_running_loop") : NULL;
    Py_XDECREF(events);
    if (!finder->current_tasks || !finder->get_running_loop) {
        return -1;
    }
    if (!PyDict_CheckExact(finder->current_tasks)) {
        PyErr_SetString(PyExc_RuntimeError, "asyncio.tasks._current_tasks is not a dict");
        return -1;
    }
    return 0;
}

int
lw_task_finder_init(lw_task_finder *finder)
{
    PyObject *tasks = PyImport_ImportModule("asyncio.tasks");
    PyObject *current_task = tasks ? PyObject_GetAttrString(tasks, "current_task") : NULL;
    finder->must_cancel = PyUnicode_InternFromString("_must_cancel");
    int result = current_task && finder->must_cancel ? 0 : -1;
    if (result == 0 && PyCFunction_Check(current_task)) {
        finder->current_task = Py_NewRef(current_task);
    }
    else if (result == 0) {
        result = import_dict(finder, tasks);
    }
    Py_XDECREF(current_task);
    Py_XDECREF(tasks);
    return result;
}

int
lw_task_finder_traverse(lw_task_finder *finder, visitproc visit, void *arg)
{
    Py_VISIT(finder->current_task);
    Py_VISIT(finder->current_tasks);
    Py_VISIT(finder->get_running_loop);
    Py_VISIT(finder->must_cancel);
    return 0;
}

void
lw_task_finder_clear(lw_task_finder *finder)
{
    Py_CLEAR(finder->current_task);
    Py_CLEAR(finder->current_tasks);
    Py_CLEAR(finder->get_running_loop);
    Py_CLEAR(finder->must_cancel);
}

/* A new reference, or NULL, maybe with an exception set. */
static PyObject *
task_in_dict(const lw_task_finder *finder)
{
    PyObject *key, *task = NULL;
    Py_ssize_t place = 0;
    if (PyDict_GET_SIZE(finder->current_tasks) == 1) {
        PyDict_Next(finder->current_tasks, &place, &key, &task);
        return Py_XNewRef(task);
    }
    PyObject *loop = PyObject_CallNoArgs(finder->get_running_loop);
    task = loop ? lw_dict_get(finder->current_tasks, loop) : NULL;
    Py_XDECREF(loop);
    return task;
}

bool
lw_running_task_must_cancel(const lw_task_finder *finder)
{
    PyObject *task =
        finder->current_task ? PyObject_CallNoArgs(finder->current_task) : task_in_dict(finder);
    PyObject *answer = task && task != Py_None ? PyObject_GetAttr(task, finder->must_cancel) : NULL;
    bool must = answer == Py_True;
    Py_XDECREF(answer);
    Py_XDECREF(task);
    if (!answer) {
        PyErr_Clear(); /* no loop runs here, or a task of another kind */
    }
    return must;
}
