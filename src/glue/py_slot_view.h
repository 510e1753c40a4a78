/* What Slot shows of its counters; methods of the type in py_slot.c. */
#ifndef LW_PY_SLOT_VIEW_H
#define LW_PY_SLOT_VIEW_H

#include <Python.h>

PyObject *lw_slot_counters(PyObject *object, PyObject *ignored);
PyObject *lw_slot_histogram(PyObject *object, PyObject *ignored);
PyObject *lw_slot_thread_name(PyObject *object, void *ignored); /* a getter */

#endif
