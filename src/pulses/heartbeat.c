/* The pulse for loops of which nothing is known but that they have call_later: a timer that stamps
 * when it fires and arms itself again. The gap between two beats less the tick is the time in which
 * the loop did not look at its timers.
 *
 * Beats come on the loop's thread, stop() from any. Both take the armed handle out of the object in
 * one step, so exactly one of them owns it; a beat that re-arms while stop() comes between looks at
 * `stopped` again afterwards.
 */
#include "heartbeat.h"

#include <math.h>
#include <stddef.h>
#include <structmember.h>

#include "hook.h"

#define LONGEST_TICK_S 3600.0

typedef struct heartbeat {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    lw_hook hook;
    PyObject *loop;
    PyObject *tick; /* seconds, a float */
    lw_ns tick_ns;
    _Atomic(PyObject *) handle; /* the armed timer, owned; NULL: none */
    _Atomic bool stopped;       /* arm no more */
} heartbeat;

/* A new reference to the armed handle, which is then the caller's alone; or NULL. */
static PyObject *
take_handle(heartbeat *self)
{
    return atomic_exchange_explicit(&self->handle, NULL, memory_order_acq_rel);
}

static bool
is_stopped(heartbeat *self)
{
    return atomic_load_explicit(&self->stopped, memory_order_acquire);
}

/* Whether loop.name() is true; where that fails, `otherwise`, and no exception is set. */
static bool
ask_loop(heartbeat *self, const char *name, bool otherwise)
{
    PyObject *answer = PyObject_CallMethod(self->loop, name, NULL);
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (truth < 0) {
        PyErr_Clear();
        return otherwise;
    }
    return truth;
}

/* After a call of the loop's has raised: 0 where that is because the loop is closed, else -1, the
 * exception set. */
static int
forgive_closed(heartbeat *self)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    bool closed = ask_loop(self, "is_closed", false);
    if (!closed) {
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return 0;
}

