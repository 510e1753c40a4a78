/* The status page as Python hands it to the watchdog: module functions. */
#ifndef LW_PY_STATUS_H
#define LW_PY_STATUS_H

#include <Python.h>

extern PyMethodDef lw_status_methods[];

#endif
