/* Decoding: plain bytes in, plain Python objects out; every reference that is made is owned by the
 * dict. */
#include "py_record.h"

#include <stdbool.h>
#include <stdlib.h>

#include "steps/steps.h"

static PyObject *
text(const char *bytes, size_t length)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "surrogatepass");
}

/* Steals `value`, which may be NULL with an exception set. */
static int
put(PyObject *dict, const char *key, PyObject *value)
{
    int result = value ? PyDict_SetItemString(dict, key, value) : -1;
    Py_XDECREF(value);
    return result;
}

static PyObject *
decode_frames(const lw_record *record)
{
    const lw_node *nodes = lw_record_nodes(record);
    const lw_record_code *codes = lw_record_codes(record);
    const char *strings = lw_record_strings(record);
    PyObject *names =
        PyList_New(2 * (Py_ssize_t)record->n_codes); /* each name becomes one object */
    PyObject *frames = PyList_New(record->n_nodes ? (Py_ssize_t)record->n_nodes - 1 : 0);
    if (!names || !frames) {
        goto error;
    }
    for (uint32_t i = 0; i < record->n_codes; i++) {
        PyObject *filename = text(strings + codes[i].filename, codes[i].filename_length);
        PyObject *qualname = text(strings + codes[i].qualname, codes[i].qualname_length);
        PyList_SET_ITEM(names, 2 * (Py_ssize_t)i, filename);
        PyList_SET_ITEM(names, 2 * (Py_ssize_t)i + 1, qualname);
        if (!filename || !qualname) {
            goto error;
        }
    }
    for (uint32_t i = 1; i < record->n_nodes; i++) {
        const lw_position *at = &nodes[i].position;
        Py_ssize_t code = 2 * (Py_ssize_t)nodes[i].code;
        PyObject *frame = Py_BuildValue("OiOiii", PyList_GET_ITEM(names, code), (int)at->lineno,
                                        PyList_GET_ITEM(names, code + 1), (int)at->end_lineno,
                                        (int)at->colno, (int)at->end_colno);
        if (!frame) {
            goto error;
        }
        PyList_SET_ITEM(frames, (Py_ssize_t)i - 1, frame);
    }
    Py_DECREF(names);
    return frames;
error:
    Py_XDECREF(names);
    Py_XDECREF(frames);
    return NULL;
}

/* The frames from the root to `leaf`, as indexes in the list of decode_frames (node - 1). */
static PyObject *
decode_stack(const lw_node *nodes, uint32_t leaf)
{
    Py_ssize_t depth = 0;
    for (uint32_t at = leaf; at != LW_NO_NODE; at = nodes[at].parent) {
        depth++;
    }
    PyObject *stack = PyList_New(depth);
    if (!stack) {
        return NULL;
    }
    for (uint32_t at = leaf; at != LW_NO_NODE; at = nodes[at].parent) {
        PyObject *index = PyLong_FromUnsignedLong(at - 1);
        if (!index) {
            Py_DECREF(stack);
            return NULL;
        }
        PyList_SET_ITEM(stack, --depth, index);
    }
    return stack;
}

/* Index in `stacks` of the stack of `node`, which is decoded at its first use; -1: there is none,
 * -2: an exception is set. `made` has index + 1 by node. */
static long
stack_index(const lw_node *nodes, uint32_t node, PyObject *stacks, long *made)
{
    if (node == LW_NO_NODE) {
        return -1;
    }
    if (!made[node]) {
        PyObject *stack = decode_stack(nodes, node);
        if (!stack || PyList_Append(stacks, stack) < 0) {
            Py_XDECREF(stack);
            return -2;
        }
        Py_DECREF(stack);
        made[node] = (long)PyList_GET_SIZE(stacks);
    }
    return made[node] - 1;
}