/* Steals `handle`. */
static int
cancel_handle(PyObject *handle)
{
    PyObject *result = PyObject_CallMethod(handle, "cancel", NULL);
    Py_DECREF(handle);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int
arm(heartbeat *self)
{
    PyObject *handle = PyObject_CallMethod(self->loop, "call_later", "OO", self->tick, self);
    if (!handle) {
        return -1;
    }
    Py_XDECREF(atomic_exchange_explicit(&self->handle, handle, memory_order_acq_rel));
    if (is_stopped(self)) {
        handle = take_handle(self);
        return handle ? cancel_handle(handle) : 0;
    }
    return 0;
}

/* --- on the loop's thread, by the loop --- */

static PyObject *
heartbeat_call(PyObject *object, PyObject *const *Py_UNUSED(args), size_t nargsf, PyObject *kwnames)
{
    heartbeat *self = (heartbeat *)object;
    if (PyVectorcall_NARGS(nargsf) || kwnames) {
        PyErr_SetString(PyExc_TypeError, "a heartbeat takes no arguments");
        return NULL;
    }
    if (lw_hook_gone(&self->hook)) {
        return lw_hook_raise_gone(object);
    }
    Py_XDECREF(take_handle(self)); /* the one that fired */
    if (is_stopped(self)) {
        Py_RETURN_NONE;
    }
    lw_hook_arrive(&self->hook, object);
    lw_ns now_ns = lw_now_ns();
    lw_pulse_beat(self->hook.slot, now_ns, now_ns + self->tick_ns);
    if (arm(self) < 0 && forgive_closed(self) < 0) {
        PyErr_WriteUnraisable(object);
    }
    Py_RETURN_NONE;
}

/* --- by the installer --- */

static PyObject *
heartbeat_start(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    heartbeat *self = (heartbeat *)object;
    if (lw_hook_gone(&self->hook)) {
        return lw_hook_raise_gone(object);
    }
    atomic_store_explicit(&self->stopped, false, memory_order_release);
    if (!atomic_load_explicit(&self->handle, memory_order_acquire) && arm(self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Whether the calling thread is inside a run of the loop. -1 with an exception set. */
static int
runs_here(heartbeat *self)
{
    PyObject *events = PyImport_ImportModule("asyncio.events");
    if (!events) {
        return -1;
    }
    PyObject *running = PyObject_CallMethod(events, "_get_running_loop", NULL);
    Py_DECREF(events);
    Py_XDECREF(running);
    return running ? running == self->loop : -1;
}

/* A running loop of another thread cancels the timer itself; one that closed meanwhile has dropped
 * it. Steals `handle`. */
static int
cancel_from_elsewhere(heartbeat *self, PyObject *handle)
{
    PyObject *cancel = PyObject_GetAttrString(handle, "cancel");
    Py_DECREF(handle);
    if (!cancel) {
        return -1;
    }
    PyObject *soon = PyObject_CallMethod(self->loop, "call_soon_threadsafe", "O", cancel);
    Py_DECREF(cancel);
    Py_XDECREF(soon);
    return soon ? 0 : forgive_closed(self);
}

static PyObject *
heartbeat_stop(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    heartbeat *self = (heartbeat *)object;
    if (lw_hook_gone(&self->hook)) {
        return lw_hook_raise_gone(object);
    }
    atomic_store_explicit(&self->stopped, true, memory_order_release);
    PyObject *handle = take_handle(self);
    if (!handle) { /* never started, stopped before, or a beat is under way, which will not arm
                      again */
        Py_RETURN_NONE;
    }
    int here = runs_here(self);
    if (here < 0) {
        Py_DECREF(handle);
        return NULL;
    }
    bool direct = here || !ask_loop(self, "is_running", true);
    int result = direct ? cancel_handle(handle) : cancel_from_elsewhere(self, handle);
    if (result < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* --- the type --- */

static PyObject *
heartbeat_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slot", "loop", "tick", NULL};
    PyObject *slot, *loop;
    double tick;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOd:Heartbeat", names, &slot, &loop, &tick)) {
        return NULL;
    }
    if (!(tick > 0 && tick <= LONGEST_TICK_S)) {
        PyErr_SetString(PyExc_ValueError, "tick must be more than 0 and at most 3600 seconds");
        return NULL;
    }
    heartbeat *self = (heartbeat *)type->tp_alloc(type, 0);
    if (!self) {
        return NULL;
    }
    self->vectorcall = heartbeat_call;
    self->tick_ns = (lw_ns)ceil(tick * 1e9);
    self->tick = PyFloat_FromDouble(tick);
    if (!self->tick || lw_hook_init(&self->hook, slot) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->loop = Py_NewRef(loop);
    return (PyObject *)self;
}

static int
heartbeat_traverse(PyObject *object, visitproc visit, void *arg)
{
    heartbeat *self = (heartbeat *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->loop);
    Py_VISIT(self->tick);
    PyObject *handle = atomic_load_explicit(&self->handle, memory_order_relaxed);
    Py_VISIT(handle);
    return lw_hook_traverse(&self->hook, visit, arg);
}

static int
heartbeat_clear(PyObject *object)
{
    heartbeat *self = (heartbeat *)object;
    lw_hook_clear(&self->hook);
    Py_CLEAR(self->loop);
    Py_CLEAR(self->tick);
    Py_XDECREF(take_handle(self));
    return 0;
}

static void
heartbeat_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)heartbeat_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"start", heartbeat_start, METH_NOARGS,
     "Arm the timer. On the loop's thread, or before the loop runs."},
    {"stop", heartbeat_stop, METH_NOARGS, "Cancel the timer. From any thread; idempotent."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(heartbeat, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "Stamps and arms itself again with loop.call_later(tick)."},
    {Py_tp_new, heartbeat_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_traverse, heartbeat_traverse},
    {Py_tp_clear, heartbeat_clear},
    {Py_tp_dealloc, heartbeat_dealloc},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.Heartbeat",
    .basicsize = sizeof(heartbeat),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_heartbeat_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}
