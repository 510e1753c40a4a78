/* What the wrappers of the frames' tests share. */
#ifndef LW_TEST_FRAMES_H
#define LW_TEST_FRAMES_H

#include <Python.h>

#include <stdbool.h>

#include "frames/code.h"
#include "frames/snapshot.h"

#define LW_TEST_SNAPPER "loopwatch test snapper"

typedef struct lw_test_snapper {
    lw_reader reader;
    lw_snapper *snapper;
    lw_codes *codes; /* a cache of its own, for tests of the cache alone */
    lw_snap_counts counts;
} lw_test_snapper;

/* The thread that frames_thread_ref() named; false with an exception set. */
bool lw_test_thread(PyObject *bytes, lw_thread_ref *thread);

/* A snapshot as a dict; NULL with an exception set. */
PyObject *lw_test_snapshot(const lw_snapper *snapper, const lw_snapshot *snapshot);

#endif
