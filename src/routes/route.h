/* Route(number): what the requests of one route have taken of the loop, in sum.
 *
 * Its loop's thread adds, and now and then whoever ends a request that was dropped; any thread reads.
 * Each number by itself never falls; together they may be those of two moments.
 */
#ifndef LW_ROUTE_H
#define LW_ROUTE_H

#include <Python.h>
#include <stdbool.h>

#include "slot.h"

typedef struct lw_route {
    PyObject_HEAD
    uint32_t number;         /* in the watch's table, from 1 */
    _Atomic uint64_t count;  /* requests that have ended */
    _Atomic uint64_t cpu_ns; /* of the loop's thread, those that go on among them */
    _Atomic uint64_t busy_ns;
} lw_route;

static inline void
lw_route_count(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

int lw_route_add(PyObject *module);

/* Whether it is a Route of this module. */
bool lw_is_route(PyObject *object);

#endif
