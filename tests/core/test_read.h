/* A batch of guarded reads as Python hands it over: [(address, length), ...], copied into one
 * buffer. */
#ifndef LW_TEST_READ_H
#define LW_TEST_READ_H

#include <Python.h>

#include "memory/read.h"

typedef struct lw_test_batch {
    lw_segment *segments;
    char *copies;
    size_t n;
} lw_test_batch;

int lw_test_batch_parse(PyObject *pairs, lw_test_batch *batch); /* -1: exception set */
PyObject *lw_test_batch_copied(const lw_test_batch *batch,
                               size_t whole); /* [bytes, ...], the first `whole` */
void lw_test_batch_free(lw_test_batch *batch);

/* {"backend", "errors", "calls", "failed"} */
PyObject *lw_test_reader_facts(const lw_reader *reader);

#endif
