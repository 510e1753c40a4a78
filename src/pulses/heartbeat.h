/* Heartbeat(slot, loop, tick): a timer that stamps and arms itself again; for any loop that has
 * call_later. */
#ifndef LW_HEARTBEAT_H
#define LW_HEARTBEAT_H

#include <Python.h>

int lw_heartbeat_add(PyObject *module);

#endif
