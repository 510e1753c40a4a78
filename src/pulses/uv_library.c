/* Reaching libuv through uvloop's extension module.
 *
 * `uvloop.loop` is found in sys.modules, never imported: a loop of its type exists only where it
 * is. Its file is opened again with RTLD_NOLOAD, which finds the mapping that is there or fails;
 * dlsym() then searches the module and what it was linked with, so a uvloop built against the
 * system's libuv works too. The handle of dlopen() is kept: CPython never unloads an extension
 * module either.
 */
#include "uv_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* As uv_version() has them: major, minor and patch, a byte each. */
#define LW_UV_OLDEST 0x012700u  /* 1.39: uv_metrics_idle_time(), uv_loop_configure() knows of it */
#define LW_UV_TOO_NEW 0x020000u /* libuv keeps its ABI within a major version */

/* A strong reference to an attribute of the module `uvloop.loop`. */
static PyObject *
uvloop_attribute(const char *name)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *module = PyMapping_GetItemString(modules, "uvloop.loop");
    if (!module) {
        PyErr_SetString(PyExc_TypeError, "not a loop of uvloop, which is not loaded");
        return NULL;
    }
    PyObject *attribute = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    if (!attribute) {
        PyErr_Format(PyExc_RuntimeError, "this uvloop has no uvloop.loop.%s", name);
    }
    return attribute;
}

/* uvloop's own accessor casts without a check, so the true type is checked first (isinstance() can
 * be lied to). */
static int
find_loop(PyObject *loop, void **uv_loop)
{
    PyObject *type = uvloop_attribute("Loop");
    if (!type) {
        return -1;
    }
    bool is_uvloop = PyType_Check(type) && PyObject_TypeCheck(loop, (PyTypeObject *)type);
    Py_DECREF(type);
    if (!is_uvloop) {
        PyErr_Format(PyExc_TypeError, "not a loop of uvloop: %R", loop);
        return -1;
    }
    PyObject *accessor = uvloop_attribute("libuv_get_loop_t_ptr"); /* uvloop 0.17 */
    if (!accessor) {
        return -1;
    }
    PyObject *capsule = PyObject_CallOneArg(accessor, loop);
    Py_DECREF(accessor);
    if (!capsule) {
        return -1;
    }
    *uv_loop = PyCapsule_GetPointer(capsule, NULL);
    Py_DECREF(capsule);
    return *uv_loop ? 0 : -1;
}

/* The module's file, as the dynamic linker has it open; NULL with an exception set. */
static void *
open_module(void)
{
    PyObject *name = uvloop_attribute("__file__");
    PyObject *path;
    if (!name) {
        return NULL;
    }
    int converted = PyUnicode_FSConverter(name, &path);
    Py_DECREF(name);
    if (!converted) {
        return NULL;
    }
    void *module = dlopen(PyBytes_AS_STRING(path), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!module) {
        const char *reason = dlerror();
        PyErr_Format(PyExc_RuntimeError, "uvloop's module %s cannot be opened again: %s",
                     PyBytes_AS_STRING(path), reason ? reason : "it is not loaded from there");
    }
    Py_DECREF(path);
    return module;
}

/* NULL where there is none. dlsym() answers with an object pointer; POSIX guarantees that it
 * converts to a function's. */
static bool
look_up(void *module, const char *name, void *function)
{
    void *address = dlsym(module, name);
    memcpy(function, &address, sizeof address);
    return address;
}

/* Whether what was found is the libuv that uvloop runs on, and one with the ABI that is relied on
 * here. */
static int
check_version(unsigned int found)
{
    PyObject *get_version = uvloop_attribute("libuv_get_version");
    if (!get_version) {
        return -1;
    }
    PyObject *version = PyObject_CallNoArgs(get_version);
    Py_DECREF(get_version);
    if (!version) {
        return -1;
    }
    unsigned long used = PyLong_AsUnsignedLong(version);
    Py_DECREF(version);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (found != used) {
        PyErr_Format(PyExc_RuntimeError, "uvloop runs on libuv %lx, its module exports %x", used,
                     found);
        return -1;
    }
    if (found < LW_UV_OLDEST || found >= LW_UV_TOO_NEW) {
        PyErr_Format(PyExc_RuntimeError, "libuv %x is not of the versions 1.39 to 1.x", found);
        return -1;
    }
    return 0;
}

int
lw_uv_library_open(lw_uv_library *library, PyObject *loop, void **uv_loop)
{
    if (find_loop(loop, uv_loop) < 0) {
        return -1;
    }
    void *module = open_module();
    if (!module) {
        return -1;
    }
    unsigned int (*version)(void);
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"uv_version", &version},
        {"uv_loop_configure", &library->loop_configure},
        {"uv_metrics_idle_time", &library->metrics_idle_time},
        {"uv_backend_timeout", &library->backend_timeout},
        {"uv_handle_size", &library->handle_size},
        {"uv_prepare_init", &library->prepare_init},
        {"uv_prepare_start", &library->prepare_start},
        {"uv_prepare_stop", &library->prepare_stop},
        {"uv_timer_init", &library->timer_init},
        {"uv_timer_start", &library->timer_start},
        {"uv_timer_stop", &library->timer_stop},
        {"uv_unref", &library->unref},
        {"uv_close", &library->close},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!look_up(module, wanted[i].name, wanted[i].function)) {
            PyErr_Format(PyExc_RuntimeError, "uvloop's module does not export %s of libuv",
                         wanted[i].name);
            return -1;
        }
    }
    look_up(module, "uv_metrics_info", &library->metrics_info);
    return check_version(version());
}
