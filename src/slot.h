/* A slot: everything loopwatch keeps of one watched loop, between its three threads.
 *
 * The beat cell in it is written by the loop thread alone and read by the watchdog; the ended turns
 * go the same way through a small ring. Slots are allocated at install (with the GIL), never freed,
 * and reused once nothing refers to them: the watchdog and a loop thread in the middle of a system
 * call may look at a slot at any time, so its memory must stay.
 *
 *   FREE -> NEW        lw_slot_new()
 *        -> ACTIVE     lw_slot_start()
 *        -> RETIRING   uninstall
 *        -> RETIRED    the watchdog is done with it
 *        -> FREE       the last reference is gone
 */
#ifndef LW_SLOT_H
#define LW_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "frames/snapshot.h"
#include "histogram.h"

/* --- the beat cell --- */

typedef enum lw_phase {
    LW_PHASE_OFF = 0, /* the loop is not running: never a stall */
    LW_PHASE_WAIT,    /* in the selector; overdue once due_ns has passed */
    LW_PHASE_BUSY,    /* back from it, or the GIL is still to be had */
} lw_phase;

/* A consistent copy of the cell. */
typedef struct lw_beat {
    uint64_t turn; /* number of the turn; a wait belongs to the turn that it begins */
    lw_phase phase;
    lw_ns since_ns; /* when the phase began */
    lw_ns due_ns;   /* WAIT: when the loop asked to be woken; BUSY: when the wait before was due;
                       LW_NS_NEVER: nothing */
} lw_beat;

/* A sequence lock whose fields are atomics, so that a torn read is a retry and not undefined: the
 * one writer makes `sequence` odd, stores, makes it even. */
typedef struct lw_cell {
    _Atomic uint32_t sequence;
    _Atomic uint32_t phase;
    _Atomic uint64_t turn;
    _Atomic uint64_t since_ns;
    _Atomic uint64_t due_ns;
} lw_cell;

/* --- named steps (loopwatch.step) --- */

#define LW_STEPS_MAX 16 /* distinct names in one turn; more are counted under the name "other" */
#define LW_OPEN_STEPS_MAX 8 /* steps inside each other that are seen while they last */

typedef struct lw_step_time {
    uint32_t name; /* index in the process's table of step names, steps.h */
    lw_ns ns;
} lw_step_time;

/* Written by the loop thread; the watchdog may copy it while it changes: each field is an atomic of
 * its own, and what belongs to another turn than `turn` is skipped. */
typedef struct lw_steps {
    _Atomic uint64_t turn;
    _Atomic uint32_t n;
    _Atomic uint32_t names[LW_STEPS_MAX];
    _Atomic uint64_t ns[LW_STEPS_MAX];
    _Atomic uint32_t open;
    _Atomic uint32_t open_names[LW_OPEN_STEPS_MAX];
    _Atomic uint64_t open_since_ns[LW_OPEN_STEPS_MAX];
    lw_ns counted_until_ns[LW_STEPS_MAX]; /* the loop thread's own: where ns[i] stands, so that no
                                             time counts twice */
} lw_steps;

/* --- requests (loopwatch.asgi) --- */

#define LW_TURN_ROUTES_MAX 8 /* routes of one turn that are told apart; routes.h */

typedef struct lw_route_time {
    uint32_t route; /* its number in the watch's table; 0: not known yet */
    lw_ns ns;
} lw_route_time;

/* What the requests of a turn took of it, as it goes into a report. */
typedef struct lw_turn_routes {
    uint64_t request; /* whose step was the longest of the turn; 0: there was none */
    lw_route_time longest;
    uint32_t n;
    lw_route_time routes[LW_TURN_ROUTES_MAX];
} lw_turn_routes;

/* Written by the loop thread and copied by the watchdog, as lw_steps is. */
typedef struct lw_routes {
    _Atomic uint64_t turn;
    _Atomic uint64_t open_request; /* whose step runs; 0: nobody's */
    _Atomic uint32_t open_route;
    _Atomic uint64_t open_since_ns;
    _Atomic uint64_t longest_request; /* of the steps that ended in this turn */
    _Atomic uint32_t longest_route;
    _Atomic uint64_t longest_ns;
    _Atomic uint32_t n;
    _Atomic uint32_t routes[LW_TURN_ROUTES_MAX];
    _Atomic uint64_t ns[LW_TURN_ROUTES_MAX];
} lw_routes;

/* --- turns that ended --- */

#define LW_ENDED_MAX 32 /* stalls that may end before the watchdog looks; a power of two */

typedef struct lw_ended {
    uint64_t turn;
    lw_ns begin_ns, end_ns;
    bool exempt;  /* watch.exempt() was entered in it */
    bool overdue; /* it began with an overdue wait */
    uint32_t n_steps;
    lw_step_time steps[LW_STEPS_MAX];
    lw_turn_routes routes;
} lw_ended;

