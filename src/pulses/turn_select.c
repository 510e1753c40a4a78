/* The hook for selectors.EpollSelector, which does the whole of its select in C.
 *
 * Why not only wrap it: the moment at which the kernel's wait is over lies inside epoll.poll(),
 * before it asks for the GIL. Only whoever calls epoll_wait(2) can stamp it, and so tell waiting
 * for an event from waiting for the GIL. And one C function in place of three Python ones pays for
 * the stamps.
 *
 * How: what the Python method and epoll.poll() do, step by step, with the same results, exceptions
 * and rounding, and the GIL dropped exactly where they drop it. Whatever is unusual (a timeout that
 * is neither None nor an int nor a float, NaN, weeks, keywords, wrong arguments) goes to the
 * original method, stamped around, so that its answers stay its own.
 */
#include "turn_select.h"

#if defined(__linux__) && !defined(LW_PORTABLE)

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <structmember.h>
#include <sys/epoll.h>

#include "hook.h"
#include "ready.h"

#define EVENTS_MIN 64 /* room for this many is made at least */
#define LONGEST_TIMEOUT_S                                                                          \
    2e6 /* 23 days; beyond, the original decides: milliseconds must fit an int */

/* Where epoll_wait puts its events. A call takes the hook's and puts it back, so that two calls at
 * once (a loop run inside itself, two threads by mistake) never share one. */
typedef struct event_buffer {
    size_t room;
    struct epoll_event events[];
} event_buffer;

typedef struct turn_select {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    lw_hook hook;
    PyObject *original;  /* EpollSelector.select, bound to the selector */
    PyObject *fd_to_key; /* the selector's dict */
    PyObject *fileno;    /* the bound method of its epoll object: it raises where that is closed */
    PyObject *key_type;  /* selectors.SelectorKey */
    _Atomic(event_buffer *) buffer; /* NULL while a call has it */
} turn_select;

/* --- the buffer --- */

static event_buffer *
take_buffer(turn_select *self, size_t room)
{
    event_buffer *buffer = atomic_exchange_explicit(&self->buffer, NULL, memory_order_acquire);
    if (buffer && buffer->room >= room) {
        return buffer;
    }
    PyMem_RawFree(buffer);
    size_t rounded = EVENTS_MIN;
    while (rounded < room) {
        rounded *= 2;
    }
    buffer = PyMem_RawMalloc(sizeof *buffer + rounded * sizeof buffer->events[0]);
    if (buffer) {
        buffer->room = rounded;
    }
    return buffer;
}

static void
put_buffer(turn_select *self, event_buffer *buffer)
{
    PyMem_RawFree(atomic_exchange_explicit(&self->buffer, buffer, memory_order_acq_rel));
}

/* --- the timeout --- */

/* Rounds as EpollSelector.select and then epoll.poll do: up to a millisecond, as a float of
 * seconds, up to a nanosecond, up to a millisecond. 0.003 becomes 4 ms that way, there as here. */
static int
rounded_ms(double seconds)
{
    if (seconds <= 0) {
        return 0;
    }
    double whole_ms = ceil(seconds * 1e3) * 1e-3;
    double ns = ceil(whole_ms * 1e9);
    return (int)(((lw_ns)ns + LW_NS_PER_MS - 1) / LW_NS_PER_MS);
}

/* The timeout for epoll_wait; false where the original method has to decide. */
static bool
timeout_of_call(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, int *timeout_ms)
{
    if (nargs > 1 || kwnames) {
        return false;
    }
    if (nargs == 0 || args[0] == Py_None) {
        *timeout_ms = -1;
        return true;
    }
    double seconds;
    if (PyFloat_CheckExact(args[0])) {
        seconds = PyFloat_AS_DOUBLE(args[0]);
    }
    else if (PyLong_CheckExact(args[0])) {
        int overflow;
        seconds = (double)PyLong_AsLongAndOverflow(args[0], &overflow);
        if (overflow) {
            return false;
        }
    }
    else {
        return false;
    }
    if (!(seconds < LONGEST_TIMEOUT_S)) { /* or NaN */
        return false;
    }
    *timeout_ms = rounded_ms(seconds);
    return true;
}

