/* A record as Python objects: the dict that _core.pyi calls Record. */
#ifndef LW_PY_RECORD_H
#define LW_PY_RECORD_H

#include <Python.h>

#include "report/record.h"

/* With the GIL; NULL with an exception set. */
PyObject *lw_record_decode(const lw_record *record);

#endif
