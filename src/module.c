/* loopwatch._core: the glue. Slots, types and functions are the subjects' own; nothing is decided
 * here. */
#include <Python.h>

#include "frames/snapshot.h"
#include "glue/py_reporter.h"
#include "glue/py_runs.h"
#include "glue/py_status.h"
#include "glue/state.h"
#include "process.h"
#include "status/page.h"

/* The watchdog, the reporter's ring and the pool of slots belong to the process, not to an
 * interpreter. */
static int
check_interpreter(void)
{
    if (PyInterpreterState_Get() == PyInterpreterState_Main()) {
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError,
                    "loopwatch does not support subinterpreters yet: watch loops of the main "
                    "interpreter");
    return -1;
}

static int
add_constants(PyObject *module)
{
#ifdef LW_PORTABLE
    PyObject *portable = Py_True;
#else
    PyObject *portable = Py_False;
#endif
    if (PyModule_AddObjectRef(module, "PORTABLE", portable) < 0) {
        return -1;
    }
    PyObject *page = Py_BuildValue("iii", LW_PAGE_VERSION, LW_PAGE_HEAD, LW_PAGE_HALF);
    if (PyModule_AddObjectRef(module, "PAGE", page) < 0) {
        Py_XDECREF(page);
        return -1;
    }
    Py_DECREF(page);
    return PyModule_AddStringConstant(module, "VERSION", LW_VERSION);
}

static int
exec_module(PyObject *module)
{
    if (check_interpreter() < 0) {
        return -1;
    }
    lw_process_setup();
    lw_result frames = lw_frames_setup();
    if (frames == LW_ERR_MEMORY) {
        lw_raise(frames);
        return -1;
    }
    lw_state_of(module)->raw_works = frames == LW_OK;
    if (lw_types_add(module) < 0 || PyModule_AddFunctions(module, lw_reporter_methods) < 0 ||
        PyModule_AddFunctions(module, lw_runs_methods) < 0 ||
        PyModule_AddFunctions(module, lw_status_methods) < 0) {
        return -1;
    }
    return add_constants(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "loopwatch._core",
    .m_doc = "The native half of loopwatch. Private.",
    .m_size = sizeof(lw_state),
    .m_slots = slots,
    .m_traverse = lw_state_traverse,
    .m_clear = lw_state_clear,
    .m_free = lw_state_free,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
