/* Paced(items, budget): loopwatch.paced() of an iterable that is not an async one.
 *
 * An async iterator in C, because one written in Python costs more than the check that it is for.
 * Before each item it is a checkpoint, then it takes the next item. It is its own awaitable, so
 * that an item needs no object: what __anext__() returns is the iterator itself, and awaiting that
 * takes an item. Items go to whoever asks, also where several tasks do.
 */
#include "checkpoint.h"

#include "compat.h"
#include "glue/state.h"
#include "pulses/hook.h"

typedef struct paced {
    PyObject_HEAD
    PyObject *items; /* an iterator; NULL once it has ended */
    lw_ns budget_ns;
    lw_pace pace; /* before an item */
} paced;

/* --- items --- */

static PyObject *
iterator_of(paced *self)
{
    PyObject *items;
    LW_BEGIN_CRITICAL_SECTION((PyObject *)self);
    items = Py_XNewRef(self->items);
    LW_END_CRITICAL_SECTION();
    return items;
}

static void
end_iterator(paced *self)
{
    PyObject *items;
    LW_BEGIN_CRITICAL_SECTION((PyObject *)self);
    items = self->items;
    self->items = NULL;
    LW_END_CRITICAL_SECTION();
    Py_XDECREF(items);
}

/* A StopAsyncIteration out of the items is an error of theirs and must not look like the end. */
static void
rename_stop(void)
{
    PyObject *type, *stop, *trace;
    if (!PyErr_ExceptionMatches(PyExc_StopAsyncIteration)) {
        return;
    }
    PyErr_Fetch(&type, &stop, &trace);
    PyErr_NormalizeException(&type, &stop, &trace);
    PyObject *error = PyObject_CallFunction(PyExc_RuntimeError, "s",
                                            "an item of paced() raised StopAsyncIteration");
    if (error) {
        PyException_SetCause(error, Py_NewRef(stop));
        PyErr_SetObject(PyExc_RuntimeError, error);
        Py_DECREF(error);
    }
    Py_XDECREF(type);
    Py_XDECREF(stop);
    Py_XDECREF(trace);
}

/* A new reference, or NULL with StopAsyncIteration or what the items raised. */
static PyObject *
next_item(paced *self)
{
    PyObject *items = iterator_of(self);
    PyObject *item = items ? PyIter_Next(items) : NULL;
    if (!item) {
        if (PyErr_Occurred()) {
            rename_stop();
        }
        else {
            end_iterator(self);
            PyErr_SetNone(PyExc_StopAsyncIteration);
        }
    }
    Py_XDECREF(items);
    return item;
}

/* --- awaiting --- */

static PySendResult
paced_send(PyObject *object, PyObject *Py_UNUSED(value), PyObject **result)
{
    paced *self = (paced *)object;
    lw_state *state = PyType_GetModuleState(Py_TYPE(object));
    if (lw_checkpoint_step(state, &self->pace, self->budget_ns)) {
        *result = Py_NewRef(Py_None);
        return PYGEN_NEXT;
    }
    *result = next_item(self);
    return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

/* The same for who iterates by hand: the item comes in a StopIteration. */
static PyObject *
paced_next(PyObject *object)
{
    PyObject *result;
    PySendResult sent = paced_send(object, Py_None, &result);
    if (sent == PYGEN_RETURN) {
        PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, result);
        if (stop) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DECREF(stop);
        }
        Py_CLEAR(result);
    }
    return result;
}

/* --- the type --- */

static PyObject *
paced_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"items", "budget", NULL};
    PyObject *items;
    lw_ns budget_ns;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&:Paced", names, &items, lw_budget_convert,
                                     &budget_ns)) {
        return NULL;
    }
    PyObject *iterator = PyObject_GetIter(items);
    paced *self = iterator ? (paced *)type->tp_alloc(type, 0) : NULL;
    if (!self) {
        Py_XDECREF(iterator);
        return NULL;
    }
    self->items = iterator;
    self->budget_ns = budget_ns;
    return (PyObject *)self;
}

static int
paced_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((paced *)object)->items);
    return 0;
}

static int
paced_clear(PyObject *object)
{
    Py_CLEAR(((paced *)object)->items);
    return 0;
}

static void
paced_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    paced_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "The items, with a checkpoint before each."},
    {Py_tp_new, paced_new},
    {Py_tp_traverse, paced_traverse},
    {Py_tp_clear, paced_clear},
    {Py_tp_dealloc, paced_dealloc},
    {Py_tp_iternext, paced_next},
    {Py_am_aiter, PyObject_SelfIter},
    {Py_am_anext, PyObject_SelfIter},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, paced_send},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.Paced",
    .basicsize = sizeof(paced),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_paced_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}
