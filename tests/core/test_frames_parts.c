/* Wrappers around the parts of src/frames/ by themselves: line tables, the code cache, strings. */
#define PY_SSIZE_T_CLEAN
#include "testcore.h"

#include "frames/layout.h"
#include "frames/linetable.h"
#include "frames/strings.h"
#include "test_frames.h"

static PyObject *
position_tuple(const lw_position *at)
{
    return Py_BuildValue("iiii", at->lineno, at->end_lineno, at->colno, at->end_colno);
}

static PyObject *
linetable_find(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *table;
    Py_ssize_t length;
    int firstlineno, instruction;
    lw_position at;
    if (!PyArg_ParseTuple(args, "y#ii", &table, &length, &firstlineno, &instruction)) {
        return NULL;
    }
    if (!lw_linetable_find((const uint8_t *)table, (size_t)length, firstlineno, instruction, &at)) {
        Py_RETURN_NONE;
    }
    return position_tuple(&at);
}

/* The id of a code object, as a walk would get it. */
static uint32_t
resolve(lw_test_snapper *handle, PyObject *code)
{
    char copy[LW_CODE_COPY_MAX];
    lw_raw_code raw;
    if (!lw_read(&handle->reader, (uintptr_t)code, copy, lw_the_layout.code_length)) {
        return LW_CODE_UNKNOWN;
    }
    lw_layout_read_code(copy, (uintptr_t)code, &raw);
    return lw_codes_resolve(handle->codes, &raw.identity);
}

static PyObject *
code_positions(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *code;
    if (!PyArg_ParseTuple(args, "OO!", &capsule, &PyCode_Type, &code)) {
        return NULL;
    }
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    if (!handle) {
        return NULL;
    }
    if (lw_codes_nearly_full(handle->codes)) {
        lw_codes_clear(handle->codes);
    }
    uint32_t id = resolve(handle, code);
    const lw_code *known = lw_codes_get(handle->codes, id);
    PyObject *positions = PyList_New(0);
    for (Py_ssize_t i = 0; positions && i < Py_SIZE(code); i++) {
        lw_position at;
        lw_codes_position(handle->codes, id, (int32_t)i * 2, &at);
        PyObject *tuple = position_tuple(&at);
        if (!tuple || PyList_Append(positions, tuple) < 0) {
            Py_CLEAR(positions);
        }
        Py_XDECREF(tuple);
    }
    return positions
               ? Py_BuildValue("Iy#y#N", id, known->filename, (Py_ssize_t)known->filename_length,
                               known->qualname, (Py_ssize_t)known->qualname_length, positions)
               : NULL;
}

static PyObject *
string(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    Py_ssize_t room;
    if (!PyArg_ParseTuple(args, "On", &object, &room)) {
        return NULL;
    }
    PyObject *out = PyBytes_FromStringAndSize(NULL, room);
    if (!out) {
        return NULL;
    }
    lw_reader reader;
    size_t length;
    lw_reader_open(&reader, false, -1);
    bool ok =
        lw_string_read(&reader, (uintptr_t)object, PyBytes_AS_STRING(out), (size_t)room, &length);
    lw_reader_close(&reader);
    if (!ok) {
        Py_DECREF(out);
        Py_RETURN_NONE;
    }
    _PyBytes_Resize(&out, (Py_ssize_t)length);
    return out;
}

PyMethodDef lw_test_frames_parts_methods[] = {
    {"frames_linetable", linetable_find, METH_VARARGS,
     "frames_linetable(table, first, instruction) -> tuple | None"},
    {"frames_positions", code_positions, METH_VARARGS,
     "frames_positions(snapper, code) -> (id, file, name, list)"},
    {"frames_string", string, METH_VARARGS, "frames_string(str, room) -> bytes | None"},
    {NULL, NULL, 0, NULL},
};