typedef struct lw_ended_ring {
    _Atomic uint32_t head;    /* written by the loop thread */
    _Atomic uint32_t tail;    /* written by the watchdog */
    _Atomic uint64_t dropped; /* stalls that found it full */
    lw_ended entries[LW_ENDED_MAX];
} lw_ended_ring;

/* --- slow turns: no stalls, but longer than a quarter of what makes one --- */

#define LW_SLOW_MAX 32 /* that may end before the watchdog looks; a power of two */

typedef struct lw_slow_turn {
    uint64_t turn;
    lw_ns begin_ns, end_ns;
} lw_slow_turn;

typedef struct lw_slow_ring {
    _Atomic uint32_t head;          /* written by the loop thread */
    _Atomic uint32_t tail;          /* written by the watchdog */
    _Atomic uint64_t lost, lost_ns; /* those that found it full, and their time */
    lw_slow_turn entries[LW_SLOW_MAX];
} lw_slow_ring;

/* --- the slot --- */

typedef enum lw_slot_state {
    LW_SLOT_FREE = 0, /* nobody's; lw_slot_new may take it */
    LW_SLOT_NEW,      /* an installer fills it in; the watchdog does not look */
    LW_SLOT_ACTIVE,   /* watched */
    LW_SLOT_RETIRING, /* uninstalled; the watchdog has to finish what it knows and let go */
    LW_SLOT_RETIRED,  /* the watchdog will not look again */
} lw_slot_state;

typedef enum lw_pulse_kind {
    LW_PULSE_TURN = 0, /* whole select in C: exact, with the GIL wait */
    LW_PULSE_WRAPPED,  /* a wrapper around another selector's select: the GIL wait counts as waiting
                        */
    LW_PULSE_UV,
    LW_PULSE_HEARTBEAT,
} lw_pulse_kind;

typedef enum lw_capture_kind {
    LW_CAPTURE_OFF = 0,
    LW_CAPTURE_RAW,
    LW_CAPTURE_GIL,
} lw_capture_kind;

/* --- the loop's thread --- */

#define LW_THREAD_NAME_MAX 63 /* bytes, cut at a character */

typedef struct lw_thread {
    lw_thread_ref ref;
    char name[LW_THREAD_NAME_MAX + 1];
} lw_thread;

#define LW_THREAD_WORDS ((sizeof(lw_thread) + 7) / 8)

/* An lw_thread behind a sequence lock, as the cell. */
typedef struct lw_bound {
    _Atomic uint32_t sequence; /* 0: the loop never ran */
    _Atomic uint64_t words[LW_THREAD_WORDS];
    uint64_t tstate_id; /* PyThreadState_GetID of it + 1; 0: to be bound (again); the loop thread's
                           own */
} lw_bound;

struct lw_slot;

/* Asks the pulse whether a loop that looks as if it waits really does; on the watchdog thread,
 * without the GIL. It may turn a WAIT beat into a BUSY one with the right since_ns (uv: libuv's
 * idle clock; wrapped: the epoll descriptor). */
typedef void (*lw_refine_function)(struct lw_slot *slot, lw_beat *beat, lw_ns now_ns);

