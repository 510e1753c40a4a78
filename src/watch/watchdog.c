/* The watchdog thread's life and its loop: watchdog.h. What it does at a loop is look.c's. */
#include "watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "look.h"
#include "observe.h"
#include "park.h"
#include "profile/profile.h"
#include "report/outbox.h"
#include "status/status.h"
#include "visit.h"

#define RELAXED memory_order_relaxed
#define STACK_BYTES                                                                                \
    ((size_t)512 << 10) /* the deepest path needs about 40 KiB; sanitizers need more */
#define START_WITHIN_NS (2 * LW_NS_PER_S)
#define GONE_WITHIN_NS (100 * LW_NS_PER_MS)
#define SNAP_COUNTS (sizeof(lw_snap_counts) / sizeof(uint64_t))

/* What is asked of a thread. Who starts one may call off a stop until it is LW_ENDS. */
typedef enum lw_stop { LW_GOES_ON, LW_IS_TO_STOP, LW_ENDS } lw_stop;

/* One run of the thread, from start to stop. On the heap, because a thread that does not end in
 * time keeps it. */
typedef struct lw_watch {
    pthread_t thread;
    pid_t tid;                /* its own; others read it after `done` */
    _Atomic uint32_t stop;    /* lw_stop */
    _Atomic uint32_t looking; /* 1: the start is over */
    _Atomic uint32_t done;
    lw_eye eye;
} lw_watch;

static struct {
    pthread_mutex_t lifecycle; /* start and stop; never taken by the watchdog or in a hook */
    lw_watch *_Atomic watch;   /* NULL: no thread */
    lw_watch *orphan;          /* the parent's, in a forked child */
    lw_watch *late;            /* did not end in time: no other one starts before it has */
    lw_park park;              /* the thread sleeps here */
    lw_park answers;           /* who starts or stops it sleeps here */
    _Atomic uint32_t parked;
    _Atomic uint64_t next_ns; /* when a parked thread wakes by itself */
    _Atomic uint64_t wakeups, cpu_ns, worst_lateness_ns;
    _Atomic uint64_t snaps[SNAP_COUNTS];
} dog = {.lifecycle = PTHREAD_MUTEX_INITIALIZER};

/* --- any thread --- */

bool
lw_watchdog_runs(void)
{
    return atomic_load_explicit(&dog.watch, memory_order_acquire) != NULL;
}

void
lw_watchdog_wake(void)
{
    lw_park_wake(&dog.park);
}

/* Both sides write and then read what the other wrote: the loop its cell and then `parked` and
 * `next_ns`, the thread these two and then the cells. The accesses in between are sequentially
 * consistent, so one of the two sees the other. While the thread looks, next_ns is LW_NS_NEVER: it
 * may have seen the cell as it was before. */
void
lw_watchdog_unpark(lw_ns by_ns)
{
    bool parked = atomic_fetch_add_explicit(&dog.parked, 0, memory_order_seq_cst) != 0;
    if (parked && atomic_load_explicit(&dog.next_ns, memory_order_seq_cst) > by_ns &&
        atomic_exchange_explicit(&dog.parked, 0, memory_order_seq_cst)) {
        lw_watchdog_wake();
    }
}

void
lw_watchdog_forget(void)
{
    lw_watch *watch = atomic_exchange_explicit(&dog.watch, NULL, RELAXED);
    dog.orphan = watch ? watch : dog.late;
    dog.late = NULL;
    atomic_store_explicit(&dog.parked, 0, RELAXED);
    lw_visit_forget();
    pthread_mutex_init(&dog.lifecycle, NULL);
}

/* --- the thread --- */

static void
publish_counts(const lw_eye *eye)
{
    atomic_store_explicit(&dog.cpu_ns, eye->self_cpu_ns, RELAXED);
    if (eye->snapper) {
        uint64_t words[SNAP_COUNTS];
        memcpy(words, lw_snap_counts_get(eye->snapper), sizeof words);
        for (size_t i = 0; i < SNAP_COUNTS; i++) {
            atomic_store_explicit(&dog.snaps[i], words[i], RELAXED);
        }
    }
}

static lw_ns
visit_all(lw_eye *eye)
{
    lw_ns next_ns = LW_NS_NEVER;
    for (lw_slot *slot = lw_slot_first(); slot; slot = atomic_load_explicit(&slot->next, RELAXED)) {
        if (lw_visit_enter(slot)) {
            lw_ns slot_ns = lw_look_visit(eye, slot, lw_now_ns());
            next_ns = slot_ns < next_ns ? slot_ns : next_ns;
        }
        lw_visit_over();
    }
    return next_ns;
}

