/* From epoll's events to what selectors.EpollSelector.select returns. */
#ifndef LW_READY_H
#define LW_READY_H

#include <Python.h>

struct epoll_event;

/* [(key, events & key.events), ...] for the events whose descriptor is in `fd_to_key`, a dict, in
 * their order; NULL with an exception set. `key_type`: selectors.SelectorKey, whose instances are
 * read without asking for an attribute by name. */
PyObject *lw_ready_list(PyObject *fd_to_key, PyObject *key_type, const struct epoll_event *events,
                        int n);

#endif
