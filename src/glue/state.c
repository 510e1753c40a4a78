/* The module's state, its types, and how results become exceptions: state.h. */
#include "state.h"

#include <errno.h>
#include <string.h>

#include "pulses/heartbeat.h"
#include "pulses/run_edge.h"
#include "pulses/turn_select.h"
#include "pulses/uv_pulse.h"
#include "pulses/wrapped_select.h"
#include "py_runs.h"
#include "py_slot.h"
#include "routes/request.h"
#include "routes/route.h"
#include "routes/stepper.h"
#include "steps/step.h"
#include "yielding/checkpoint.h"

lw_state *
lw_state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

int
lw_state_traverse(PyObject *module, visitproc visit, void *arg)
{
    lw_state *state = lw_state_of(module);
    Py_VISIT(state->slot_type);
    Py_VISIT(state->checkpoint_type);
    Py_VISIT(state->rearm);
    Py_VISIT(state->on_run);
    return lw_task_finder_traverse(&state->task_finder, visit, arg);
}

int
lw_state_clear(PyObject *module)
{
    lw_state *state = lw_state_of(module);
    Py_CLEAR(state->slot_type);
    Py_CLEAR(state->checkpoint_type);
    Py_CLEAR(state->rearm);
    lw_py_runs_clear(module);
    lw_task_finder_clear(&state->task_finder);
    return 0;
}

void
lw_state_free(void *module)
{
    lw_state_clear(module);
}

int
lw_types_add(PyObject *module)
{
    int (*const types[])(PyObject *) = {
        lw_py_slot_add,   lw_turn_select_add, lw_wrapped_select_add, lw_run_edge_add,
        lw_heartbeat_add, lw_uv_pulse_add,    lw_step_add,           lw_checkpoint_add,
        lw_paced_add,     lw_route_add,       lw_request_add,        lw_stepper_add,
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i](module) < 0) {
            return -1;
        }
    }
    return 0;
}

PyObject *
lw_raise(lw_result result)
{
    switch (result) {
    case LW_ERR_MEMORY:
        return PyErr_NoMemory();
    case LW_ERR_SYSTEM:
        return PyErr_SetFromErrno(PyExc_OSError);
    case LW_ERR_THREAD:
        return PyErr_Format(PyExc_RuntimeError, "%s: %s", lw_result_message(result),
                            strerror(errno));
    case LW_OK:
    case LW_ERR_FRAMES_VERSION:
    case LW_ERR_FRAMES_READ:
    case LW_ERR_FRAMES_CALIBRATE:
    case LW_ERR_FRAMES_SELFTEST:
    case LW_RESULT_COUNT:
        break;
    }
    PyErr_SetString(PyExc_RuntimeError, lw_result_message(result));
    return NULL;
}
