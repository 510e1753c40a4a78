/* Who holds the GIL, read without it.
 *
 * Why: a loop's thread that is ready to run Python and cannot has another thread to blame, and only
 * the GIL says which.
 *
 * How: the layout (layout.h) says where the struct is. `locked` and `last_holder` stand side by
 * side and are copied in one read. The interpreter writes them one after the other: for a moment
 * after a thread took the GIL, the holder is still the one before. Whoever blames a thread looks
 * again after it has looked at that thread's frames.
 *
 * At setup the struct is held against what is known for sure there: the calling thread has the GIL.
 * On a free-threaded build whose GIL is off, that it is off, and that it lies where the main
 * interpreter's own one does.
 */
#include "gil.h"

#include <Python.h>
#include <string.h>

#include "clock.h"
#include "layout.h"

static bool works; /* written once, with the GIL, before any look */
static const char *reason = "the GIL was not looked for";

/* --- reading, without the GIL --- */

static void
read_struct(lw_reader *reader, uintptr_t address, lw_gil *out)
{
    const lw_layout *layout = &lw_the_layout;
    char copy[LW_GIL_COPY_MAX];
    uint32_t last =
        layout->gil_locked > layout->gil_holder ? layout->gil_locked : layout->gil_holder;
    if (!lw_read(reader, address, copy, last + sizeof(uintptr_t))) {
        return;
    }
    out->known = true;
    out->begin = address;
    out->end = address + layout->gil_length;
    out->enabled = !layout->gil_optional || lw_int_at(copy, layout->gil_enabled) != 0;
    out->locked = out->enabled && lw_int_at(copy, layout->gil_locked) == 1;
    out->holder = out->locked ? lw_word_at(copy, layout->gil_holder) : 0;
}

static void
look(lw_reader *reader, uintptr_t interpreter, lw_gil *out)
{
    const lw_layout *layout = &lw_the_layout;
    uintptr_t address = layout->gil_address;
    memset(out, 0, sizeof *out);
    if (!address) {
        address = lw_read_word(reader, interpreter + layout->interpreter_gil, 0);
    }
    if (address) {
        read_struct(reader, address, out);
    }
}

void
lw_gil_look(lw_reader *reader, uintptr_t interpreter, lw_gil *out)
{
    if (works) {
        look(reader, interpreter, out);
    }
    else {
        memset(out, 0, sizeof *out);
    }
}

/* The CPU clock of a thread of this process by its kernel id: the number that
 * pthread_getcpuclockid() makes, and the kernel's MAKE_THREAD_CPUCLOCK(tid, CPUCLOCK_SCHED), which
 * is part of its interface. The kernel refuses a thread that is not there, or is another process's.
 */
static bool
thread_clock(pid_t tid, clockid_t *clock)
{
#ifdef __linux__
    enum { CLOCK_SCHED = 2, CLOCK_OF_THREAD = 4, FLAG_BITS = 3 };
    *clock = (clockid_t)(~(unsigned int)tid << FLAG_BITS | CLOCK_OF_THREAD | CLOCK_SCHED);
    return lw_clock_ns(*clock) != 0;
#else
    (void)tid;
    (void)clock;
    return false;
#endif
}

bool
lw_gil_holder_ref(lw_reader *reader, uintptr_t tstate, uintptr_t interpreter, lw_thread_ref *out)
{
    char copy[LW_THREAD_COPY_MAX];
    lw_raw_thread raw;
    memset(out, 0, sizeof *out);
    if (!works || !tstate || !lw_read(reader, tstate, copy, lw_the_layout.thread_length)) {
        return false;
    }
    lw_layout_read_thread(copy, &raw);
    pid_t tid = (pid_t)raw.tid;
    if (raw.interpreter != interpreter || !raw.ident || tid <= 0 || (unsigned long)tid != raw.tid) {
        return false;
    }
    *out = (lw_thread_ref){
        .tstate = tstate, .interpreter = interpreter, .tid = tid, .ident = raw.ident};
    out->has_cpu_clock = thread_clock(tid, &out->cpu_clock);
    return out->has_cpu_clock;
}

/* --- setup, with the GIL --- */

/* What differs from what must be so on this thread, or NULL. */
static const char *
compare(lw_reader *reader)
{
    lw_thread_ref here, holder;
    lw_gil gil;
    lw_thread_ref_here(&here);
    look(reader, here.interpreter, &gil);
    if (!gil.known) {
        return "the GIL's memory could not be read";
    }
    if (!gil.enabled) {
        bool main = here.interpreter == (uintptr_t)PyInterpreterState_Main();
        bool own = gil.begin == here.interpreter + lw_the_layout.interpreter_own_gil;
        return main && !own ? "the GIL is not where the interpreter has its own one" : NULL;
    }
    if (!gil.locked || gil.holder != here.tstate) {
        return "the thread that holds the GIL is not the one that was found in its memory";
    }
    works = true;
    bool same = lw_gil_holder_ref(reader, gil.holder, here.interpreter, &holder) &&
                holder.tid == here.tid && holder.ident == here.ident;
    works = false;
    return same ? NULL : "the thread that holds the GIL could not be told by its state";
}

lw_result
lw_gil_setup(lw_reader *reader)
{
    reason = compare(reader);
    works = !reason;
    return works ? LW_OK : LW_ERR_FRAMES_CALIBRATE;
}

const char *
lw_gil_reason(void)
{
    return reason;
}
