/* Entries of like looks: tally.h. The search is linear, since there are few entries and a look is
 * rare. */
#include "tally.h"

#include <string.h>

/* Between how often pairs of looks at Python move, and how often at C: evidence/interval.c. */
#define PYTHON_MOVES 5 /* at least one in so many */
#define ENOUGH 8       /* pairs on one line that need not be helped by the rest of its function */

void
lw_tally_begin(lw_tally *tally, lw_ns now_ns)
{
    tally->begin_ns = now_ns;
    tally->looks = 0;
    lw_capture_begin(&tally->capture, 1, now_ns);
}

bool
lw_tally_full(const lw_tally *tally)
{
    const lw_capture *capture = &tally->capture;
    return capture->n_samples >= LW_TALLY_ENTRIES || tally->looks >= LW_TALLY_LOOKS ||
           capture->n_nodes >= LW_TALLY_NODES || capture->n_tasks == LW_TASKS_MAX ||
           capture->n_holders == LW_HOLDERS_MAX;
}

static bool
alike(const lw_tally *tally, uint32_t entry, const lw_sample *sample, lw_cause cause)
{
    const lw_sample *known = &tally->capture.samples[entry];
    return known->node == sample->node && known->task == sample->task &&
           known->holder_node == sample->holder_node && known->holder == sample->holder &&
           lw_largest(&tally->parts[entry]) == cause;
}

/* The entry for the capture's last sample: an older one that is like it, which then stands for it
 * too, or itself. */
static uint32_t
entry_of_last(lw_tally *tally, lw_cause cause)
{
    lw_capture *capture = &tally->capture;
    uint32_t last = capture->n_samples - 1;
    for (uint32_t i = 0; i < last; i++) {
        if (alike(tally, i, &capture->samples[last], cause)) {
            capture->n_samples--;
            return i;
        }
    }
    tally->counts[last] = 0;
    tally->worst_ns[last] = 0;
    tally->pairs[last] = tally->moved[last] = 0;
    memset(&tally->parts[last], 0, sizeof tally->parts[last]);
    return last;
}

void
lw_tally_add(lw_tally *tally, const lw_sight *sight, const lw_portion *portion)
{
    lw_capture_add(&tally->capture, sight);
    uint32_t entry = entry_of_last(tally, portion->cause);
    tally->parts[entry].ns[portion->cause] += portion->weight_ns;
    tally->counts[entry] += portion->count;
    tally->looks += portion->count;
    if (portion->worst_ns > tally->worst_ns[entry]) {
        tally->worst_ns[entry] = portion->worst_ns;
    }
    bool tells = portion->cause == LW_PYTHON || portion->cause == LW_NATIVE;
    if (tells && (sight->evidence->known & LW_KNOWS_MOVED)) {
        tally->pairs[entry]++;
        tally->moved[entry] += sight->evidence->moved != 0;
    }
}

/* --- Python or C --- */

typedef struct lw_motion {
    uint32_t pairs, moved;
} lw_motion;

/* How often entries with this node's function, and line if `same_line`, were found moved. */
static lw_motion
motion_like(const lw_tally *tally, const lw_node *node, bool same_line)
{
    const lw_capture *capture = &tally->capture;
    lw_motion sum = {0, 0};
    for (uint32_t i = 0; i < capture->n_samples; i++) {
        const lw_node *other = &capture->nodes[capture->samples[i].node];
        if (other->code == node->code &&
            (!same_line || other->position.lineno == node->position.lineno)) {
            sum.pairs += tally->pairs[i];
            sum.moved += tally->moved[i];
        }
    }
    return sum;
}

void
lw_tally_settle(lw_tally *tally)
{
    const lw_capture *capture = &tally->capture;
    for (uint32_t i = 0; i < capture->n_samples; i++) {
        lw_ns *ns = tally->parts[i].ns;
        lw_ns ran_ns = ns[LW_PYTHON] + ns[LW_NATIVE];
        const lw_node *node = &capture->nodes[capture->samples[i].node];
        lw_motion motion = motion_like(tally, node, true);
        if (motion.pairs < ENOUGH) {
            motion = motion_like(tally, node, false);
        }
        if (ran_ns && motion.pairs) {
            bool python = motion.moved * PYTHON_MOVES >= motion.pairs;
            ns[LW_PYTHON] = python ? ran_ns : 0;
            ns[LW_NATIVE] = python ? 0 : ran_ns;
        }
    }
}
