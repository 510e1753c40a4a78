/* The code cache.
 *
 * Three tables, all of fixed size: entries by id, found through an open-addressing index by
 * address; names in an arena, each once; positions in a table of small sets by (id, instruction),
 * in which the newest replaces the one before it.
 *
 * What is read of a code object after its identity (names, line table) is only believed if the
 * identity, read once more behind it, is still the same: then the object lived, and held on to
 * them, all the while. On 3.12 and later the identity includes co_version, which no other code
 * object has.
 */
#include "code.h"

#include <assert.h>
#include <stdlib.h>

#include "linetable.h"
#include "strings.h"

#define INDEX_SLOTS (LW_CODES_MAX * 2)
#define NAME_SLOTS (LW_CODES_MAX * 4) /* at most two names an entry */
#define POSITION_SLOTS (LW_CODES_MAX * 2)
#define POSITION_WAYS 4u /* slots that one position may be in */

static_assert((INDEX_SLOTS & (INDEX_SLOTS - 1)) == 0, "masks");
static_assert(LW_CODES_MAX <= UINT16_MAX, "ids are kept in 16 bits");

typedef struct entry {
    lw_code code;
    lw_code_identity identity;
    bool debugger;
} entry;

typedef struct name {
    uint32_t offset, length; /* in the arena; length + 1 there, 0: free slot */
} name;

typedef struct position {
    uint32_t id;
    int32_t instruction;
    lw_position value;
} position;

struct lw_codes {
    lw_reader *reader;
    lw_snap_counts *counts;
    uint32_t n; /* entries in use */
    uint32_t arena_used;
    uint32_t names_used;
    entry entries[LW_CODES_MAX];
    uint16_t index[INDEX_SLOTS]; /* id of the newest entry of an address; 0: free */
    name names[NAME_SLOTS];
    position positions[POSITION_SLOTS]; /* id 0: free */
    char arena[LW_ARENA_BYTES];
    uint8_t table[LW_TABLE_MAX]; /* scratch: a line table */
};

static const char unknown_text[] = "<unknown>";
static char
    bdb_filename[LW_NAME_MAX + 1]; /* written with the GIL before the first snapper is used */

static uint32_t
hash_bytes(uint32_t hash, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ at[i]) * 16777619u; /* FNV-1a */
    }
    return hash;
}

#define HASH_START 2166136261u

static uint32_t
hash_word(uint64_t word)
{
    return (uint32_t)(word * 0x9E3779B97F4A7C15u >> 32);
}

/* --- names --- */

/* The one copy of a name in the arena; NULL where it is full. */
static const char *
intern(lw_codes *codes, const char *text, size_t length)
{
    uint32_t slot = hash_bytes(HASH_START, text, length) & (NAME_SLOTS - 1);
    while (codes->names[slot].length) {
        const name *at = &codes->names[slot];
        if (at->length == length + 1 && !memcmp(codes->arena + at->offset, text, length)) {
            return codes->arena + at->offset;
        }
        slot = (slot + 1) & (NAME_SLOTS - 1);
    }
    if (length + 1 > LW_ARENA_BYTES - codes->arena_used ||
        codes->names_used > NAME_SLOTS - NAME_SLOTS / 8) {
        return NULL;
    }
    char *copy = codes->arena + codes->arena_used;
    memcpy(copy, text, length);
    copy[length] = '\0';
    codes->names[slot] = (name){codes->arena_used, (uint32_t)length + 1};
    codes->names_used++;
    codes->arena_used += (uint32_t)length + 1;
    return copy;
}

void
lw_codes_set_bdb(const char *filename)
{
    size_t length = strlen(filename);
    if (length <= LW_NAME_MAX) {
        memcpy(bdb_filename, filename, length + 1);
    }
}

/* pydevd's files are pydevd.py, pydevd_*.py and those of _pydevd_* packages beside it. */
static bool
is_debugger_file(const char *filename)
{
    const char *base = strrchr(filename, '/');
    base = base ? base + 1 : filename;
    return !strncmp(base, "pydevd", 6) || strstr(filename, "/_pydevd_") ||
           strstr(filename, "/pydevd/") || (*bdb_filename && !strcmp(filename, bdb_filename));
}

/* --- entries --- */

static void
reset(lw_codes *codes)
{
    memset(codes->index, 0, sizeof codes->index);
    memset(codes->names, 0, sizeof codes->names);
    memset(codes->positions, 0, sizeof codes->positions);
    codes->arena_used = codes->names_used = 0;
    codes->n = 1;
    uint32_t length = sizeof unknown_text - 1;
    codes->entries[LW_CODE_UNKNOWN] = (entry){
        .code = {.filename = unknown_text,
                 .qualname = unknown_text,
                 .filename_length = length,
                 .qualname_length = length,
                 .firstlineno = -1,
                 .hash = hash_bytes(HASH_START, unknown_text, length)},
    };
}

lw_codes *
lw_codes_new(lw_reader *reader, lw_snap_counts *counts)
{
    lw_codes *codes = malloc(sizeof *codes);
    if (codes) {
        codes->reader = reader;
        codes->counts = counts;
        reset(codes);
    }
    return codes;
}

void
lw_codes_free(lw_codes *codes)
{
    free(codes);
}

void
lw_codes_clear(lw_codes *codes)
{
    reset(codes);
}

