/* What Slot shows of its history; methods of the type in py_slot.c. */
#ifndef LW_PY_HISTORY_H
#define LW_PY_HISTORY_H

#include <Python.h>

PyObject *lw_slot_cells(PyObject *object, PyObject *seconds);
PyObject *lw_slot_window(PyObject *object, PyObject *length_ns);

/* For tests, which say what the time is. NULL with an exception set. */
PyObject *lw_cells_at(PyObject *object, unsigned long long now_ns, int seconds);
PyObject *lw_window_at(PyObject *object, unsigned long long now_ns, unsigned long long length_ns);

#endif
