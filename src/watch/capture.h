/* What was seen of one turn: samples, with their stacks as leaves of one tree.
 *
 * Stacks of one stall differ in their innermost frames only, so they are kept as a tree: a node is
 * a frame under a caller, a stack is the path from a leaf to the root. Everything has a fixed size:
 * when the samples are full, neighbours are merged with their weights kept; when nodes, codes or
 * tasks are, a stack ends early or a task is not named, and that is counted.
 *
 * The watchdog thread alone touches a capture. It holds ids of the snapper's code cache, which is
 * therefore flushed only when no capture is begun.
 */
#ifndef LW_CAPTURE_H
#define LW_CAPTURE_H

#include "clock.h"
#include "evidence/evidence.h"
#include "evidence/thread_files.h"
#include "evidence/verdict.h"
#include "frames/snapshot.h"

#define LW_SAMPLES_MAX 256
#define LW_NODES_MAX 8192
#define LW_TASKS_MAX 32
#define LW_NO_NODE 0u /* node 0 is the root: an empty stack */
#define LW_NO_TASK (-1)
#define LW_HOLDERS_MAX 32
#define LW_NO_HOLDER (-1)

typedef struct lw_node {
    uint32_t parent;
    uint32_t code; /* id in the snapper's cache */
    lw_position position;
} lw_node;

typedef struct lw_sample {
    lw_ns at_ns;
    uint32_t node;        /* the innermost frame of the loop's thread, or LW_NO_NODE */
    uint32_t holder_node; /* likewise of the thread that had the GIL, or LW_NO_NODE */
    uint32_t truncated;   /* frames missing in the middle of the stack... */
    uint32_t holder_truncated;
    int16_t task;    /* index in tasks, or LW_NO_TASK */
    int16_t holder;  /* index in holders, or LW_NO_HOLDER */
    uint8_t quality; /* lw_quality... */
    uint8_t holder_quality;
    lw_evidence evidence;
    char target[LW_TARGET_MAX]; /* what its system call waited for, or "" */
} lw_sample;

/* Another thread that had the GIL while the loop wanted it. */
typedef struct lw_holder {
    pid_t tid;
    uint64_t ident;
} lw_holder;

typedef struct lw_capture {
    uint64_t turn; /* 0: no capture is begun */
    lw_ns begin_ns;
    uint32_t n_samples, n_nodes, n_tasks, n_holders;
    uint32_t merged;     /* samples that went into a neighbour */
    uint32_t nodes_lost; /* frames that found the tree full */
    lw_ns late_ns;       /* the watchdog's lateness when it began */
    bool debugger;       /* a debugger's frame was on a stack */
    uint32_t epoch; /* tells entries of this capture in `table` from older ones, so that it need not
                       be cleared */
    lw_sample samples[LW_SAMPLES_MAX];
    lw_node nodes[LW_NODES_MAX];
    lw_task tasks[LW_TASKS_MAX];
    lw_holder holders[LW_HOLDERS_MAX];
    uint64_t table[2 * LW_NODES_MAX]; /* hash of nodes: epoch << 32 | index */
} lw_capture;

void lw_capture_begin(lw_capture *capture, uint64_t turn, lw_ns begin_ns);
void lw_capture_end(lw_capture *capture);

/* What one look found. */
typedef struct lw_sight {
    lw_ns at_ns;
    const lw_snapshot *snapshot;
    const lw_evidence *evidence;
    const lw_thread_ref *holder; /* or NULL: nobody else had the GIL */
    const lw_snapshot *holder_snapshot;
    const char *target; /* of its system call, or "" */
} lw_sight;

/* One more sample, in order of time. */
void lw_capture_add(lw_capture *capture, const lw_sight *sight);

/* What each sample stands for, by cause; adds up to the turn's duration. Without a capture, or
 * samples, parts[0] is all. */
void lw_capture_judge(const lw_capture *capture, const lw_turn_facts *turn,
                      lw_parts parts[LW_SAMPLES_MAX]);

#endif
