/* The awaitable around a request's coroutine: stepper.h says what.
 *
 * `await` asks an awaitable for its iterator, here the object itself, and drives that through
 * am_send, which hands on a returned value without a StopIteration; exceptions come in through
 * throw(), GeneratorExit through close(). Each goes to the coroutine as it came: what the coroutine
 * is held to (a StopIteration inside becomes a RuntimeError, close() refuses one that goes on, a
 * finished one cannot be awaited again) it answers itself. So nothing is kept of how far it is.
 *
 * The attributes cr_* are the coroutine's, so that asyncio's call graphs and debuggers see it as if
 * it were awaited directly.
 */
#include "stepper.h"

#include "pulses/hook.h"
#include "request.h"

typedef struct stepper {
    PyObject_HEAD
    PyObject *request;
    PyObject *coroutine; /* exactly a coroutine; NULL once the collector has cleared it */
} stepper;

static PyObject *
raise_gone(PyObject *object)
{
    return lw_hook_raise_gone(object);
}

/* --- steps --- */

static PySendResult
stepper_am_send(PyObject *object, PyObject *value, PyObject **result)
{
    stepper *self = (stepper *)object;
    lw_request_step step;
    *result = NULL;
    if (!self->coroutine) {
        raise_gone(object);
        return PYGEN_ERROR;
    }
    lw_request_enter(self->request, &step);
    PySendResult how = PyIter_Send(self->coroutine, value, result);
    lw_request_leave(self->request, &step);
    if (how == PYGEN_NEXT) {
        lw_request_suspended(self->request);
    }
    return how;
}

/* A value that is an exception or a tuple would be taken for the arguments of the StopIteration: so
 * it is made here. */
static void
stop_with(PyObject *value)
{
    if (value == Py_None) {
        PyErr_SetNone(PyExc_StopIteration);
        return;
    }
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (stop) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
}

/* What send() answers: what it waits with, or NULL with a StopIteration or what it raised. */
static PyObject *
send(PyObject *object, PyObject *value)
{
    PyObject *result;
    if (stepper_am_send(object, value, &result) == PYGEN_RETURN) {
        stop_with(result);
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *
stepper_iternext(PyObject *object)
{
    return send(object, Py_None);
}

/* coroutine.throw(*args) or coroutine.close(), as a step. */
static PyObject *
call_as_step(PyObject *object, const char *name, PyObject *const *args, Py_ssize_t nargs)
{
    stepper *self = (stepper *)object;
    if (!self->coroutine) {
        return raise_gone(object);
    }
    PyObject *method = PyObject_GetAttrString(self->coroutine, name);
    if (!method) {
        return NULL;
    }
    lw_request_step step;
    lw_request_enter(self->request, &step);
    PyObject *result = PyObject_Vectorcall(method, args, (size_t)nargs, NULL);
    lw_request_leave(self->request, &step);
    Py_DECREF(method);
    return result;
}

static PyObject *
stepper_throw(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *result = call_as_step(object, "throw", args, nargs);
    if (result) {
        lw_request_suspended(((stepper *)object)->request);
    }
    return result;
}

static PyObject *
stepper_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return call_as_step(object, "close", NULL, 0);
}

static PyObject *
stepper_await(PyObject *object)
{
    return Py_NewRef(object);
}

/* --- the type --- */

static PyObject *
stepper_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"request", "coroutine", NULL};
    PyObject *request, *coroutine;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Stepper", names, &request, &coroutine)) {
        return NULL;
    }
    if (!lw_is_request(request)) {
        return PyErr_Format(PyExc_TypeError, "expected a Request, not %.100s",
                            Py_TYPE(request)->tp_name);
    }
    if (!PyCoro_CheckExact(coroutine)) {
        return PyErr_Format(PyExc_TypeError, "expected a coroutine, not %.100s",
                            Py_TYPE(coroutine)->tp_name);
    }
    stepper *self = (stepper *)type->tp_alloc(type, 0);
    if (self) {
        self->request = Py_NewRef(request);
        self->coroutine = Py_NewRef(coroutine);
    }
    return (PyObject *)self;
}

static PyObject *
stepper_get(PyObject *object, void *name)
{
    PyObject *coroutine = ((stepper *)object)->coroutine;
    return coroutine ? PyObject_GetAttrString(coroutine, name) : raise_gone(object);
}

static PyObject *
stepper_repr(PyObject *object)
{
    return PyUnicode_FromFormat("<loopwatch steps of %R>", ((stepper *)object)->coroutine);
}

static int
stepper_traverse(PyObject *object, visitproc visit, void *arg)
{
    stepper *self = (stepper *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->request);
    Py_VISIT(self->coroutine);
    return 0;
}

/* The request stays: a step may be running, and the request refers to no stepper. */
static int
stepper_clear(PyObject *object)
{
    Py_CLEAR(((stepper *)object)->coroutine);
    return 0;
}

static void
stepper_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)stepper_clear(object);
    Py_CLEAR(((stepper *)object)->request);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"send", send, METH_O, "As a coroutine's."},
    {"throw", (PyCFunction)(void (*)(void))stepper_throw, METH_FASTCALL, "As a coroutine's."},
    {"close", stepper_close, METH_NOARGS, "As a coroutine's."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"__name__", stepper_get, NULL, NULL, "__name__"},
    {"__qualname__", stepper_get, NULL, NULL, "__qualname__"},
    {"cr_await", stepper_get, NULL, NULL, "cr_await"},
    {"cr_code", stepper_get, NULL, NULL, "cr_code"},
    {"cr_frame", stepper_get, NULL, NULL, "cr_frame"},
    {"cr_origin", stepper_get, NULL, NULL, "cr_origin"},
    {"cr_running", stepper_get, NULL, NULL, "cr_running"},
    {"cr_suspended", stepper_get, NULL, NULL, "cr_suspended"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "An awaitable around a coroutine that counts its steps for a request."},
    {Py_tp_new, stepper_new},
    {Py_tp_repr, stepper_repr},
    {Py_am_await, stepper_await},
    {Py_am_send, stepper_am_send},
    {Py_tp_iter, stepper_await},
    {Py_tp_iternext, stepper_iternext},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_traverse, stepper_traverse},
    {Py_tp_clear, stepper_clear},
    {Py_tp_dealloc, stepper_dealloc},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.Stepper",
    .basicsize = sizeof(stepper),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_stepper_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}
