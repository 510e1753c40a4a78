/* A ring of summaries: past.h. */
#include "past.h"

#include <string.h>

#include "report/blame.h"

static struct {
    uint64_t n; /* how many there ever were */
    lw_past ring[LW_PAST_MAX];
} past;

/* At most `most` bytes of it; which may end within a character. */
static void
copy_begin(char *to, const char *from, size_t most)
{
    size_t length = strnlen(from, most);
    memcpy(to, from, length);
    to[length] = '\0';
}

static void
copy_end(char *to, const char *from, size_t most)
{
    size_t length = strlen(from);
    copy_begin(to, length > most ? from + length - most : from, most);
}

void
lw_past_note(const lw_report *report, const lw_snapper *snapper)
{
    lw_past *it = &past.ring[past.n++ % LW_PAST_MAX];
    lw_thread thread;
    lw_blame blame;
    lw_blame_find(report, snapper, &blame);
    *it = (lw_past){
        .id = report->id,
        .key = report->slot->key,
        .begin_ns = report->begin_ns,
        .end_ns = report->end_ns,
        .verdict = blame.verdict,
        .lineno = blame.lineno,
    };
    if (blame.code) {
        copy_begin(it->qualname, blame.code->qualname, LW_PAST_NAME);
        copy_end(it->filename, blame.code->filename, LW_PAST_FILE);
    }
    copy_begin(it->task, blame.task_name, LW_PAST_NAME);
    if (lw_slot_thread(report->slot, &thread)) {
        copy_begin(it->thread, thread.name, LW_THREAD_NAME_MAX);
    }
}

const lw_past *
lw_past_get(uint32_t back)
{
    return back < past.n && back < LW_PAST_MAX ? &past.ring[(past.n - 1 - back) % LW_PAST_MAX]
                                               : NULL;
}

void
lw_past_forget(void)
{
    past.n = 0;
}
