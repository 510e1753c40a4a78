/* The reporter's side of _core, and what doctor() shows of the native half: module functions. */
#ifndef LW_PY_REPORTER_H
#define LW_PY_REPORTER_H

#include <Python.h>

extern PyMethodDef lw_reporter_methods[];

#endif