static void
note_lateness(lw_eye *eye, lw_ns deadline_ns)
{
    lw_ns now_ns = lw_now_ns();
    lw_observe_wake(eye, deadline_ns, now_ns);
    if (now_ns > deadline_ns &&
        now_ns - deadline_ns > atomic_load_explicit(&dog.worst_lateness_ns, RELAXED)) {
        atomic_store_explicit(&dog.worst_lateness_ns, now_ns - deadline_ns, RELAXED);
    }
}

static _Thread_local const lw_fdtable *the_fds;

const lw_fdtable *
lw_watchdog_fds(void)
{
    return the_fds;
}

static bool
is_to_stop(lw_watch *watch)
{
    return atomic_load_explicit(&watch->stop, memory_order_acquire) != LW_GOES_ON;
}

static bool
stop_moves(lw_watch *watch, lw_stop from, lw_stop to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong_explicit(&watch->stop, &expected, to,
                                                   memory_order_acq_rel, memory_order_acquire);
}

/* Looks and sleeps until it is to stop. */
static void
keep_watch(lw_watch *watch)
{
    lw_eye *eye = &watch->eye;
    while (!is_to_stop(watch)) {
        uint32_t seen = lw_park_seen(&dog.park);
        atomic_store_explicit(&dog.next_ns, LW_NS_NEVER, memory_order_seq_cst);
        atomic_exchange_explicit(&dog.parked, 1, memory_order_seq_cst);
        lw_ns next_ns = lw_status_visit(eye, visit_all(eye));
        lw_ask_serve(eye);
        if (!eye->captures && eye->snapper && lw_codes_want_flush(eye->snapper)) {
            lw_profile_flush_all(eye);
            lw_codes_flush(eye->snapper);
        }
        lw_observe_sleep(eye);
        publish_counts(eye);
        if (is_to_stop(watch)) {
            break;
        }
        atomic_store_explicit(&dog.next_ns, next_ns, memory_order_seq_cst);
        lw_park_wait(&dog.park, seen, next_ns);
        note_lateness(eye, next_ns); /* also where somebody woke it: both may come after a stop */
        atomic_fetch_add_explicit(&dog.wakeups, 1, RELAXED);
    }
}

static void *
run(void *argument)
{
    lw_watch *watch = argument;
    lw_eye *eye = &watch->eye;
    lw_eye_open(eye);
    watch->tid = eye->self.tid;
    the_fds = &eye->fds;
    atomic_store_explicit(&watch->looking, 1, memory_order_release);
    lw_park_wake(&dog.answers);
    do {
        keep_watch(watch);
        lw_status_end(eye); /* may wait for a disk: before there is no way back */
    } while (!stop_moves(watch, LW_IS_TO_STOP, LW_ENDS));
    lw_eye_close(eye);
    atomic_store_explicit(&watch->done, 1, memory_order_release);
    lw_park_wake(&dog.answers);
    return NULL;
}

/* --- its life --- */

static void
free_watch(lw_watch *watch)
{
    if (watch) {
        lw_eye_free(&watch->eye);
        free(watch);
    }
}

static lw_watch *
new_watch(bool snapper_wanted)
{
    lw_watch *watch = calloc(1, sizeof *watch);
    if (!watch || !lw_outbox_setup() || !lw_ask_setup()) {
        free(watch);
        return NULL;
    }
    if (!lw_eye_setup(&watch->eye, snapper_wanted)) {
        free_watch(watch);
        return NULL;
    }
    return watch;
}

/* Waits until a flag of the watch is set. */
static bool
await(_Atomic uint32_t *flag, lw_ns deadline_ns)
{
    for (;;) {
        uint32_t seen = lw_park_seen(&dog.answers);
        if (atomic_load_explicit(flag, memory_order_acquire)) {
            return true;
        }
        if (lw_now_ns() >= deadline_ns) {
            return false;
        }
        lw_park_wait(&dog.answers, seen, deadline_ns);
    }
}

