/* TurnSelect(slot, selector): the select of exactly selectors.EpollSelector, in C. */
#ifndef LW_TURN_SELECT_H
#define LW_TURN_SELECT_H

#include <Python.h>

/* Where there is no epoll (or in the portable build) there is no such type, and this adds nothing.
 */
int lw_turn_select_add(PyObject *module);

#endif
