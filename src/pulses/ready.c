/* The answer of a selector's select, made of what epoll says: ready.h. */
#include "ready.h"

#if defined(__linux__) && !defined(LW_PORTABLE)

#include <sys/epoll.h>

#include "compat.h"

#define EVENT_READ 1  /* selectors.EVENT_READ */
#define EVENT_WRITE 2 /* selectors.EVENT_WRITE */
#define KEY_EVENTS 2  /* index of `events` in a selectors.SelectorKey */

/* What epoll says, as selectors says it, for the events that the key asks for: a new int. */
static PyObject *
key_events(PyObject *key_type, PyObject *key, uint32_t epoll_events)
{
    long events = (epoll_events & ~(uint32_t)EPOLLIN ? EVENT_WRITE : 0) |
                  (epoll_events & ~(uint32_t)EPOLLOUT ? EVENT_READ : 0);
    PyObject *wanted = Py_IS_TYPE(key, (PyTypeObject *)key_type)
                           ? Py_NewRef(PyTuple_GET_ITEM(key, KEY_EVENTS))
                           : PyObject_GetAttrString(key, "events");
    if (!wanted) {
        return NULL;
    }
    PyObject *result = NULL;
    PyObject *seen = PyLong_FromLong(events);
    if (seen) {
        result = PyNumber_And(seen, wanted);
        Py_DECREF(seen);
    }
    Py_DECREF(wanted);
    return result;
}

/* Appends (key, events) for one event; 0 also where nobody is registered for its descriptor any
 * more. */
static int
append_ready(PyObject *ready, PyObject *fd_to_key, PyObject *key_type,
             const struct epoll_event *event)
{
    PyObject *fd = PyLong_FromLong(event->data.fd);
    if (!fd) {
        return -1;
    }
    PyObject *key = lw_dict_get(fd_to_key, fd);
    Py_DECREF(fd);
    if (!key) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *events = key_events(key_type, key, event->events);
    PyObject *pair = events ? PyTuple_Pack(2, key, events) : NULL;
    int result = pair ? PyList_Append(ready, pair) : -1;
    Py_XDECREF(pair);
    Py_XDECREF(events);
    Py_DECREF(key);
    return result;
}

PyObject *
lw_ready_list(PyObject *fd_to_key, PyObject *key_type, const struct epoll_event *events, int n)
{
    PyObject *ready = PyList_New(0);
    for (int i = 0; ready && i < n; i++) {
        if (append_ready(ready, fd_to_key, key_type, &events[i]) < 0) {
            Py_CLEAR(ready);
        }
    }
    return ready;
}

#endif
