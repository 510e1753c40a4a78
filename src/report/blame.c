/* The sample, the frame and the task to name: blame.h. */
#include "blame.h"

#include "own.h"

/* Where the blamed thread of a sample stood: the holder of the GIL where that is the cause. */
static uint32_t
blamed_node(const lw_report *report, uint32_t sample)
{
    const lw_sample *it = &report->capture->samples[sample];
    bool holder = it->holder_node != LW_NO_NODE && lw_largest(&report->parts[sample]) == LW_GIL;
    return holder ? it->holder_node : it->node;
}

/* The node of the innermost frame of the program's own, at or above `node`; `node` itself where
 * there is none. */
static uint32_t
own_node(const lw_capture *capture, const lw_snapper *snapper, uint32_t node)
{
    for (uint32_t at = node; at != LW_NO_NODE; at = capture->nodes[at].parent) {
        if (lw_own_file(lw_code_get(snapper, capture->nodes[at].code)->filename)) {
            return at;
        }
    }
    return node;
}

/* Without samples the first part is all (lw_judge). */
static lw_parts
sum_of(const lw_report *report)
{
    lw_parts sum = {{0}};
    uint32_t n = report->capture ? report->capture->n_samples : 0;
    for (uint32_t i = 0; i < (n ? n : 1); i++) {
        lw_parts_add(&sum, &report->parts[i]);
    }
    return sum;
}

/* The sample to show: of those that have time of this cause, one whose culprit function has the
 * most of it; among these the one with most. LW_SAMPLES_MAX: none has frames. */
static uint32_t
heaviest(const lw_report *report, const lw_snapper *snapper, lw_cause cause)
{
    const lw_capture *capture = report->capture;
    uint32_t culprits[LW_SAMPLES_MAX];
    for (uint32_t i = 0; i < capture->n_samples; i++) {
        uint32_t node = own_node(capture, snapper, blamed_node(report, i));
        culprits[i] = capture->nodes[node].code;
    }
    uint32_t best = LW_SAMPLES_MAX;
    lw_ns best_ns = 0;
    for (uint32_t i = 0; i < capture->n_samples; i++) {
        lw_ns function_ns = 0;
        for (uint32_t j = 0; j < capture->n_samples; j++) {
            function_ns += culprits[j] == culprits[i] ? report->parts[j].ns[cause] : 0;
        }
        lw_ns own_ns = report->parts[i].ns[cause];
        bool same = best != LW_SAMPLES_MAX && culprits[i] == culprits[best];
        bool heavier = same ? own_ns > report->parts[best].ns[cause] : function_ns > best_ns;
        if (blamed_node(report, i) != LW_NO_NODE && own_ns && heavier) {
            best = i;
            best_ns = function_ns;
        }
    }
    return best;
}

void
lw_blame_find(const lw_report *report, const lw_snapper *snapper, lw_blame *out)
{
    const lw_capture *capture = report->capture;
    *out = (lw_blame){.sum = sum_of(report), .shown = LW_SAMPLES_MAX, .task_name = ""};
    out->verdict = lw_largest(&out->sum);
    if (!capture || !snapper) {
        return;
    }
    out->shown = heaviest(report, snapper, out->verdict);
    if (out->shown == LW_SAMPLES_MAX || out->verdict == LW_SUSPENDED ||
        out->verdict == LW_NOT_SCHEDULED) { /* nobody is to blame */
        return;
    }
    const lw_sample *sample = &capture->samples[out->shown];
    const lw_node *node =
        &capture->nodes[own_node(capture, snapper, blamed_node(report, out->shown))];
    out->code = lw_code_get(snapper, node->code);
    out->lineno = node->position.lineno;
    if (sample->task != LW_NO_TASK) {
        out->task = &capture->tasks[sample->task];
        out->task_name = report->slot->dump_names ? out->task->name : "";
    }
}
