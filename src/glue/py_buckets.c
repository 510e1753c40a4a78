#include "py_buckets.h"

#include <string.h>

#include "histogram.h"

_Static_assert(LW_HISTOGRAM_BUCKETS <= UINT16_MAX, "a bucket's number must fit");

PyObject *
lw_buckets_in_use(const uint64_t *counts)
{
    Py_ssize_t used = 0;
    for (size_t i = 0; i < LW_HISTOGRAM_BUCKETS; i++) {
        used += counts[i] != 0;
    }
    PyObject *numbers = PyBytes_FromStringAndSize(NULL, used * (Py_ssize_t)sizeof(uint16_t));
    PyObject *in_each = PyBytes_FromStringAndSize(NULL, used * (Py_ssize_t)sizeof(uint64_t));
    if (!numbers || !in_each) {
        Py_XDECREF(numbers);
        Py_XDECREF(in_each);
        return NULL;
    }
    char *number = PyBytes_AS_STRING(numbers), *count = PyBytes_AS_STRING(in_each);
    for (size_t i = 0; i < LW_HISTOGRAM_BUCKETS; i++) {
        if (counts[i]) {
            uint16_t bucket = (uint16_t)i;
            memcpy(number, &bucket, sizeof bucket);
            memcpy(count, &counts[i], sizeof *counts);
            number += sizeof bucket;
            count += sizeof *counts;
        }
    }
    return Py_BuildValue("NN", numbers, in_each);
}