/* --- the wait --- */

/* epoll_wait, the GIL dropped around it, stamped as soon as it is back. Returns how many events, or
 * -errno. */
static int
wait_once(lw_slot *slot, int epoll_fd, event_buffer *buffer, int max_events, int timeout_ms)
{
    int n;
    lw_ns back_ns;
    Py_BEGIN_ALLOW_THREADS
    n = epoll_wait(epoll_fd, buffer->events, max_events, timeout_ms);
    if (n < 0) {
        n = -errno;
    }
    back_ns = lw_now_ns();
    lw_pulse_back(slot, back_ns);
    Py_END_ALLOW_THREADS
    lw_pulse_gil(slot, lw_now_ns() - back_ns);
    return n;
}

/* Runs the signal handlers. 0: wait on; 1: the wait is over without events, as the original has it
 * where a handler raises InterruptedError; -1: an exception is set. */
static int
after_signal(void)
{
    if (PyErr_CheckSignals() == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        return -1;
    }
    PyErr_Clear();
    return 1;
}

/* Waits until there are events, the time is up or a signal handler raises. What handlers do is busy
 * time; the wait that follows them is due when the first one was. Returns how many events, or -1
 * with an exception set. */
static int
wait_for_events(lw_slot *slot, int epoll_fd, event_buffer *buffer, int max_events, int timeout_ms,
                lw_ns now_ns)
{
    lw_ns due_ns = timeout_ms < 0 ? LW_NS_NEVER : now_ns + (lw_ns)timeout_ms * LW_NS_PER_MS;
    for (;;) {
        lw_pulse_wait(slot, now_ns, due_ns);
        int n = wait_once(slot, epoll_fd, buffer, max_events, timeout_ms);
        if (n >= 0) {
            return n;
        }
        if (n != -EINTR) {
            errno = -n;
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        int stop = after_signal();
        if (stop) {
            return stop < 0 ? -1 : 0;
        }
        now_ns = lw_now_ns();
        if (timeout_ms >= 0) {
            if (now_ns > due_ns) {
                return 0;
            }
            timeout_ms = (int)((due_ns - now_ns + LW_NS_PER_MS - 1) / LW_NS_PER_MS);
        }
    }
}

/* --- the call --- */

/* The epoll descriptor, asked of its owner each time, because a closed one's number may be another
 * file by now; -1 with the owner's own exception where it is closed. */
static int
epoll_fd_of(turn_select *self)
{
    PyObject *fd = PyObject_CallNoArgs(self->fileno);
    if (!fd) {
        return -1;
    }
    long number = PyLong_AsLong(fd);
    Py_DECREF(fd);
    return (int)number;
}

static PyObject *
turn_select_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    turn_select *self = (turn_select *)object;
    if (lw_hook_gone(&self->hook)) {
        return lw_hook_raise_gone(object);
    }
    lw_ns now_ns = lw_now_ns();
    lw_hook_arrive(&self->hook, object);

    int timeout_ms;
    if (!timeout_of_call(args, PyVectorcall_NARGS(nargsf), kwnames, &timeout_ms)) {
        return lw_hook_call_select(&self->hook, now_ns, self->original, args, nargsf, kwnames);
    }
    int epoll_fd = epoll_fd_of(self);
    if (epoll_fd < 0) {
        return NULL;
    }
    Py_ssize_t registered = PyDict_GET_SIZE(self->fd_to_key);
    int max_events = registered > 0 ? (int)registered : 1;
    event_buffer *buffer = take_buffer(self, (size_t)max_events);
    if (!buffer) {
        return PyErr_NoMemory();
    }
    int n = wait_for_events(self->hook.slot, epoll_fd, buffer, max_events, timeout_ms, now_ns);
    PyObject *ready = NULL;
    if (n >= 0) {
        ready = lw_ready_list(self->fd_to_key, self->key_type, buffer->events, n);
    }
    put_buffer(self, buffer);
    return ready;
}

