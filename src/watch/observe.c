/* Evidence of one look: observe.h. The judging is verdict.c's. */
#include "observe.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "evidence/gc_clock.h"

/* Two looks this far apart find the frame or the instruction of Python code moved in 55 to 100 % of
 * cases, of C code in 0 to 8 % (measured for 3.11 to 3.15). */
#define LW_GLANCE_GAP_NS (100 * LW_NS_PER_US)

/* A loop that does little but call something quick in C stands at that call in up to 98 % of looks
 * (time.perf_counter() on CPython 3.13), as a long call does. What tells them apart is how often it
 * leaves: so often in one row of looks, and its calls take less than 4 us. */
#define LW_LEAVES_MIN 2

/* A thread that ran for longer between two looks may have gone on to anything. */
#define LW_GLANCE_RUN_MAX_NS (3 * LW_GLANCE_GAP_NS)

/* A watchdog that is less late is on time: timers have some slack. */
#define LW_LATE_MIN_NS LW_NS_PER_MS

/* A stop shorter than this is not told from a busy kernel. */
#define LW_STOP_MIN_NS (5 * LW_NS_PER_MS)

/* To ask how long it computed and waited costs as much as all else of a round that finds nothing: so
 * the watchdog asks once it may have been for so long. A fraction of a stop. */
#define LW_UNCOUNTED_MAX_NS LW_NS_PER_MS

void
lw_observe_open(lw_eye *eye)
{
    lw_cgroup_files_open(&eye->cgroup);
    lw_thread_files_open(&eye->self, (pid_t)gettid());
    lw_evidence self = {0};
    nanosleep(&(struct timespec){0, 1000},
              NULL); /* a thread that never slept has no accounts yet */
    lw_thread_files_read(&eye->self, &self);
    eye->self_known = self.known;
    lw_observe_waited(eye);
}

void
lw_observe_close(lw_eye *eye)
{
    lw_cgroup_files_close(&eye->cgroup);
    lw_thread_files_close(&eye->self);
}

/* How long the watchdog waited for a CPU since this was asked last, the throttling of its cgroup
 * included. False where the system does not tell. */
static bool
waited(lw_eye *eye, lw_ns *waited_ns)
{
    lw_ns run_queue_ns;
    bool told = lw_thread_files_run_queue(&eye->self, &run_queue_ns);
    *waited_ns = run_queue_ns - eye->self_run_queue_ns;
    eye->self_run_queue_ns = run_queue_ns;
    eye->uncounted_ns = 0;
    return told;
}

static lw_ns
computed(lw_eye *eye)
{
    lw_ns cpu_ns = lw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    lw_ns computed_ns = cpu_ns - eye->self_cpu_ns;
    eye->self_cpu_ns = cpu_ns;
    return computed_ns;
}

/* Since present_ns the watchdog wanted to run. What it did not compute and did not wait for a CPU,
 * nobody ran it: the process was stopped or frozen. Behind others in a run queue: starved, which
 * the loop's own run queue says of the loop. */
static void
note_absence(lw_eye *eye, lw_ns now_ns)
{
    lw_ns known_ns;
    lw_ns absent_ns = now_ns > eye->present_ns ? now_ns - eye->present_ns : 0;
    eye->uncounted_ns += absent_ns;
    if (absent_ns >= LW_STOP_MIN_NS && waited(eye, &known_ns)) {
        known_ns += computed(eye);
        if (known_ns < absent_ns / 2) {
            eye->stopped_ns += absent_ns - known_ns;
        }
    }
    eye->present_ns = now_ns;
}

/* What nobody counted would hide a later stop. */
void
lw_observe_sleep(lw_eye *eye)
{
    lw_ns waited_ns;
    note_absence(eye, lw_now_ns());
    if (eye->uncounted_ns >= LW_UNCOUNTED_MAX_NS) {
        waited(eye, &waited_ns);
        (void)computed(eye);
    }
}

void
lw_observe_wake(lw_eye *eye, lw_ns deadline_ns, lw_ns now_ns)
{
    eye->stopped_before_ns = eye->stopped_ns;
    if (now_ns <= deadline_ns) { /* somebody woke it, nobody knows when */
        eye->uncounted_ns = LW_UNCOUNTED_MAX_NS;
        eye->present_ns = now_ns;
        return;
    }
    if (now_ns >= deadline_ns + LW_LATE_MIN_NS) {
        eye->late_ns += now_ns - deadline_ns;
    }
    if (eye->present_ns < deadline_ns) { /* else it was over before the sleep began */
        eye->present_ns = deadline_ns;
    }
    note_absence(eye, now_ns);
}

