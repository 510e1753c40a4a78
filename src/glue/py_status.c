/* Module functions that give the watchdog a status page (status/status.h), and what it is to say of
 * executors. */
#include "py_status.h"

#include "status/note.h"
#include "status/status.h"
#include "watch/watchdog.h"

#define ADOPT_WITHIN_NS LW_NS_PER_S

static PyObject *
status_page(PyObject *Py_UNUSED(module), PyObject *argument)
{
    int fd = (int)PyLong_AsLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    bool adopted;
    Py_BEGIN_ALLOW_THREADS
    adopted = lw_status_use(fd, ADOPT_WITHIN_NS);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(adopted);
}

static PyObject *
status_note(PyObject *Py_UNUSED(module), PyObject *argument)
{
    char *json;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(argument, &json, &length) < 0) {
        return NULL;
    }
    if (!lw_note_set(json, (size_t)length)) {
        return PyErr_Format(PyExc_ValueError, "note: %zd bytes are more than %d", length,
                            LW_NOTE_MAX);
    }
    lw_watchdog_wake();
    Py_RETURN_NONE;
}

static PyObject *
status_written(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(lw_status_writes());
}

PyMethodDef lw_status_methods[] = {
    {"status_page", status_page, METH_O,
     "status_page(fd) -> bool: the watchdog writes the status page there (-1: nowhere); False "
     "where it does not run or did not take it in time: it never will."},
    {"status_note", status_note, METH_O, "status_note(json): what the page says of executors."},
    {"status_written", status_written, METH_NOARGS, "Whether the watchdog has a status page."},
    {NULL, NULL, 0, NULL},
};
