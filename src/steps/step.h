/* Step(name): loopwatch.step, the context manager. */
#ifndef LW_STEP_H
#define LW_STEP_H

#include <Python.h>

int lw_step_add(PyObject *module);

#endif
