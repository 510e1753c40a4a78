/* What Slot asks of the watchdog (watch/ask.h); methods of the type in py_slot.c. */
#ifndef LW_PY_ASK_H
#define LW_PY_ASK_H

#include <Python.h>

PyObject *lw_slot_current(PyObject *object, PyObject *timeout_ns);
PyObject *lw_slot_profile(PyObject *object, PyObject *args);
PyObject *lw_slot_stacks(PyObject *object, PyObject *args);

#endif
