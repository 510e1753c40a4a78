/* Watching every run of every loop: module functions. */
#ifndef LW_PY_RUNS_H
#define LW_PY_RUNS_H

#include <Python.h>

extern PyMethodDef lw_runs_methods[];

/* For the module's clear: the hook comes off, and what it calls is let go. */
void lw_py_runs_clear(PyObject *module);

#endif
