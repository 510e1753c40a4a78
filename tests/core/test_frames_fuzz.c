/* Snapshots over memory that lies: the reader's function is replaced by one that gives back
 * garbage, flips words, mixes up pointers or stops in the middle. Whatever it says, a snapshot must
 * come back, in bounds and soon.
 */
#define PY_SSIZE_T_CLEAN
#include "testcore.h"

#include <stdlib.h>
#include <string.h>

#include "test_frames.h"

#define SEEN 256

typedef enum fuzz_mode {
    FUZZ_GARBAGE = 0, /* every byte random */
    FUZZ_FLIP,        /* now and then a word has a bit flipped */
    FUZZ_STOP,        /* batches end early */
    FUZZ_SHUFFLE,     /* now and then a word is one that was read before */
    FUZZ_SMALL,       /* now and then a word is 0, all ones, or small */
    FUZZ_MODES,
} fuzz_mode;

typedef struct fuzz {
    lw_read_function real;
    fuzz_mode mode;
    uint64_t state;
    uint64_t rarity;  /* one word in so many is spoiled; a power of two, another one each round */
    uintptr_t honest; /* what is read from here is left alone, 0: nothing; so that a walk gets past
                         its first step */
    uint64_t seen[SEEN];
} fuzz;

static uint64_t
random_word(fuzz *job)
{
    uint64_t z = job->state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint64_t
spoil_word(fuzz *job, uint64_t word)
{
    uint64_t chance = random_word(job);
    if (job->mode == FUZZ_GARBAGE) {
        return chance;
    }
    job->seen[chance % SEEN] = word;
    if (chance >> 24 & (job->rarity - 1)) {
        return word;
    }
    switch (job->mode) {
    case FUZZ_FLIP:
        return word ^ (uint64_t)1 << (chance >> 40 & 63);
    case FUZZ_SHUFFLE:
        return job->seen[chance >> 48 & (SEEN - 1)];
    case FUZZ_SMALL:
        return chance >> 40 & 1 ? (chance >> 41 & 1 ? UINT64_MAX : 0) : chance >> 42 & 0xFFF;
    case FUZZ_GARBAGE:
    case FUZZ_STOP:
    case FUZZ_MODES:
        break;
    }
    return word;
}

static size_t
read_spoiled(lw_reader *reader, const lw_segment *segments, size_t n)
{
    fuzz *job = reader->context;
    size_t most = n;
    if (job->mode == FUZZ_STOP && random_word(job) % 4 == 0) {
        most = random_word(job) % n;
    }
    size_t read = most ? job->real(reader, segments, most) : 0;
    if (job->mode == FUZZ_GARBAGE && segments[0].address != job->honest) {
        read = most;
    }
    for (size_t i = 0; i < read; i++) {
        char *copy = segments[i].copy;
        if (segments[i].address == job->honest) {
            continue;
        }
        if (job->mode == FUZZ_GARBAGE) {
            memset(copy, (int)(random_word(job) & 0xFF), segments[i].length);
        }
        for (size_t at = 0; at + sizeof(uint64_t) <= segments[i].length; at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, copy + at, sizeof word);
            word = spoil_word(job, word);
            memcpy(copy + at, &word, sizeof word);
        }
    }
    return read;
}

/* Everything that a consumer would touch; the sum keeps the compiler from leaving it out. */
static uint64_t
consume(const lw_snapper *snapper, const lw_snapshot *snapshot)
{
    uint64_t sum = snapshot->truncated;
    for (uint32_t i = 0; i < snapshot->depth; i++) {
        const lw_code *code = lw_code_get(snapper, snapshot->frames[i].code);
        sum += strlen(code->filename) + strlen(code->qualname) +
               (uint64_t)snapshot->frames[i].position.lineno;
    }
    return sum;
}

static PyObject *
frames_fuzz(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *ref;
    long rounds;
    int mode;
    unsigned long long seed;
    lw_thread_ref thread;
    if (!PyArg_ParseTuple(args, "OlKi", &ref, &rounds, &seed, &mode) ||
        !lw_test_thread(ref, &thread)) {
        return NULL;
    }
    if (mode < 0 || mode >= FUZZ_MODES) {
        PyErr_SetString(PyExc_ValueError, "no such mode");
        return NULL;
    }
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    fuzz job = {.real = reader.read, .mode = (fuzz_mode)mode, .state = seed};
    reader.context = &job;
    lw_snapper *snapper = lw_snapper_new(&reader);
    lw_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapper || !snapshot) {
        return PyErr_NoMemory();
    }
    uint64_t sum = 0, frames = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (long i = 0; i < rounds; i++) {
        /* Honest now and then, so that the guesses point to something. */
        reader.read = i % 4 ? read_spoiled : job.real;
        job.rarity = (uint64_t)16 << random_word(&job) % 12;
        job.honest = i % 8 < 5 ? thread.tstate : 0;
        lw_snapshot_take(snapper, &thread, snapshot);
        sum += consume(snapper, snapshot) + lw_snapshot_glance(snapper, &thread);
        frames += i % 4 ? snapshot->depth : 0;
        if (lw_codes_want_flush(snapper)) {
            lw_codes_flush(snapper);
        }
    }
    Py_END_ALLOW_THREADS;
    lw_snap_counts counts = *lw_snap_counts_get(snapper);
    lw_snapper_free(snapper);
    lw_reader_close(&reader);
    free(snapshot);
    return Py_BuildValue("{sKsKsKsKsK}", "frames", frames, "broken", counts.broken, "unreadable",
                         counts.unreadable, "endless", counts.endless, "sum", sum);
}

PyMethodDef lw_test_frames_fuzz_methods[] = {
    {"frames_fuzz", frames_fuzz, METH_VARARGS,
     "frames_fuzz(ref, rounds, seed, mode) -> dict of counts"},
    {NULL, NULL, 0, NULL},
};
