/* Stepper(request, coroutine): an awaitable around a coroutine that counts its steps for a request.
 *
 * `await Stepper(request, coroutine)` is `await coroutine`: the same values go in and out, the same
 * exceptions, and no frame of ours is in a traceback.
 */
#ifndef LW_STEPPER_H
#define LW_STEPPER_H

#include <Python.h>

int lw_stepper_add(PyObject *module);

#endif
