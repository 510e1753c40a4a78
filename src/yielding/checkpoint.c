/* checkpoint(budget) -> Checkpoint: awaiting it ends at once where nothing is due, else it suspends
 * the task for some turns of the loop. For each it yields None, as asyncio.sleep(0) does, which each
 * kind of asyncio task on each loop takes for "call me again in the next turn".
 *
 * A Checkpoint looks when it is awaited, not when it is made, so one may be kept and awaited again
 * and again. It is its own iterator.
 */
#include "checkpoint.h"

#include <math.h>

#include "glue/state.h"

#define BUDGET_MAX_S 1e9
#define BUDGET_DEFAULT_NS (2 * LW_NS_PER_MS)

typedef struct checkpoint {
    PyObject_HEAD
    lw_ns budget_ns;
    lw_pace pace;
} checkpoint;

/* --- what is due --- */

int
lw_budget_convert(PyObject *seconds, void *budget_ns)
{
    static const char accepted[] = "seconds from 0 to 1000000000";
    bool number = (PyFloat_Check(seconds) || PyLong_Check(seconds)) && !PyBool_Check(seconds);
    double value = number ? PyFloat_AsDouble(seconds) : NAN;
    if (value >= 0.0 && value <= BUDGET_MAX_S) {
        *(lw_ns *)budget_ns = (lw_ns)(value * 1e9);
        return 1;
    }
    PyErr_Clear(); /* an int too large for a double */
    PyErr_Format(number ? PyExc_ValueError : PyExc_TypeError, "budget must be %s, not %R", accepted,
                 seconds);
    return 0;
}

bool
lw_checkpoint_step(lw_state *state, lw_pace *pace, lw_ns budget_ns)
{
    if (lw_pace_waits(pace)) {
        return lw_pace_resumed(pace, budget_ns);
    }
    if (lw_pace_due(budget_ns)) {
        lw_pace_begin(pace);
        return true;
    }
    /* The task is not resumed from this yield: asyncio throws the cancellation into it. */
    return lw_running_task_must_cancel(&state->task_finder);
}

/* --- the type --- */

/* NULL without an exception: it is over, and its result is None. */
static PyObject *
checkpoint_next(PyObject *object)
{
    checkpoint *self = (checkpoint *)object;
    lw_state *state = PyType_GetModuleState(Py_TYPE(object));
    if (lw_checkpoint_step(state, &self->pace, self->budget_ns)) {
        Py_RETURN_NONE;
    }
    return NULL;
}

static PyObject *
checkpoint_repr(PyObject *object)
{
    PyObject *budget = PyFloat_FromDouble((double)((checkpoint *)object)->budget_ns / 1e9);
    PyObject *repr =
        budget ? PyUnicode_FromFormat("<loopwatch.checkpoint budget=%R>", budget) : NULL;
    Py_XDECREF(budget);
    return repr;
}

static void
checkpoint_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "What checkpoint() returns: await it."},
    {Py_tp_dealloc, checkpoint_dealloc},
    {Py_tp_repr, checkpoint_repr},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, checkpoint_next},
    {Py_am_await, PyObject_SelfIter},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.Checkpoint",
    .basicsize = sizeof(checkpoint),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = type_slots,
};

/* --- the function --- */

/* The one argument, borrowed; NULL: none, or an exception is set. */
static PyObject *
budget_argument(PyObject *const *args, Py_ssize_t n_positional, PyObject *names)
{
    Py_ssize_t n_named = names ? PyTuple_GET_SIZE(names) : 0;
    if (n_positional + n_named > 1) {
        PyErr_Format(PyExc_TypeError, "checkpoint() takes at most 1 argument (%zd given)",
                     n_positional + n_named);
        return NULL;
    }
    if (n_named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "budget") != 0) {
        PyErr_Format(PyExc_TypeError, "checkpoint() got an unexpected keyword argument %R",
                     PyTuple_GET_ITEM(names, 0));
        return NULL;
    }
    return n_positional + n_named ? args[0] : NULL;
}

static PyObject *
make_checkpoint(PyObject *module, PyObject *const *args, Py_ssize_t n_positional, PyObject *names)
{
    lw_ns budget_ns = BUDGET_DEFAULT_NS;
    if (n_positional || names) {
        PyObject *budget = budget_argument(args, n_positional, names);
        if (budget ? !lw_budget_convert(budget, &budget_ns) : PyErr_Occurred() != NULL) {
            return NULL;
        }
    }
    PyTypeObject *type = lw_state_of(module)->checkpoint_type;
    checkpoint *self = (checkpoint *)type->tp_alloc(type, 0);
    if (self) {
        self->budget_ns = budget_ns;
    }
    return (PyObject *)self;
}

static PyMethodDef functions[] = {
    {"checkpoint", (PyCFunction)(void (*)(void))make_checkpoint, METH_FASTCALL | METH_KEYWORDS,
     "checkpoint($module, /, budget=0.002)\n--\n\n"
     "Await it in long work: the loop's other tasks get their turns, where the turn has been\n"
     "busy for `budget` seconds (0 to 1e9); else it ends at once. A task that was cancelled\n"
     "meanwhile gets its CancelledError here. TypeError, ValueError for a wrong budget."},
    {NULL, NULL, 0, NULL},
};

int
lw_checkpoint_add(PyObject *module)
{
    lw_state *state = lw_state_of(module);
    if (lw_task_finder_init(&state->task_finder) < 0) {
        return -1;
    }
    state->checkpoint_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &type_spec, NULL);
    if (!state->checkpoint_type || PyModule_AddType(module, state->checkpoint_type) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
