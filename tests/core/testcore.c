#include "testcore.h"

#include "clock.h"
#include "frames/snapshot.h"
#include "glue/py_reporter.h"
#include "glue/py_slot.h"
#include "glue/state.h"
#include "process.h"

lw_ns (*lw_clock_override)(void);

/* The core's own types too: a second copy of them, apart from loopwatch._core's. */
lw_slot *
lw_test_slot_and_number(PyObject *args, unsigned long long *number)
{
    PyObject *object;
    return PyArg_ParseTuple(args, "OK", &object, number) ? lw_slot_of(object) : NULL;
}

static int
exec_module(PyObject *module)
{
    /* clang-format off: one a line */
    PyMethodDef *const subjects[] = {
        lw_test_fdtable_methods,      lw_test_frames_fuzz_methods,  lw_test_frames_hunt_methods,
        lw_test_frames_methods,       lw_test_frames_parts_methods, lw_test_gc_clock_methods,
        lw_test_gil_methods,          lw_test_histogram_methods,    lw_test_history_methods,
        lw_test_hooks_methods,        lw_test_profile_methods,      lw_test_read_methods,
        lw_test_routes_methods,       lw_test_schedule_methods,     lw_test_task_methods,
        lw_test_thread_files_methods, lw_test_uv_pulse_methods,     lw_test_verdict_methods,
        lw_reporter_methods,
    };
    /* clang-format on */
    lw_process_setup();
    lw_state_of(module)->raw_works = lw_frames_setup() == LW_OK;
    if (lw_types_add(module) < 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        if (PyModule_AddFunctions(module, subjects[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "loopwatch._testcore",
    .m_doc = "The C subjects, for tests.",
    .m_size = sizeof(lw_state),
    .m_slots = slots,
    .m_traverse = lw_state_traverse,
    .m_clear = lw_state_clear,
    .m_free = lw_state_free,
};

PyMODINIT_FUNC
PyInit__testcore(void)
{
    return PyModuleDef_Init(&definition);
}
