/* What differs between the CPython versions that loopwatch supports, in one place. (Memory layouts:
 * frames/.) */
#ifndef LW_COMPAT_H
#define LW_COMPAT_H

#include <Python.h>

/* A new reference to dict[key], or NULL, with an exception set only where looking it up failed.
 * `dict` is a dict. */
static inline PyObject *
lw_dict_get(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *value = NULL;
    (void)PyDict_GetItemRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

/* A new reference to a local variable of a frame, or NULL with an exception set. On 3.11 the frame
 * keeps a dict of all its locals from then on, until it ends. */
static inline PyObject *
lw_frame_local(PyFrameObject *frame, const char *name)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyFrame_GetVarString(frame, name);
#else
    PyObject *locals = PyFrame_GetLocals(frame);
    PyObject *value = locals ? PyMapping_GetItemString(locals, name) : NULL;
    Py_XDECREF(locals);
    return value;
#endif
}

/* Around a few statements that touch an object's own fields; a lock only where there is no GIL.
 * Statements between the two form a block and may not leave it by return or goto. */
#if PY_VERSION_HEX >= 0x030D0000
#define LW_BEGIN_CRITICAL_SECTION(object) Py_BEGIN_CRITICAL_SECTION(object)
#define LW_END_CRITICAL_SECTION() Py_END_CRITICAL_SECTION()
#else
#define LW_BEGIN_CRITICAL_SECTION(object) {
#define LW_END_CRITICAL_SECTION() }
#endif

#endif
