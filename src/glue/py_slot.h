/* _core.Slot: one watched loop's native half, as Python sees it. */
#ifndef LW_PY_SLOT_H
#define LW_PY_SLOT_H

#include <Python.h>

#include "slot.h"

/* Borrowed, valid while the object lives (hooks take a reference of their own with lw_slot_incref);
 * NULL with TypeError where `object` is not a _core.Slot. */
lw_slot *lw_slot_of(PyObject *object);

/* Calls set_rearm()'s callable with the slot's object. -1 with an exception set. */
int lw_slot_call_rearm(lw_slot *slot);

/* Adds the type to the module and its state. -1 with an exception set. */
int lw_py_slot_add(PyObject *module);

#endif