/* Fills in both lists: each stack once, and the samples that refer to them. */
static int
decode_samples(const lw_record *record, PyObject *stacks, PyObject *samples)
{
    static const char *const qualities[] = {
        [LW_MOVING] = "moving", [LW_CONSISTENT] = "consistent", [LW_EXACT] = "exact"};
    const lw_node *nodes = lw_record_nodes(record);
    const lw_record_sample *all = lw_record_samples(record);
    long *made = PyMem_Calloc(record->n_nodes + 1, sizeof *made);
    if (!made) {
        PyErr_NoMemory();
        return -1;
    }
    int result = -1;
    for (uint32_t i = 0; i < record->n_samples; i++) {
        const lw_record_sample *it = &all[i];
        long stack = stack_index(nodes, it->node, stacks, made);
        long holder_stack = stack == -2 ? -2 : stack_index(nodes, it->holder_node, stacks, made);
        if (holder_stack == -2) {
            goto done;
        }
        PyObject *sample = Py_BuildValue(
            "KKlsIilis", (unsigned long long)it->offset_ns, (unsigned long long)it->weight_ns,
            stack, qualities[it->quality], (unsigned)it->truncated, (int)it->task, holder_stack,
            (int)it->holder, lw_cause_name((lw_cause)it->cause));
        if (!sample || PyList_Append(samples, sample) < 0) {
            Py_XDECREF(sample);
            goto done;
        }
        Py_DECREF(sample);
    }
    result = 0;
done:
    PyMem_Free(made);
    return result;
}

/* A list of what `decode` makes of each of the first n. */
static PyObject *
decode_list(const lw_record *record, uint32_t n, PyObject *(*decode)(const lw_record *, uint32_t))
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (uint32_t i = 0; list && i < n; i++) {
        PyObject *one = decode(record, i);
        if (!one) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, one);
    }
    return list;
}

static PyObject *
decode_tally(const lw_record *record, uint32_t i)
{
    const lw_record_sample *sample = &lw_record_samples(record)[i];
    return Py_BuildValue("KK", (unsigned long long)sample->count,
                         (unsigned long long)sample->worst_ns);
}

/* [(count, worst_ns), ...] beside the samples, where these are a tally's. */
static PyObject *
decode_tallied(const lw_record *record)
{
    bool tallied = record->kind == LW_RECORD_PROFILE || record->kind == LW_RECORD_SLOW;
    return decode_list(record, tallied ? record->n_samples : 0, decode_tally);
}

static PyObject *
decode_task(const lw_record *record, uint32_t i)
{
    const lw_task *task = &lw_record_tasks(record)[i];
    return Py_BuildValue("KNN", (unsigned long long)task->address,
                         text(task->name, strlen(task->name)),
                         text(task->coroutine, strlen(task->coroutine)));
}

static PyObject *
decode_step(const lw_record *record, uint32_t i)
{
    const lw_step_time *step = &lw_record_steps(record)[i];
    return Py_BuildValue("sK", lw_step_name(step->name), (unsigned long long)step->ns);
}

static PyObject *
decode_route(const lw_record *record, uint32_t i)
{
    const lw_turn_routes *routes = &record->routes;
    return Py_BuildValue("IK", (unsigned)routes->routes[i].route,
                         (unsigned long long)routes->routes[i].ns);
}

/* (request, route of its longest step, nanoseconds of it, [(route, nanoseconds), ...]) */
static PyObject *
decode_routes(const lw_record *record)
{
    const lw_turn_routes *routes = &record->routes;
    PyObject *list = decode_list(record, routes->n, decode_route);
    return list ? Py_BuildValue("KIKN", (unsigned long long)routes->request,
                                (unsigned)routes->longest.route,
                                (unsigned long long)routes->longest.ns, list)
                : NULL;
}

static PyObject *
decode_holder(const lw_record *record, uint32_t i)
{
    const lw_holder *holder = &lw_record_holders(record)[i];
    return Py_BuildValue("iK", (int)holder->tid, (unsigned long long)holder->ident);
}

