/* WrappedSelect(slot, select, fileno): another selector's own select, stamped before and after. */
#ifndef LW_WRAPPED_SELECT_H
#define LW_WRAPPED_SELECT_H

#include <Python.h>

int lw_wrapped_select_add(PyObject *module);

#endif
