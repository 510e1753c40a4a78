/* loopwatch._testcore: the C subjects without a loop, for tests only (LOOPWATCH_TEST=1). Each subject's wrappers are in a
 * file of their own, which exports its methods. */
#ifndef LW_TESTCORE_H
#define LW_TESTCORE_H

#include <Python.h>

#include "slot.h"

/* The slot and the number that are the arguments; NULL with an exception set. */
lw_slot *lw_test_slot_and_number(PyObject *args, unsigned long long *number);

extern PyMethodDef lw_test_fdtable_methods[];
extern PyMethodDef lw_test_frames_fuzz_methods[];
extern PyMethodDef lw_test_frames_hunt_methods[];
extern PyMethodDef lw_test_frames_methods[];
extern PyMethodDef lw_test_frames_parts_methods[];
extern PyMethodDef lw_test_gc_clock_methods[];
extern PyMethodDef lw_test_gil_methods[];
extern PyMethodDef lw_test_histogram_methods[];
extern PyMethodDef lw_test_history_methods[];
extern PyMethodDef lw_test_hooks_methods[];
extern PyMethodDef lw_test_profile_methods[];
extern PyMethodDef lw_test_read_methods[];
extern PyMethodDef lw_test_routes_methods[];
extern PyMethodDef lw_test_schedule_methods[];
extern PyMethodDef lw_test_task_methods[];
extern PyMethodDef lw_test_thread_files_methods[];
extern PyMethodDef lw_test_uv_pulse_methods[];
extern PyMethodDef lw_test_verdict_methods[];

#endif