bool
lw_codes_nearly_full(const lw_codes *codes)
{
    return codes->n > LW_CODES_MAX / 4 * 3 || codes->arena_used > LW_ARENA_BYTES / 4 * 3 ||
           codes->names_used > NAME_SLOTS / 4 * 3;
}

const lw_code *
lw_codes_get(const lw_codes *codes, uint32_t id)
{
    return &codes->entries[id < codes->n ? id : LW_CODE_UNKNOWN].code;
}

bool
lw_codes_is_debugger(const lw_codes *codes, uint32_t id)
{
    return id < codes->n && codes->entries[id].debugger;
}

/* Reads the object's head once more: whether it is still the one that was seen. */
static bool
still_there(lw_codes *codes, const lw_code_identity *identity)
{
    char copy[LW_CODE_COPY_MAX];
    lw_raw_code now;
    if (!lw_read(codes->reader, identity->address, copy, lw_the_layout.code_length)) {
        return false;
    }
    lw_layout_read_code(copy, identity->address, &now);
    return now.type == lw_the_layout.code_type &&
           !memcmp(&now.identity, identity, sizeof *identity);
}

/* Names into `out`; false where the object went away meanwhile, or the arena is full. */
static bool
read_names(lw_codes *codes, const lw_code_identity *identity, lw_code *out)
{
    char filename[LW_NAME_MAX + 1], qualname[LW_NAME_MAX + 1];
    size_t filename_length, qualname_length;
    if (!lw_string_read(codes->reader, identity->filename, filename, LW_NAME_MAX,
                        &filename_length) ||
        !lw_string_read(codes->reader, identity->qualname, qualname, LW_NAME_MAX,
                        &qualname_length) ||
        !still_there(codes, identity)) {
        return false;
    }
    out->filename = intern(codes, filename, filename_length);
    out->qualname = intern(codes, qualname, qualname_length);
    if (!out->filename || !out->qualname) {
        codes->counts->codes_full++;
        return false;
    }
    out->filename_length = (uint32_t)filename_length;
    out->qualname_length = (uint32_t)qualname_length;
    out->firstlineno = identity->firstlineno;
    uint32_t hash = hash_bytes(HASH_START, filename, filename_length + 1);
    hash = hash_bytes(hash, qualname, qualname_length + 1);
    out->hash = hash_bytes(hash, &out->firstlineno, sizeof out->firstlineno);
    return true;
}

uint32_t
lw_codes_resolve(lw_codes *codes, const lw_code_identity *identity)
{
    uint32_t slot = hash_word(identity->address) & (INDEX_SLOTS - 1);
    bool stale = false;
    while (codes->index[slot]) {
        const entry *at = &codes->entries[codes->index[slot]];
        if (at->identity.address == identity->address) {
            if (!memcmp(&at->identity, identity, sizeof *identity)) {
                return codes->index[slot];
            }
            stale = true;
            break;
        }
        slot = (slot + 1) & (INDEX_SLOTS - 1);
    }
    if (codes->n == LW_CODES_MAX) {
        codes->counts->codes_full++;
        return LW_CODE_UNKNOWN;
    }
    entry *fresh = &codes->entries[codes->n];
    if (!read_names(codes, identity, &fresh->code)) {
        return LW_CODE_UNKNOWN;
    }
    fresh->identity = *identity;
    fresh->debugger = is_debugger_file(fresh->code.filename);
    codes->counts->codes++;
    codes->counts->codes_stale += stale;
    codes->index[slot] = (uint16_t)codes->n;
    return codes->n++;
}

/* --- positions --- */

/* The line table into the scratch; returns its length, 0 where it cannot be had. */
static size_t
read_table(lw_codes *codes, const lw_code_identity *identity)
{
    const lw_layout *layout = &lw_the_layout;
    char head[64]; /* a bytes object up to its data, free-threaded builds included */
    if (layout->bytes_data > sizeof head ||
        !lw_read(codes->reader, identity->linetable, head, layout->bytes_data) ||
        lw_word_at(head, layout->object_type) != layout->bytes_type) {
        return 0;
    }
    size_t length = lw_word_at(head, layout->object_size);
    if (!length || length > LW_TABLE_MAX ||
        !lw_read(codes->reader, identity->linetable + layout->bytes_data, codes->table, length) ||
        !still_there(codes, identity)) {
        return 0;
    }
    return length;
}

static position *
position_set(lw_codes *codes, uint32_t id, int32_t instruction)
{
    uint32_t hash = hash_word((uint64_t)id << 32 | (uint32_t)instruction);
    return &codes->positions[hash % (POSITION_SLOTS / POSITION_WAYS) * POSITION_WAYS];
}

void
lw_codes_position(lw_codes *codes, uint32_t id, int32_t instruction, lw_position *out)
{
    *out = (lw_position){-1, -1, -1, -1};
    if (id == LW_CODE_UNKNOWN || id >= codes->n) {
        return;
    }
    position *set = position_set(codes, id, instruction);
    for (uint32_t i = 0; i < POSITION_WAYS; i++) {
        if (set[i].id == id && set[i].instruction == instruction) {
            *out = set[i].value;
            return;
        }
    }
    const lw_code_identity *identity = &codes->entries[id].identity;
    size_t length = read_table(codes, identity);
    if (length &&
        lw_linetable_find(codes->table, length, identity->firstlineno, instruction, out)) {
        memmove(set + 1, set, (POSITION_WAYS - 1) * sizeof *set); /* the oldest goes */
        set[0] = (position){id, instruction, *out};
    }
}
