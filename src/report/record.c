/* Serialising a report: measured first, so that it lies in the ring in one piece, then written. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

#define TABLE_PLACES                                                                               \
    16384 /* more than a capture has nodes, so that a search always meets a free place */
#define TABLE_MASK (TABLE_PLACES - 1)
_Static_assert(TABLE_PLACES > LW_NODES_MAX, "a place for each code");

struct lw_record_writer {
    uint32_t n_codes;
    uint32_t epoch;
    uint64_t strings;             /* bytes of all names */
    uint32_t codes[LW_NODES_MAX]; /* cache id of each code of the record */
    uint64_t table[TABLE_PLACES]; /* epoch << 32 | index in codes */
};

lw_record_writer *
lw_record_writer_new(void)
{
    return calloc(1, sizeof(lw_record_writer));
}

void
lw_record_writer_free(lw_record_writer *writer)
{
    free(writer);
}

/* The place of a code's entry in the table, or the free place where it would go. */
static uint32_t
place_of(const lw_record_writer *writer, uint32_t code)
{
    uint32_t place = (uint32_t)(code * UINT32_C(2654435761)) >> 18;
    while (writer->table[place] >> 32 == writer->epoch &&
           writer->codes[(uint32_t)writer->table[place]] != code) {
        place = (place + 1) & TABLE_MASK;
    }
    return place;
}

static void
collect_codes(lw_record_writer *writer, const lw_capture *capture, const lw_snapper *snapper)
{
    for (uint32_t i = 1; i < capture->n_nodes; i++) {
        uint32_t id = capture->nodes[i].code;
        uint32_t place = place_of(writer, id);
        if (writer->table[place] >> 32 == writer->epoch) {
            continue;
        }
        const lw_code *code = lw_code_get(snapper, id);
        writer->table[place] = (uint64_t)writer->epoch << 32 | writer->n_codes;
        writer->codes[writer->n_codes++] = id;
        writer->strings += code->filename_length + code->qualname_length;
    }
}

static size_t
padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

/* Offsets of the arrays from the start of the record; the last one is its size. */
enum part { NODES, CODES, SAMPLES, TASKS, HOLDERS, STEPS, STRINGS, END };

static size_t
offset_of(const lw_record *record, enum part part)
{
    const size_t sizes[] = {
        [NODES] = record->n_nodes * sizeof(lw_node),
        [CODES] = record->n_codes * sizeof(lw_record_code),
        [SAMPLES] = record->n_samples * sizeof(lw_record_sample),
        [TASKS] = record->n_tasks * sizeof(lw_task),
        [HOLDERS] = record->n_holders * sizeof(lw_holder),
        [STEPS] = record->n_steps * sizeof(lw_step_time),
        [STRINGS] = (size_t)record->strings,
    };
    size_t offset = padded(sizeof *record);
    for (enum part before = NODES; before < part; before++) {
        offset += padded(sizes[before]);
    }
    return offset;
}

static void
fill_counts(const lw_record_writer *writer, const lw_report *report, lw_record *record)
{
    const lw_capture *capture = report->capture;
    record->n_steps = report->n_steps;
    if (capture) {
        record->n_nodes = capture->n_nodes;
        record->n_codes = writer->n_codes;
        record->n_samples = capture->n_samples;
        record->n_tasks = capture->n_tasks;
        record->n_holders = capture->n_holders;
        record->merged = capture->merged;
        record->strings = writer->strings;
    }
}

size_t
lw_record_measure(lw_record_writer *writer, const lw_report *report, const lw_snapper *snapper)
{
    writer->n_codes = 0;
    writer->strings = 0;
    if (++writer->epoch == 0) {
        memset(writer->table, 0, sizeof writer->table);
        writer->epoch = 1;
    }
    if (report->capture) {
        collect_codes(writer, report->capture, snapper);
    }
    lw_record counts = {0};
    fill_counts(writer, report, &counts);
    return offset_of(&counts, END);
}

static void
write_codes(const lw_record_writer *writer, const lw_snapper *snapper, lw_record_code *codes,
            char *strings)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < writer->n_codes; i++) {
        const lw_code *code = lw_code_get(snapper, writer->codes[i]);
        codes[i] = (lw_record_code){at, code->filename_length, at + code->filename_length,
                                    code->qualname_length};
        memcpy(strings + at, code->filename, code->filename_length);
        memcpy(strings + at + code->filename_length, code->qualname, code->qualname_length);
        at += code->filename_length + code->qualname_length;
    }
}

