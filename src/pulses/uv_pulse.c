/* The type UvPulse: opens and closes the handle of uv_handle.c from whatever thread it is asked on.
 *
 * libuv may be called on the loop's own thread, or by who holds the GIL while the loop does not
 * run. On any other thread start() and stop() let the loop's thread do it through
 * call_soon_threadsafe(). A stop is in force at once all the same; what it waits for, a second at
 * most, is that nothing of ours is left in the loop.
 */
#include "uv_pulse.h"

#include <stdbool.h>
#include <time.h>

#include "glue/py_slot.h"
#include "hook.h"
#include "process.h"
#include "pulse.h"
#include "uv_handle.h"

/* stop() on another thread waits so long for the loop's, looking this often. */
#define LW_UV_STOP_WAIT_NS LW_NS_PER_S
#define LW_UV_STOP_LOOK_NS (500 * LW_NS_PER_US)

typedef struct lw_uv_pulse {
    PyObject_HEAD
    PyObject *loop;
    PyObject *slot_object;
    lw_slot *slot; /* slot_object's */
    /* Sequentially consistent, so that a start() and a stop() side by side on a free-threaded build
     * see each other. */
    _Atomic(lw_uv *) uv;  /* once opened, until the end */
    _Atomic bool stopped; /* stop() was called */
} lw_uv_pulse;

typedef enum lw_uv_place {
    LW_UV_UNKNOWN = -1, /* an exception is set */
    LW_UV_HERE,         /* the loop runs on this thread, or not at all: its libuv may be called */
    LW_UV_ELSEWHERE,    /* it runs on another thread */
    LW_UV_GONE,         /* it is closed */
} lw_uv_place;

/* 1, 0 or -1. */
static int
ask_loop(PyObject *loop, const char *question)
{
    PyObject *answer = PyObject_CallMethod(loop, question, NULL);
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return truth;
}

/* 1 where the loop is the running one of this thread, else 0 or -1. */
static int
runs_here(PyObject *loop)
{
    PyObject *events = PyImport_ImportModule("asyncio.events");
    PyObject *running = events ? PyObject_CallMethod(events, "_get_running_loop", NULL) : NULL;
    int here = running ? running == loop : -1;
    Py_XDECREF(events);
    Py_XDECREF(running);
    return here;
}

/* A forked child has asyncio's running loop reset, though its loop runs on: then the slot knows. */
static bool
bound_here(lw_slot *slot)
{
    lw_thread thread;
    return lw_slot_thread(slot, &thread) && thread.ref.ident == PyThread_get_thread_ident();
}

/* Whether it runs is asked last: from there to the call of libuv the GIL is kept, so no other
 * thread can start it. */
static lw_uv_place
find_place(lw_uv_pulse *self)
{
    int here = runs_here(self->loop);
    int closed = here < 0 ? -1 : ask_loop(self->loop, "is_closed");
    int runs = closed < 0 ? -1 : ask_loop(self->loop, "is_running");
    if (runs < 0) {
        return LW_UV_UNKNOWN;
    }
    if (closed) {
        return LW_UV_GONE;
    }
    return runs && !here && !bound_here(self->slot) ? LW_UV_ELSEWHERE : LW_UV_HERE;
}

/* Has the loop's thread call one of our methods. -1 with an exception set. */
static int
call_there(lw_uv_pulse *self, const char *method)
{
    PyObject *bound = PyObject_GetAttrString((PyObject *)self, method);
    PyObject *handle =
        bound ? PyObject_CallMethod(self->loop, "call_soon_threadsafe", "O", bound) : NULL;
    Py_XDECREF(bound);
    Py_XDECREF(handle);
    return handle ? 0 : -1;
}

static int
open_here(lw_uv_pulse *self)
{
    lw_uv *uv = lw_uv_open(self->loop, self->slot);
    if (!uv) {
        return -1;
    }
    atomic_store_explicit(&self->uv, uv, memory_order_seq_cst);
    if (atomic_load_explicit(&self->stopped,
                             memory_order_seq_cst)) { /* by another thread, just now */
        lw_uv_stop(uv);
        lw_uv_close(uv);
    }
    return 0;
}

static void
sleep_without_gil(lw_ns length_ns)
{
    struct timespec length = {.tv_nsec = (long)length_ns};
    Py_BEGIN_ALLOW_THREADS
    nanosleep(&length, NULL);
    Py_END_ALLOW_THREADS
}

/* 1 once the handle is closed, 0 where the loop's thread had no time for that, -1 with an exception
 * set. */
