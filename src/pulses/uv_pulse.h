/* The type UvPulse of _core.pyi. */
#ifndef LW_UV_PULSE_H
#define LW_UV_PULSE_H

#include <Python.h>

int lw_uv_pulse_add(PyObject *module);

#endif