static void
write_nodes(const lw_record_writer *writer, const lw_capture *capture, lw_node *nodes)
{
    nodes[0] = (lw_node){0};
    for (uint32_t i = 1; i < capture->n_nodes; i++) {
        nodes[i] = capture->nodes[i];
        nodes[i].code = (uint32_t)writer->table[place_of(writer, capture->nodes[i].code)];
    }
}

static lw_ns
sum(const lw_parts *parts)
{
    lw_ns total_ns = 0;
    for (int cause = 0; cause < LW_CAUSES; cause++) {
        total_ns += parts->ns[cause];
    }
    return total_ns;
}

static void
write_samples(const lw_report *report, lw_record *record, lw_record_sample *samples)
{
    const lw_capture *capture = report->capture;
    for (uint32_t i = 0; i < capture->n_samples; i++) {
        const lw_sample *sample = &capture->samples[i];
        lw_cause cause = lw_largest(&report->parts[i]);
        bool blames_holder = cause == LW_GIL && sample->holder != LW_NO_HOLDER;
        samples[i] = (lw_record_sample){
            .offset_ns = sample->at_ns > report->begin_ns ? sample->at_ns - report->begin_ns : 0,
            .weight_ns = sum(&report->parts[i]),
            .count = report->counts ? report->counts[i] : 0,
            .worst_ns = report->worst_ns ? report->worst_ns[i] : 0,
            .node = sample->node,
            .holder_node = sample->holder_node,
            .truncated = blames_holder ? sample->holder_truncated : sample->truncated,
            .task = sample->task,
            .holder = sample->holder,
            .quality = blames_holder ? sample->holder_quality : sample->quality,
            .cause = (uint8_t)cause,
        };
        for (int part = 0; part < LW_CAUSES; part++) {
            record->parts.ns[part] += report->parts[i].ns[part];
        }
    }
}

void
lw_record_write(const lw_record_writer *writer, const lw_report *report, const lw_snapper *snapper,
                void *out)
{
    char *base = out;
    lw_record *record = out;
    *record = (lw_record){
        .kind = report->kind,
        .overdue = report->overdue,
        .token = report->token,
        .slot_key = report->slot->key,
        .id = report->id,
        .turn = report->turn,
        .begin_ns = report->begin_ns,
        .end_ns = report->end_ns,
        .started_at_ns =
            report->started_at_ns ? report->started_at_ns : lw_realtime_ns(report->begin_ns),
    };
    lw_slot_thread(report->slot, &record->thread);
    fill_counts(writer, report, record);
    record->totals = report->totals;
    record->routes = report->routes;
    if (!record->n_samples && report->parts) {
        record->parts = report->parts[0];
    }
    if (report->n_steps) {
        memcpy(base + offset_of(record, STEPS), report->steps,
               report->n_steps * sizeof *report->steps);
    }
    if (report->capture) {
        write_nodes(writer, report->capture, (lw_node *)(void *)(base + offset_of(record, NODES)));
        write_codes(writer, snapper, (lw_record_code *)(void *)(base + offset_of(record, CODES)),
                    base + offset_of(record, STRINGS));
        write_samples(report, record,
                      (lw_record_sample *)(void *)(base + offset_of(record, SAMPLES)));
        memcpy(base + offset_of(record, TASKS), report->capture->tasks,
               record->n_tasks * sizeof(lw_task));
        memcpy(base + offset_of(record, HOLDERS), report->capture->holders,
               record->n_holders * sizeof(lw_holder));
    }
}

static const void *
part_of(const lw_record *record, enum part part)
{
    return (const char *)record + offset_of(record, part);
}

const lw_node *
lw_record_nodes(const lw_record *record)
{
    return part_of(record, NODES);
}

const lw_record_code *
lw_record_codes(const lw_record *record)
{
    return part_of(record, CODES);
}

const lw_record_sample *
lw_record_samples(const lw_record *record)
{
    return part_of(record, SAMPLES);
}

const lw_task *
lw_record_tasks(const lw_record *record)
{
    return part_of(record, TASKS);
}

const lw_holder *
lw_record_holders(const lw_record *record)
{
    return part_of(record, HOLDERS);
}

const lw_step_time *
lw_record_steps(const lw_record *record)
{
    return part_of(record, STEPS);
}

const char *
lw_record_strings(const lw_record *record)
{
    return part_of(record, STRINGS);
}
