/* Our handles in a uvloop loop's libuv. How it works and who may call what when:
 * uv_handle.c. */
#ifndef LW_UV_HANDLE_H
#define LW_UV_HANDLE_H

#include <Python.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "slot.h"
#include "uv_library.h"

typedef enum lw_uv_state {
    LW_UV_OPEN = 0,
    LW_UV_STOPPED,
    LW_UV_CLOSED,
} lw_uv_state;

#define LW_UV_TIMER_SIZE 256 /* a uv_timer_t has 152 */

/* Our handles and what their callbacks need. Referenced by the UvPulse and, for each handle until
 * it is closed, by libuv. */
typedef struct lw_uv {
    lw_uv_library library;
    void *uv_loop;
    PyObject *loop; /* borrowed; uvloop keeps it alive through a run, and so whenever libuv calls */
    lw_slot *slot;  /* referenced */
    _Atomic uint32_t references;
    _Atomic uint32_t state;   /* lw_uv_state */
    _Atomic uint64_t base_ns; /* the loop thread writes: the last stamp less the idle clock then */
    /* the loop thread's own */
    lw_ns idle_ns;       /* the idle clock when it was last read */
    lw_ns idle_read_ns;  /* when that was */
    bool may_wait;       /* libuv did not say that the poll after the last stamp will not wait */
    lw_ns tick_ns;       /* lw_tick_ns() at the last stamp */
    uint32_t unstamped;  /* turns since the last stamp */
    bool wanted;         /* the turn that goes on ends with a stamp */
    lw_ns each_ns;       /* how long a turn was, on average, between the last two stamps */
    uint32_t hurried;    /* turns in a row that went fast and did not wait */
    bool may_rest;       /* fixed: there is a timer to rest for, and libuv counts its polls */
    bool rests;          /* the timer runs in place of the prepare handle... */
    uint64_t rests_from; /* ...since libuv had begun so many polls */
    /* uv_timer_t and uv_prepare_t; their `data` stays NULL, because uvloop would take it for one of
     * its objects */
    alignas(max_align_t) unsigned char timer[LW_UV_TIMER_SIZE];
    alignas(max_align_t) unsigned char prepare[];
} lw_uv;

/* With the GIL, before the first lw_uv_open(). -1 with an exception set. */
int lw_uv_guard_forks(void);

/* With the GIL, where libuv may be called: open handles, with the caller's reference. They stamp,
 * and slot->pulse_data names them to lw_uv_refine(). NULL with an exception set. */
lw_uv *lw_uv_open(PyObject *loop, lw_slot *slot);

/* Any thread, idempotent: no stamp after the one that is being made, and the watchdog out of this
 * loop's libuv. */
void lw_uv_stop(lw_uv *uv);

/* Where libuv may be called, after lw_uv_stop(), idempotent. */
void lw_uv_close(lw_uv *uv);

/* Any thread, after lw_uv_stop(). */
void lw_uv_decref(lw_uv *uv);

/* slot->refine of this pulse: on the watchdog thread, without the GIL. Turns a WAIT beat into BUSY
 * where the loop's thread is back from its wait. Takes libuv's metrics mutex for a moment, never
 * waits for a lock of ours, allocates nothing. */
void lw_uv_refine(lw_slot *slot, lw_beat *beat, lw_ns now_ns);

/* The same for who may wait for a lock: any thread but the watchdog's. Nothing on a slot of another
 * pulse. */
void lw_uv_look(lw_slot *slot, lw_beat *beat, lw_ns now_ns);

/* On the loop's thread, with the GIL; nothing on a slot of another pulse. The turn that goes on
 * ends with a stamp, however the loop hurries. */
void lw_uv_see_turn(lw_slot *slot);

/* On the loop's thread, with the GIL: since when the turn that goes on is busy, at the latest when
 * now_ns is; up to some milliseconds early where the turns before it were not stamped. 0 on a slot
 * of another pulse. */
lw_ns lw_uv_turn_began_ns(lw_slot *slot, lw_ns now_ns);

/* On the loop's thread, with the GIL: how many polls the loop has begun, so that each turn has
 * another number. 0 on a slot of another pulse, and where libuv does not count. */
uint64_t lw_uv_turn_number(lw_slot *slot);

/* Right before lw_pulse_run_end(), on the loop's thread, with the GIL; nothing on a slot of another
 * pulse. libuv calls no handle after a run's last wait, so the beat still says WAIT: this makes it
 * BUSY since that wait ended. */
void lw_uv_run_end(lw_slot *slot);

#endif