static PyObject *
decode_breakdown(const lw_record *record)
{
    PyObject *dict = PyDict_New();
    for (int cause = 0; dict && cause < LW_CAUSES; cause++) {
        if (record->parts.ns[cause] &&
            put(dict, lw_cause_name((lw_cause)cause),
                PyLong_FromUnsignedLongLong(record->parts.ns[cause])) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

/* None where this system cannot tell. */
static int
put_known(PyObject *dict, const char *key, bool known, uint64_t value)
{
    return put(dict, key, known ? PyLong_FromUnsignedLongLong(value) : Py_NewRef(Py_None));
}

static PyObject *
decode_evidence(const lw_record *record)
{
    const lw_record_totals *totals = &record->totals;
    const char *syscall = lw_syscall_name(totals->syscall);
    bool collected = totals->gc_generation >= 0;
    PyObject *dict = PyDict_New();
    if (!dict || put_known(dict, "cpu_ns", totals->known & LW_KNOWS_CPU, totals->cpu_ns) < 0 ||
        put_known(dict, "run_queue_ns", totals->known & LW_KNOWS_RUN_QUEUE, totals->run_queue_ns) <
            0 ||
        put_known(dict, "throttled_ns", totals->known & LW_KNOWS_THROTTLED, totals->throttled_ns) <
            0 ||
        put_known(dict, "gil_wait_ns", totals->known & LW_KNOWS_GIL, record->parts.ns[LW_GIL]) <
            0 ||
        put_known(dict, "gc_ns", totals->known & LW_KNOWS_GC, totals->gc_ns) < 0 ||
        put_known(dict, "gc_generation", collected,
                  collected ? (uint64_t)totals->gc_generation : 0) < 0 ||
        put_known(dict, "major_faults", totals->known & LW_KNOWS_FAULTS, totals->major_faults) <
            0 ||
        put_known(dict, "callbacks", totals->callbacks >= 0, (uint64_t)totals->callbacks) < 0 ||
        put_known(dict, "watchdog_late_ns", record->n_samples != 0, totals->watchdog_late_ns) < 0 ||
        put(dict, "syscall", syscall ? PyUnicode_FromString(syscall) : Py_NewRef(Py_None)) < 0 ||
        put(dict, "target",
            totals->target[0] ? PyUnicode_DecodeFSDefault(totals->target) : Py_NewRef(Py_None)) <
            0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static int
put_numbers(PyObject *dict, const lw_record *record)
{
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"token", record->token},
        {"slot", record->slot_key},
        {"id", record->id},
        {"turn", record->turn},
        {"begin_ns", record->begin_ns},
        {"end_ns", record->end_ns},
        {"started_at_ns", record->started_at_ns},
        {"ident", record->thread.ref.ident},
        {"native_thread_id", (uint64_t)record->thread.ref.tid},
        {"samples_merged", record->merged},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (put(dict, numbers[i].key, PyLong_FromUnsignedLongLong(numbers[i].value)) < 0) {
            return -1;
        }
    }
    return 0;
}

PyObject *
lw_record_decode(const lw_record *record)
{
    static const char *const kinds[] = {
        [LW_RECORD_ENDED] = "ended",     [LW_RECORD_ONGOING] = "ongoing",
        [LW_RECORD_CAPTURE] = "capture", [LW_RECORD_PROFILE] = "profile",
        [LW_RECORD_SLOW] = "slow",       [LW_RECORD_LOOK] = "look"};
    PyObject *dict = PyDict_New();
    PyObject *stacks = PyList_New(0);
    PyObject *samples = PyList_New(0);
    if (!dict || !stacks || !samples || put_numbers(dict, record) < 0 ||
        decode_samples(record, stacks, samples) < 0 ||
        put(dict, "kind", PyUnicode_FromString(kinds[record->kind])) < 0 ||
        put(dict, "overdue", PyBool_FromLong((long)record->overdue)) < 0 ||
        put(dict, "thread", text(record->thread.name, strlen(record->thread.name))) < 0 ||
        put(dict, "frames", decode_frames(record)) < 0 ||
        put(dict, "tasks", decode_list(record, record->n_tasks, decode_task)) < 0 ||
        put(dict, "tallied", decode_tallied(record)) < 0 ||
        put(dict, "steps", decode_list(record, record->n_steps, decode_step)) < 0 ||
        put(dict, "routes", decode_routes(record)) < 0 ||
        put(dict, "holders", decode_list(record, record->n_holders, decode_holder)) < 0 ||
        put(dict, "breakdown", decode_breakdown(record)) < 0 ||
        put(dict, "evidence", decode_evidence(record)) < 0 ||
        PyDict_SetItemString(dict, "stacks", stacks) < 0 ||
        PyDict_SetItemString(dict, "samples", samples) < 0) {
        Py_CLEAR(dict);
    }
    Py_XDECREF(stacks);
    Py_XDECREF(samples);
    return dict;
}
