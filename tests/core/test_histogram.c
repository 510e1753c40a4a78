#include "testcore.h"

#include <pthread.h>
#include <stdbool.h>

#include "histogram.h"

static PyObject *
histogram_bucket(PyObject *Py_UNUSED(module), PyObject *value)
{
    unsigned long long value_ns = PyLong_AsUnsignedLongLong(value);
    if (value_ns == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyLong_FromSize_t(lw_histogram_bucket(value_ns));
}

static PyObject *
histogram_edge(PyObject *Py_UNUSED(module), PyObject *value)
{
    size_t bucket = PyLong_AsSize_t(value);
    if (bucket == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(lw_histogram_edge(bucket));
}

/* --- a histogram, read at rest --- */

static PyObject *
buckets_in_use(lw_histogram *histogram)
{
    PyObject *used = PyList_New(0);
    for (size_t i = 0; used && i < LW_HISTOGRAM_BUCKETS; i++) {
        uint64_t count = atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
        if (count == 0) {
            continue;
        }
        PyObject *entry = Py_BuildValue("nK", (Py_ssize_t)i, (unsigned long long)count);
        if (!entry || PyList_Append(used, entry) < 0) {
            Py_CLEAR(used);
        }
        Py_XDECREF(entry);
    }
    return used;
}

static PyObject *
summary(lw_histogram *histogram)
{
    uint64_t sum_ns = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
    uint64_t max_ns = atomic_load_explicit(&histogram->max_ns, memory_order_relaxed);
    PyObject *used = buckets_in_use(histogram);
    return used ? Py_BuildValue("NKK", used, (unsigned long long)sum_ns, (unsigned long long)max_ns)
                : NULL;
}

static PyObject *
histogram_of(PyObject *Py_UNUSED(module), PyObject *values)
{
    PyObject *result = NULL;
    PyObject *sequence = PySequence_Fast(values, "a sequence of integers is needed");
    lw_histogram *histogram = PyMem_Calloc(1, sizeof *histogram);
    if (!sequence || !histogram) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); i++) {
        unsigned long long value_ns =
            PyLong_AsUnsignedLongLong(PySequence_Fast_GET_ITEM(sequence, i));
        if (value_ns == (unsigned long long)-1 && PyErr_Occurred()) {
            goto done;
        }
        lw_histogram_add(histogram, value_ns, 1);
    }
    result = summary(histogram);
done:
    if (!histogram && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    PyMem_Free(histogram);
    Py_XDECREF(sequence);
    return result;
}

/* --- a histogram, read while it is written --- */

/* Multiples of a number whose halves are equal: so are the halves of each sum and maximum of them,
 * unless a reader put together halves of two. Each multiple falls into a bucket of its own. */
#define EQUAL_HALVES (((uint64_t)1 << 32) + 1)
#define MULTIPLES 3

typedef struct race {
    lw_histogram histogram;
    uint64_t n; /* values to add */
    _Atomic bool finished;
} race;

static void *
write_all(void *argument)
{
    race *shared = argument;
    for (uint64_t i = 0; i < shared->n; i++) {
        lw_histogram_add(&shared->histogram, (i % MULTIPLES + 1) * EQUAL_HALVES, 1);
    }
    atomic_store_explicit(&shared->finished, true, memory_order_release);
    return NULL;
}

static bool
torn(uint64_t number)
{
    return number >> 32 != (number & UINT32_MAX);
}

typedef struct sighting {
    uint64_t sum_ns, max_ns, counts[MULTIPLES];
} sighting;

static void
look(lw_histogram *histogram, sighting *seen)
{
    seen->sum_ns = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
    seen->max_ns = atomic_load_explicit(&histogram->max_ns, memory_order_relaxed);
    for (size_t i = 0; i < MULTIPLES; i++) {
        size_t bucket = lw_histogram_bucket((i + 1) * EQUAL_HALVES);
        seen->counts[i] = atomic_load_explicit(&histogram->buckets[bucket], memory_order_relaxed);
    }
}

static bool
went_back(const sighting *before, const sighting *now)
{
    bool back = now->sum_ns < before->sum_ns || now->max_ns < before->max_ns;
    for (size_t i = 0; i < MULTIPLES; i++) {
        back = back || now->counts[i] < before->counts[i];
    }
    return back;
}

/* Reads while another thread writes; returns ((looks, torn, went back), summary at the end). */
static PyObject *
histogram_race(PyObject *Py_UNUSED(module), PyObject *value)
{
    unsigned long long n = PyLong_AsUnsignedLongLong(value);
    if (n == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    race *shared = PyMem_Calloc(1, sizeof *shared);
    if (!shared) {
        return PyErr_NoMemory();
    }
    shared->n = n;
    pthread_t writer;
    if (pthread_create(&writer, NULL, write_all, shared) != 0) {
        PyMem_Free(shared);
        PyErr_SetString(PyExc_RuntimeError, "no thread");
        return NULL;
    }
    unsigned long long looks = 0, n_torn = 0, n_back = 0;
    sighting before = {0};
    Py_BEGIN_ALLOW_THREADS
    while (!atomic_load_explicit(&shared->finished, memory_order_acquire)) {
        sighting now;
        look(&shared->histogram, &now);
        looks += now.sum_ns != before.sum_ns;
        n_torn += torn(now.sum_ns) || torn(now.max_ns);
        n_back += went_back(&before, &now);
        before = now;
    }
    pthread_join(writer, NULL);
    Py_END_ALLOW_THREADS
    PyObject *end = summary(&shared->histogram);
    PyMem_Free(shared);
    return end ? Py_BuildValue("(KKK)N", looks, n_torn, n_back, end) : NULL;
}

PyMethodDef lw_test_histogram_methods[] = {
    {"histogram_bucket", histogram_bucket, METH_O, "histogram_bucket(value_ns) -> int"},
    {"histogram_edge", histogram_edge, METH_O, "histogram_edge(bucket) -> int"},
    {"histogram_of", histogram_of, METH_O,
     "histogram_of(values) -> ([(bucket, count), ...], sum_ns, max_ns)"},
    {"histogram_race", histogram_race, METH_O,
     "histogram_race(n) -> ((looks, torn, went_back), (buckets, sum_ns, max_ns)): read while n "
     "values are added."},
    {NULL, NULL, 0, NULL},
};