typedef struct lw_slot {
    struct lw_slot *_Atomic next; /* all slots of the process, never unlinked */
    _Atomic uint32_t state;       /* lw_slot_state */
    _Atomic uint32_t references;  /* hooks and Watch; the slot is FREE again at 0 and RETIRED */
    uint64_t key;                 /* names one watch: never used twice in a process */
    void *owner;                  /* the Slot object, borrowed; with the GIL only */

    /* settings; relaxed, any thread writes */
    _Atomic uint64_t threshold_ns;
    _Atomic uint64_t hang_after_ns;     /* LW_NS_NEVER: only when it ends */
    _Atomic uint64_t profile_period_ns; /* mean time between two looks of the profile; 0: none */
    uint32_t capture;                   /* lw_capture_kind, fixed at start */
    uint32_t pulse;                     /* lw_pulse_kind, fixed at start */
    bool dump_names;                    /* names of tasks may stand in a dump; fixed at start */

    /* the loop thread writes */
    lw_cell cell;
    lw_steps steps;
    lw_routes routes;
    lw_ended_ring ended;
    lw_slow_ring slow;
    _Atomic uint64_t exempt_turn;
    lw_histogram histogram;
    _Atomic uint64_t turns;
    _Atomic uint64_t idle_ns;
    _Atomic uint64_t gil_wait_ns;
    _Atomic uint64_t overdue_ns;    /* heartbeat: by how much its beats were late, in sum */
    _Atomic uint64_t second_end_ns; /* what ends from then on goes through lw_history_pass() */
    _Atomic uint64_t worst_ns;      /* the longest turn that ended in the second that goes on */
    _Atomic uint64_t turn_gil_ns;   /* the wait for the GIL that the turn `gil_turn` began with */
    _Atomic uint64_t gil_turn;
    struct lw_history *history; /* the last hour, history/history.h; allocated with the slot */
    uintptr_t loop; /* address of the loop, for the running-loop check; set before start */
    lw_bound bound; /* the thread that the loop runs on, or ran on last */
    _Atomic uint32_t
        run_seen; /* this run's begin was seen, so its end will be: lw_pulse_run_begin */
    _Atomic uint64_t fork_generation; /* lw_fork_generation when it was started; see process.h */

    /* the pulse */
    _Atomic(lw_refine_function)
        refine; /* or NULL. Whoever clears it calls lw_visit_await_over() before freeing... */
    _Atomic(void *) pulse_data; /* ...what this points to */

    /* the watchdog writes, where its refine saw an event that the thread does not come back for */
    _Atomic uint64_t ready_turn; /* the turn whose wait that is */
    _Atomic uint64_t ready_ns;   /* since when, as far as anyone looked */

    /* the watchdog counts, any thread reads */
    _Atomic uint64_t stalls, exempt, debugged, dropped, samples, samples_exact, samples_moving,
        dumps, dumps_failed;

    /* the watchdog's own */
    struct lw_look *look; /* look.h: what the watchdog knows of the turn that goes on; allocated
                             with the slot */
    struct lw_profile *profile; /* profile/profile.h; likewise */

    /* dump_to: any thread asks, the watchdog adopts the descriptor and says so */
    _Atomic int dump_fd;           /* LW_DUMP_*, or a descriptor of the program */
    _Atomic uint32_t dump_asked;   /* counts the requests */
    _Atomic uint32_t dump_adopted; /* the last request that was carried out */
} lw_slot;

#define LW_DUMP_OFF (-1)
#define LW_DUMP_STDERR (-2) /* descriptor 2 as it is when the dump is written */

/* With the GIL. A slot with one reference, state FREE, everything in it as new; NULL without
 * memory. */
lw_slot *lw_slot_new(void);
void lw_slot_incref(lw_slot *slot);
void lw_slot_decref(lw_slot *slot);

/* ACTIVE: the watchdog looks at it from now on. */
void lw_slot_start(lw_slot *slot);

/* The same where the loop's thread calls and stamps a busy time right after: that wakes the watchdog
 * in time. */
void lw_slot_start_quietly(lw_slot *slot);

/* ACTIVE -> RETIRING and the watchdog woken; a slot that the watchdog of this process never knew
 * goes to RETIRED. */
void lw_slot_retire(lw_slot *slot);

/* The same for a slot whose loop does not run: the watchdog finds it when it wakes the next time.
 * Stalls that ended have woken it already. */
void lw_slot_retire_quietly(lw_slot *slot);

/* RETIRING -> RETIRED: the watchdog's last word, or an uninstaller's who waited long enough. */
void lw_slot_let_go(lw_slot *slot);

/* Any thread; the first of all slots ever made. */
lw_slot *lw_slot_first(void);

static inline lw_slot_state
lw_slot_state_of(lw_slot *slot)
{
    return (lw_slot_state)atomic_load_explicit(&slot->state, memory_order_acquire);
}

static inline bool
lw_slot_active(lw_slot *slot)
{
    return lw_slot_state_of(slot) == LW_SLOT_ACTIVE;
}

/* One writer: a load and a store are enough, and cheaper than a locked add. */
static inline void
lw_count(_Atomic uint64_t *counter, uint64_t amount)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + amount, memory_order_relaxed);
}

static inline lw_ns
lw_slot_threshold_ns(lw_slot *slot)
{
    return atomic_load_explicit(&slot->threshold_ns, memory_order_relaxed);
}

/* The wait for the GIL at the begin of this turn, 0 where it was not measured. */
static inline lw_ns
lw_slot_turn_gil_ns(lw_slot *slot, uint64_t turn)
{
    bool measured = atomic_load_explicit(&slot->gil_turn, memory_order_acquire) == turn;
    return measured ? atomic_load_explicit(&slot->turn_gil_ns, memory_order_relaxed) : 0;
}

/* --- reading, any thread, no GIL --- */

/* Both try a bounded number of times: false where the writer was interrupted in the middle (look
 * again soon), or where the loop never ran. */
bool lw_cell_read(lw_cell *cell, lw_beat *beat);
bool lw_slot_thread(lw_slot *slot, lw_thread *thread);

/* The loop thread's side of it. */
void lw_slot_set_thread(lw_slot *slot, const lw_thread *thread);

#endif