/* --- the type --- */

static bool
is_epoll_selector(PyObject *selector, PyObject *selectors)
{
    PyObject *wanted = PyObject_GetAttrString(selectors, "EpollSelector");
    if (!wanted) {
        return false;
    }
    bool same = (PyObject *)Py_TYPE(selector) == wanted;
    Py_DECREF(wanted);
    if (!same) {
        PyErr_Format(PyExc_TypeError,
                     "selector must be exactly a selectors.EpollSelector, not %.100s",
                     Py_TYPE(selector)->tp_name);
    }
    return same;
}

/* Takes from the selector what a turn needs; -1 with an exception set. */
static int
look_into(turn_select *self, PyObject *selector)
{
    int result = -1;
    PyObject *select = NULL, *epoll = NULL;
    PyObject *selectors = PyImport_ImportModule("selectors");
    if (!selectors || !is_epoll_selector(selector, selectors)) {
        goto done;
    }
    self->key_type = PyObject_GetAttrString(selectors, "SelectorKey");
    /* From the type: the instance's own `select` may be another hook already. */
    select = PyObject_GetAttrString((PyObject *)Py_TYPE(selector), "select");
    epoll = PyObject_GetAttrString(selector, "_selector");
    if (!self->key_type || !select || !epoll) {
        goto done;
    }
    self->original = PyMethod_New(select, selector);
    self->fileno = PyObject_GetAttrString(epoll, "fileno");
    self->fd_to_key = PyObject_GetAttrString(selector, "_fd_to_key");
    if (!self->original || !self->fileno || !self->fd_to_key) {
        goto done;
    }
    if (!PyDict_Check(self->fd_to_key)) {
        PyErr_SetString(PyExc_TypeError, "the selector's table of descriptors is not a dict");
        goto done;
    }
    result = 0;
done:
    Py_XDECREF(select);
    Py_XDECREF(epoll);
    Py_XDECREF(selectors);
    return result;
}

static PyObject *
turn_select_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slot", "selector", NULL};
    PyObject *slot, *selector;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:TurnSelect", names, &slot, &selector)) {
        return NULL;
    }
    turn_select *self = (turn_select *)type->tp_alloc(type, 0);
    if (!self) {
        return NULL;
    }
    self->vectorcall = turn_select_call;
    if (lw_hook_init(&self->hook, slot) < 0 || look_into(self, selector) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
turn_select_traverse(PyObject *object, visitproc visit, void *arg)
{
    turn_select *self = (turn_select *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->original);
    Py_VISIT(self->fd_to_key);
    Py_VISIT(self->fileno);
    Py_VISIT(self->key_type);
    return lw_hook_traverse(&self->hook, visit, arg);
}

static int
turn_select_clear(PyObject *object)
{
    turn_select *self = (turn_select *)object;
    lw_hook_clear(&self->hook);
    Py_CLEAR(self->original);
    Py_CLEAR(self->fd_to_key);
    Py_CLEAR(self->fileno);
    Py_CLEAR(self->key_type);
    return 0;
}

static void
turn_select_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)turn_select_clear(object);
    PyMem_RawFree(atomic_load_explicit(&((turn_select *)object)->buffer, memory_order_acquire));
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(turn_select, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "selectors.EpollSelector.select in C, stamping the beat."},
    {Py_tp_new, turn_select_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, members},
    {Py_tp_traverse, turn_select_traverse},
    {Py_tp_clear, turn_select_clear},
    {Py_tp_dealloc, turn_select_dealloc},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.TurnSelect",
    .basicsize = sizeof(turn_select),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_turn_select_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}

#else

int
lw_turn_select_add(PyObject *Py_UNUSED(module))
{
    return 0;
}

#endif