void
lw_observe_waited(lw_eye *eye)
{
    lw_ns waited_ns;
    waited(eye, &waited_ns);
    (void)computed(eye);
    eye->present_ns = lw_now_ns();
}

void
lw_observe_own_clocks(lw_eye *eye, const lw_thread_ref *thread, lw_evidence *out)
{
    lw_clocks *clocks = &out->clocks;
    clocks->at_ns = lw_now_ns();
    note_absence(eye, clocks->at_ns);
    if (thread->has_cpu_clock && (clocks->cpu_ns = lw_clock_ns(thread->cpu_clock)) != 0) {
        out->known |= LW_KNOWS_CPU;
    }
    if (lw_gc_clock_runs()) {
        clocks->gc_ns = lw_gc_clock_ns(thread->ident, clocks->at_ns);
        out->known |= LW_KNOWS_GC;
    }
    clocks->stopped_ns = eye->stopped_ns;
}

void
lw_observe_clocks(lw_eye *eye, lw_slot *slot, const lw_thread_ref *thread, lw_evidence *out)
{
    lw_look *look = slot->look;
    lw_thread_files_open(&look->files, thread->tid);
    lw_thread_files_read(&look->files, out);
    lw_observe_own_clocks(eye, thread, out);
    if (lw_cgroup_files_read(&eye->cgroup, &out->clocks.throttled_ns)) {
        out->known |= LW_KNOWS_THROTTLED;
    }
}

void
lw_observe_unseen_begin(const lw_eye *eye, lw_look *look, uint64_t turn, lw_ns begin_ns)
{
    if (look->first_turn != turn) {
        look->first =
            (lw_evidence){.clocks = {.at_ns = begin_ns, .stopped_ns = eye->stopped_before_ns}};
        look->first_turn = turn;
    }
}

/* --- where it stands --- */

static void
look_at_gil(lw_eye *eye, const lw_thread_ref *thread, lw_evidence *out)
{
    lw_gil gil;
    lw_gil_look(&eye->reader, thread->interpreter, &gil);
    if (!gil.known) {
        return;
    }
    out->known |= LW_KNOWS_GIL;
    out->gil_others = gil.enabled && gil.locked && gil.holder && gil.holder != thread->tstate;
    bool its_futex = out->stand == LW_STAND_FUTEX && out->arguments[0] >= gil.begin &&
                     out->arguments[0] < gil.end;
    if (its_futex) {
        out->stand = LW_STAND_GIL;
    }
}

/* Whether it is elsewhere than at *glance, which is set to where it is now. */
static bool
is_elsewhere(lw_eye *eye, const lw_thread_ref *thread, uint64_t *glance)
{
    uint64_t before = *glance;
    *glance = lw_snapshot_glance(eye->snapper, thread);
    return *glance != before;
}

static bool
leaves_all_the_time(lw_eye *eye)
{
    return lw_snapshot_leaves(eye->snapper) >= LW_LEAVES_MIN;
}

/* Looks LW_GLANCE_PAIRS times whether it moves; says so only where it ran meanwhile. */
static void
look_at_motion(lw_eye *eye, const lw_thread_ref *thread, lw_evidence *out)
{
    lw_ns cpu_ns = thread->has_cpu_clock ? lw_clock_ns(thread->cpu_clock) : 0;
    uint64_t glance = lw_snapshot_glance(eye->snapper, thread);
    for (int i = 0; i < LW_GLANCE_PAIRS; i++) {
        nanosleep(&(struct timespec){0, (long)LW_GLANCE_GAP_NS}, NULL);
        out->moved = (uint8_t)(out->moved + is_elsewhere(eye, thread, &glance));
    }
    bool ran = !thread->has_cpu_clock || lw_clock_ns(thread->cpu_clock) > cpu_ns;
    if (glance && ran) {
        out->known |= LW_KNOWS_MOVED;
        if (out->moved < LW_GLANCE_PAIRS && leaves_all_the_time(eye)) {
            out->moved = LW_GLANCE_PAIRS;
        }
    }
}

/* In a collection, the interpreter's frame on top is the one whose allocation began it; a
 * finalizer's lies above. */
static void
look_at_gc(const lw_thread_ref *thread, const lw_snapshot *snapshot, lw_evidence *out)
{
    lw_gc_span span;
    out->in_gc = lw_gc_clock_runs() && lw_gc_clock_current(thread->ident, &span);
    out->in_finalizer =
        out->in_gc && span.frame && snapshot->top_frame && snapshot->top_frame != span.frame;
}

