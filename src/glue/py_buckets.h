/* A histogram's buckets in use, as Slot.histogram() and Slot.window() return them. */
#ifndef LW_PY_BUCKETS_H
#define LW_PY_BUCKETS_H

#include <Python.h>
#include <stdint.h>

/* (numbers, counts): bytes of uint16_t and of uint64_t in the machine's order, one of each for every
 * bucket that is in use, ascending. A tuple for each would cost a scrape more than all else.
 * `counts` has LW_HISTOGRAM_BUCKETS. NULL with an exception set. */
PyObject *lw_buckets_in_use(const uint64_t *counts);

#endif
