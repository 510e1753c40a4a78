/* Request(scope, find): one request from its begin to its end, and what its steps have taken so
 * far.
 *
 * Whoever runs a part of it puts lw_request_enter and lw_request_leave around each step (stepper.h);
 * several coroutines may belong to one request. Only the thread of the loop that it began on counts,
 * and only while that loop is watched.
 *
 * `find(scope)` is called when a step has suspended and the route is not known yet: it answers a
 * Route, or None.
 */
#ifndef LW_REQUEST_H
#define LW_REQUEST_H

#include <Python.h>
#include <stdbool.h>

#include "route.h"
#include "routes.h"

typedef struct lw_request_step {
    bool counts;     /* False: not on its loop, or inside a step of the same request */
    PyObject *outer; /* whose step this one runs inside of on this thread, borrowed; or NULL */
    lw_ns cpu_ns;
    lw_route_step turn;
} lw_request_step;

int lw_request_add(PyObject *module);

/* Whether it is a Request of this module. */
bool lw_is_request(PyObject *object);

void lw_request_enter(PyObject *request, lw_request_step *step);
void lw_request_leave(PyObject *request, const lw_request_step *step);

/* After a step that suspended, with no exception set: looks for the route, where it is time to. */
void lw_request_suspended(PyObject *request);

#endif