static bool
may_run(const lw_evidence *evidence)
{
    return evidence->stand == LW_STAND_RUNNING || evidence->stand == LW_STAND_UNKNOWN;
}

void
lw_observe(lw_eye *eye, lw_slot *slot, const lw_thread_ref *thread, const lw_snapshot *snapshot,
           lw_evidence *out)
{
    *out = (lw_evidence){.syscall = -1,
                         .turn_callbacks = snapshot->turn_callbacks,
                         .turn_callback = snapshot->turn_callback};
    lw_observe_clocks(eye, slot, thread, out);
    look_at_gil(eye, thread, out);
    look_at_gc(thread, snapshot, out);
    if (snapshot->readable && may_run(out) && !out->gil_others) {
        look_at_motion(eye, thread, out);
    }
}

void
lw_observe_moment_begin(lw_eye *eye, const lw_slot *slot, const lw_thread_ref *thread,
                        lw_moment *moment)
{
    *moment = (lw_moment){.before = {.syscall = -1, .turn_callbacks = -1, .turn_callback = -1}};
    lw_observe_own_clocks(eye, thread, &moment->before);
    if (slot->capture == LW_CAPTURE_RAW && eye->snapper) {
        moment->glance = lw_snapshot_glance(eye->snapper, thread);
    }
}

/* A thread that may run and did not run meanwhile may be kept from its CPU by nobody but us: it gets
 * a moment to go on in. */
void
lw_observe_moment_end(lw_eye *eye, lw_slot *slot, const lw_thread_ref *thread,
                      const lw_snapshot *snapshot, lw_moment *moment, lw_evidence *after)
{
    lw_evidence *before = &moment->before;
    lw_thread_files *files = &slot->look->files;
    *after = (lw_evidence){0};
    lw_thread_files_open(files, thread->tid);
    lw_observe_own_clocks(eye, thread, after);
    if (after->clocks.cpu_ns > before->clocks.cpu_ns) { /* no file needs to say that it runs */
        before->stand = LW_STAND_RUNNING;
        before->known |= LW_KNOWS_STAND;
    }
    else {
        lw_thread_files_read_stand(files, before);
    }
    look_at_gil(eye, thread, before);
    look_at_gc(thread, snapshot, before);
    before->turn_callbacks = snapshot->turn_callbacks;
    before->turn_callback = snapshot->turn_callback;
    lw_clocks now = after->clocks;
    *after = *before;
    after->clocks = now;
    if (!may_run(before)) {
        return;
    }
    if (now.cpu_ns == before->clocks.cpu_ns) {
        nanosleep(&(struct timespec){0, (long)LW_GLANCE_GAP_NS}, NULL);
        lw_observe_own_clocks(eye, thread, after);
    }
    lw_ns ran_ns = after->clocks.cpu_ns - before->clocks.cpu_ns;
    bool ran = !thread->has_cpu_clock || (ran_ns && ran_ns <= LW_GLANCE_RUN_MAX_NS);
    if (moment->glance && snapshot->readable && ran && !before->gil_others) {
        uint64_t glance = moment->glance;
        bool moved = is_elsewhere(eye, thread, &glance) || (glance && leaves_all_the_time(eye));
        /* One pair is no proof. */
        before->moved = moved ? LW_GLANCE_PAIRS - 1 : 0;
        before->known |= glance ? LW_KNOWS_MOVED : 0;
        after->moved = before->moved;
        after->known |= before->known;
    }
}

bool
lw_observe_no_run(lw_slot *slot, const lw_snapshot *snapshot)
{
    return !atomic_load_explicit(&slot->run_seen, memory_order_relaxed) && snapshot->loop_known &&
           snapshot->loop != slot->loop;
}

bool
lw_observe_holder(lw_eye *eye, const lw_thread_ref *thread, const lw_evidence *evidence,
                  lw_thread_ref *holder)
{
    bool wanted = evidence->stand == LW_STAND_GIL || evidence->stand == LW_STAND_RUNNING ||
                  evidence->stand == LW_STAND_UNKNOWN;
    lw_gil gil;
    if (!eye->snapper || !wanted || !evidence->gil_others) {
        return false;
    }
    lw_gil_look(&eye->reader, thread->interpreter, &gil);
    return gil.known && gil.locked && gil.holder && gil.holder != thread->tstate &&
           lw_gil_holder_ref(&eye->reader, gil.holder, thread->interpreter, holder);
}