/* With every signal blocked, so that the program's handlers never run on our thread. */
static int
create_thread(lw_watch *watch)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error) {
        return error;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (!error) {
        error = pthread_create(&watch->thread, &attributes, run, watch);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
#ifdef __linux__
    if (!error) {
        pthread_setname_np(watch->thread, "loopwatch");
    }
#endif
    return error;
}

static void
forget_parent(void)
{
    if (dog.orphan) {
        free_watch(dog.orphan);
        dog.orphan = NULL;
    }
}

/* It is done. */
static void
join(lw_watch *watch)
{
    pthread_join(watch->thread, NULL);
    lw_thread_await_gone(watch->tid, lw_now_ns() + GONE_WITHIN_NS);
    free_watch(watch);
}

/* The thread that did not end in time goes on where it still can, and is awaited where it ends just
 * now; false where it does not do that either. */
static bool
settle_late(void)
{
    lw_watch *late = dog.late;
    if (stop_moves(late, LW_IS_TO_STOP, LW_GOES_ON)) {
        atomic_store_explicit(&dog.watch, late, memory_order_release);
        lw_watchdog_wake();
    }
    else if (await(&late->done, lw_now_ns() + START_WITHIN_NS)) {
        join(late);
    }
    else {
        return false;
    }
    dog.late = NULL;
    return true;
}

static lw_result
start_locked(bool snapper_wanted)
{
    if (lw_watchdog_runs()) {
        return LW_OK;
    }
    forget_parent();
    if (dog.late && !settle_late()) {
        errno = EBUSY;
        return LW_ERR_THREAD;
    }
    if (lw_watchdog_runs()) { /* again */
        return LW_OK;
    }
    lw_watch *watch = new_watch(snapper_wanted);
    if (!watch) {
        return LW_ERR_MEMORY;
    }
    int error = create_thread(watch);
    if (error) {
        free_watch(watch);
        errno = error;
        return LW_ERR_THREAD;
    }
    atomic_store_explicit(&dog.watch, watch, memory_order_release);
    await(&watch->looking,
          lw_now_ns() + START_WITHIN_NS); /* slower: it will look when it gets there */
    return LW_OK;
}

lw_result
lw_watchdog_start(bool snapper_wanted)
{
    pthread_mutex_lock(&dog.lifecycle);
    lw_result result = start_locked(snapper_wanted);
    pthread_mutex_unlock(&dog.lifecycle);
    return result;
}

bool
lw_watchdog_stop(lw_ns timeout_ns)
{
    pthread_mutex_lock(&dog.lifecycle);
    lw_watch *watch = atomic_exchange_explicit(&dog.watch, NULL, memory_order_acq_rel);
    bool ended = true;
    if (watch) {
        atomic_store_explicit(&watch->stop, LW_IS_TO_STOP, memory_order_release);
        lw_watchdog_wake();
        ended = await(&watch->done, lw_now_ns() + timeout_ns);
        if (ended) {
            join(watch);
        }
        else {
            dog.late = watch;
        }
    }
    pthread_mutex_unlock(&dog.lifecycle);
    return ended;
}

/* --- what others want to know --- */

void
lw_watchdog_stats_get(lw_watchdog_stats *stats)
{
    stats->wakeups = atomic_load_explicit(&dog.wakeups, RELAXED);
    stats->cpu_ns = atomic_load_explicit(&dog.cpu_ns, RELAXED);
    stats->worst_lateness_ns = atomic_load_explicit(&dog.worst_lateness_ns, RELAXED);
    uint64_t words[SNAP_COUNTS];
    for (size_t i = 0; i < SNAP_COUNTS; i++) {
        words[i] = atomic_load_explicit(&dog.snaps[i], RELAXED);
    }
    memcpy(&stats->snaps, words, sizeof words);
}

void
lw_watchdog_facts_get(lw_watchdog_facts *facts)
{
    memset(facts, 0, sizeof *facts);
    pthread_mutex_lock(&dog.lifecycle);
    lw_watch *watch = atomic_load_explicit(&dog.watch, memory_order_acquire);
    if (watch && atomic_load_explicit(&watch->looking, memory_order_acquire)) {
        const lw_eye *eye = &watch->eye;
        facts->backend = eye->reader.backend;
        memcpy(facts->read_errors, eye->reader.errors, sizeof facts->read_errors);
        facts->own_table = eye->fds.own;
        facts->table_error = eye->fds.error;
        facts->table_failed_call = eye->fds.failed_call;
        facts->tracer_readable = eye->status_fd >= 0;
        facts->known = eye->self_known;
        facts->cgroup = eye->cgroup.n > 0;
    }
    pthread_mutex_unlock(&dog.lifecycle);
}
