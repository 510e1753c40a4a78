/* libuv, as it lies inside uvloop's extension module.
 *
 * uvloop is linked with a libuv of its own (or with the system's) and exports those of its
 * functions that it uses, but no header. So they are looked up by name in the module's own file;
 * the three numbers and the struct below are all of libuv's ABI that is relied on besides them.
 */
#ifndef LW_UV_LIBRARY_H
#define LW_UV_LIBRARY_H

#include <Python.h>
#include <stdint.h>

/* uv_handle_type of a prepare handle: libuv 1.0. */
#define LW_UV_PREPARE 9
/* uv_handle_type of a timer: libuv 1.0. */
#define LW_UV_TIMER 13
/* uv_loop_option: libuv 1.39, which has uv_metrics_idle_time(). */
#define LW_UV_METRICS_IDLE_TIME 1

typedef void (*lw_uv_callback)(void *handle);

/* uv_metrics_t: libuv 1.45. */
typedef struct lw_uv_metrics {
    uint64_t loop_count; /* polls that the loop has begun */
    uint64_t rest[15];
} lw_uv_metrics;

/* Loops and handles are libuv's and opaque here. Unless it says otherwise a function is called on
 * the loop's own thread or while the loop does not run, and none of them after the loop was closed.
 * No Python object is touched by any. */
typedef struct lw_uv_library {
    int (*loop_configure)(void *loop, int option, ...);
    /* Any thread. Nanoseconds spent waiting in the kernel so far, now included; takes the loop's
     * metrics mutex. */
    uint64_t (*metrics_idle_time)(void *loop);
    /* Milliseconds; -1: without end; 0: not at all, or not known because watchers are yet to be
     * registered. */
    int (*backend_timeout)(const void *loop);
    size_t (*handle_size)(int type); /* any thread */
    int (*prepare_init)(void *loop, void *handle);
    int (*prepare_start)(void *handle, lw_uv_callback callback);
    int (*prepare_stop)(void *handle);
    int (*timer_init)(void *loop, void *handle);
    int (*timer_start)(void *handle, lw_uv_callback callback, uint64_t timeout_ms,
                       uint64_t repeat_ms);
    int (*timer_stop)(void *handle);
    int (*metrics_info)(void *loop, lw_uv_metrics *metrics); /* or NULL: an older libuv */
    void (*unref)(void *handle);
    void (*close)(void *handle, lw_uv_callback callback);
} lw_uv_library;

/* With the GIL. The libuv of `loop` and its uv_loop_t (borrowed: uvloop frees it once the loop is
 * closed); -1 with TypeError where it is not uvloop's loop, RuntimeError where its libuv cannot be
 * reached. */
int lw_uv_library_open(lw_uv_library *library, PyObject *loop, void **uv_loop);

#endif
