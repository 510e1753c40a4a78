/* RunEdge(slot, run_forever): where the loop begins and ends to run. */
#ifndef LW_RUN_EDGE_H
#define LW_RUN_EDGE_H

#include <Python.h>

int lw_run_edge_add(PyObject *module);

#endif
