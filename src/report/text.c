/* Words and tracebacks, formatted into a fixed buffer: text.h. */
#include "text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define FRAMES_SHOWN 100 /* innermost; a deep recursion does not fill a log */

void
lw_say(lw_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = text->room - text->length;
    int n = vsnprintf(text->bytes + text->length, room, format, arguments);
    va_end(arguments);
    if (n > 0) {
        text->length += (size_t)n < room ? (size_t)n : room - 1;
    }
}

void
lw_say_seconds(lw_text *text, lw_ns ns)
{
    lw_say(text, "%" PRIu64 ".%02" PRIu64 " s", ns / LW_NS_PER_S,
           ns % LW_NS_PER_S / (10 * LW_NS_PER_MS));
}

void
lw_say_causes(lw_text *text, const lw_parts *parts)
{
    const char *before = "";
    for (int cause = 0; cause < LW_CAUSES; cause++) {
        if (parts->ns[cause]) {
            lw_say(text, "%s%s ", before, lw_cause_name((lw_cause)cause));
            lw_say_seconds(text, parts->ns[cause]);
            before = ", ";
        }
    }
}

static void
say_stack(lw_text *text, const lw_capture *capture, const lw_snapper *snapper, uint32_t leaf,
          uint32_t truncated)
{
    uint32_t path[FRAMES_SHOWN];
    uint32_t depth = 0, shown = 0;
    for (uint32_t at = leaf; at != LW_NO_NODE; at = capture->nodes[at].parent, depth++) {
        if (shown < FRAMES_SHOWN) {
            path[shown++] = at;
        }
    }
    if (depth + truncated > shown) {
        lw_say(text, "  ... %" PRIu32 " more frames\n", depth + truncated - shown);
    }
    while (shown-- > 0) {
        const lw_node *node = &capture->nodes[path[shown]];
        const lw_code *code = lw_code_get(snapper, node->code);
        lw_say(text, "  File \"%s\", line %" PRId32 ", in %s\n", code->filename,
               node->position.lineno, code->qualname);
    }
}

void
lw_say_stacks(lw_text *text, const lw_report *report, const lw_snapper *snapper,
              const lw_blame *blame)
{
    const lw_capture *capture = report->capture;
    const lw_sample *sample = &capture->samples[blame->shown];
    lw_say(text, "Stack of the loop's thread (most recent call last):\n");
    say_stack(text, capture, snapper, sample->node, sample->truncated);
    if (sample->holder != LW_NO_HOLDER) {
        lw_say(text, "The GIL was held by thread %d:\n", (int)capture->holders[sample->holder].tid);
        say_stack(text, capture, snapper, sample->holder_node, sample->holder_truncated);
    }
}
