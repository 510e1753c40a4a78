/* Noting which thread a loop runs on: the part of pulse.h that needs Python. */
#include <Python.h>

#include "pulse.h"

#include <string.h>

/* UTF-8, cut at a character. */
static void
copy_name(char out[LW_THREAD_NAME_MAX + 1], const char *name, size_t length)
{
    if (length > LW_THREAD_NAME_MAX) {
        length = LW_THREAD_NAME_MAX;
        while (length && ((unsigned char)name[length] & 0xC0) == 0x80) {
            length--;
        }
    }
    memcpy(out, name, length);
    out[length] = '\0';
}

/* The name that threading has for this thread. A thread that threading does not know stays unknown
 * to it: current_thread() would leave a dummy behind. */
static int
name_of_this_thread(unsigned long ident, char out[LW_THREAD_NAME_MAX + 1])
{
    int result = -1;
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *threads = threading ? PyObject_CallMethod(threading, "enumerate", NULL) : NULL;
    PyObject *name = NULL;
    copy_name(out, "?", 1);
    if (!threads || !PyList_Check(threads)) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(threads); i++) {
        PyObject *thread = PyList_GET_ITEM(threads, i);
        PyObject *its_ident = PyObject_GetAttrString(thread, "ident");
        if (!its_ident) {
            goto done;
        }
        bool same = its_ident != Py_None && PyLong_AsUnsignedLong(its_ident) == ident;
        Py_DECREF(its_ident);
        if (PyErr_Occurred()) {
            goto done;
        }
        if (same) {
            Py_ssize_t length;
            name = PyObject_GetAttrString(thread, "name");
            const char *utf8 =
                name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &length) : NULL;
            if (utf8) {
                copy_name(out, utf8, (size_t)length);
            }
            else if (name) { /* a name with lone surrogates, or none at all: it stays "?" */
                PyErr_Clear();
            }
            break;
        }
    }
    result = PyErr_Occurred() ? -1 : 0;
done:
    Py_XDECREF(name);
    Py_XDECREF(threads);
    Py_XDECREF(threading);
    return result;
}

int
lw_pulse_bind(lw_slot *slot)
{
    uint64_t tstate_id = PyThreadState_GetID(PyThreadState_Get()) + 1; /* 0: not bound yet */
    if (slot->bound.tstate_id == tstate_id) {
        return 0;
    }
    lw_thread thread;
    memset(&thread, 0, sizeof thread);
    lw_thread_ref_here(&thread.ref);
    if (name_of_this_thread(thread.ref.ident, thread.name) < 0) {
        return -1;
    }
    lw_slot_set_thread(slot, &thread);
    slot->bound.tstate_id = tstate_id;
    return 0;
}