static int
close_handle(lw_uv_pulse *self)
{
    lw_uv *uv = atomic_load_explicit(&self->uv, memory_order_seq_cst);
    lw_ns deadline_ns = lw_now_ns() + LW_UV_STOP_WAIT_NS;
    bool called = false;
    while (atomic_load_explicit(&uv->state, memory_order_acquire) != LW_UV_CLOSED) {
        lw_uv_place place = find_place(self);
        if (place == LW_UV_UNKNOWN) {
            return -1;
        }
        if (place == LW_UV_HERE) {
            lw_uv_close(uv);
            return 1;
        }
        if (place == LW_UV_GONE) {
            return 1;
        }
        if (lw_pulse_forked(self->slot)) {
            return 0; /* the thread that it ran on is not in this process */
        }
        if (!called) {
            if (call_there(self, "stop") < 0) {
                return -1;
            }
            called = true;
        }
        if (lw_now_ns() >= deadline_ns) {
            return 0;
        }
        sleep_without_gil(LW_UV_STOP_LOOK_NS);
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
    }
    return 1;
}

/* --- the type --- */

static PyObject *
pulse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slot", "loop", NULL};
    PyObject *slot_object, *loop;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:UvPulse", names, &slot_object, &loop)) {
        return NULL;
    }
    lw_slot *slot = lw_slot_of(slot_object);
    lw_uv_library library;
    void *uv_loop;
    if (!slot || lw_uv_library_open(&library, loop, &uv_loop) < 0 || lw_uv_guard_forks() < 0) {
        return NULL;
    }
    lw_uv_pulse *self = (lw_uv_pulse *)type->tp_alloc(type, 0);
    if (!self) {
        return NULL;
    }
    self->slot_object = Py_NewRef(slot_object);
    self->loop = Py_NewRef(loop);
    self->slot = slot;
    atomic_store_explicit(&slot->refine, lw_uv_refine, memory_order_release);
    return (PyObject *)self;
}

static PyObject *
pulse_start(lw_uv_pulse *self, PyObject *Py_UNUSED(ignored))
{
    if (atomic_load_explicit(&self->uv, memory_order_seq_cst) ||
        atomic_load_explicit(&self->stopped, memory_order_seq_cst)) {
        Py_RETURN_NONE;
    }
    int result = -1;
    switch (find_place(self)) {
    case LW_UV_UNKNOWN:
        break;
    case LW_UV_HERE:
        result = open_here(self);
        break;
    case LW_UV_ELSEWHERE:
        result = call_there(self, "start");
        break;
    case LW_UV_GONE:
        PyErr_SetString(PyExc_RuntimeError, "the loop is closed");
        break;
    }
    if (result < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
pulse_stop(lw_uv_pulse *self, PyObject *Py_UNUSED(ignored))
{
    atomic_store_explicit(&self->stopped, true, memory_order_seq_cst);
    lw_uv *uv = atomic_load_explicit(&self->uv, memory_order_seq_cst);
    if (!uv) {
        Py_RETURN_TRUE;
    }
    lw_uv_stop(uv);
    int closed = close_handle(self);
    return closed < 0 ? NULL : PyBool_FromLong(closed);
}

static int
pulse_traverse(lw_uv_pulse *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->loop);
    Py_VISIT(self->slot_object);
    return 0;
}

static int
pulse_clear(lw_uv_pulse *self)
{
    /* The slot stays until the end: lw_uv_stop() in dealloc needs it, and it refers to nothing that
     * could close a cycle. */
    Py_CLEAR(self->loop);
    return 0;
}

static void
pulse_dealloc(lw_uv_pulse *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    lw_uv *uv = atomic_load_explicit(&self->uv, memory_order_seq_cst);
    if (uv) {
        lw_uv_stop(uv); /* where nobody did: should the loop run again, the handle closes itself */
        lw_uv_decref(uv);
    }
    Py_CLEAR(self->loop);
    Py_CLEAR(self->slot_object);
    type->tp_free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    start_doc,
    "start($self, /)\n--\n\n"
    "See each turn from now on. Where the loop runs on another thread: from that thread's next "
    "turn on. Nothing happens where it was started or stopped before.");

PyDoc_STRVAR(
    stop_doc,
    "stop($self, /)\n--\n\n"
    "From any thread, also after the loop closed; idempotent. No turn is seen from now on. True "
    "once libuv's "
    "handle is closed; False where the loop runs on another thread that did not come back within a "
    "second: "
    "it is closed when that does, and stop() must be called again before the loop closes.");

static PyMethodDef pulse_methods[] = {
    {"start", (PyCFunction)pulse_start, METH_NOARGS, start_doc},
    {"stop", (PyCFunction)pulse_stop, METH_NOARGS, stop_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(pulse_doc,
             "UvPulse(slot, loop)\n--\n\nA uvloop loop's turns, seen through its libuv.");

static PyType_Slot pulse_slots[] = {
    {Py_tp_doc, (void *)pulse_doc},
    {Py_tp_new, pulse_new},
    {Py_tp_dealloc, pulse_dealloc},
    {Py_tp_traverse, pulse_traverse},
    {Py_tp_clear, pulse_clear},
    {Py_tp_methods, pulse_methods},
    {0, NULL},
};

static PyType_Spec lw_uv_pulse_spec = {
    .name = "loopwatch._core.UvPulse",
    .basicsize = sizeof(lw_uv_pulse),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = pulse_slots,
};

int
lw_uv_pulse_add(PyObject *module)
{
    return lw_add_type(module, &lw_uv_pulse_spec);
}
