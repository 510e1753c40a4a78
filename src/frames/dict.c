/* Looks for a key in a dict by its address, over all entries.
 *
 * Why: up to 3.13 asyncio keeps the running tasks in a dict by loop, up to 3.12 the running loop in
 * the dict of the thread state. Both are small, and hashing would need more of the layout than
 * walking the entries does.
 *
 * How: the dict points to its keys: a header, an index table whose length the header tells, and the
 * entries in order of insertion, with holes where something was deleted. Entries are {hash, key,
 * value}, or {key, value} where all keys are str; the values of a split dict (of an instance) are
 * in an array of their own. The layout is Include/internal/pycore_dict.h, the same from 3.11 to
 * 3.13, free-threaded too (its mutex fills a byte of padding). lw_task_setup() tries it out.
 */
#include <Python.h>

#if PY_VERSION_HEX < 0x030E0000 /* later ones keep task and loop in the thread state */

#include "dict.h"
#include "view.h"

#include <assert.h>
#include <stddef.h>

typedef struct keys_header {
    Py_ssize_t references;
    uint8_t log2_size;
    uint8_t log2_index_bytes;
    uint8_t kind;
    uint32_t version;
    Py_ssize_t usable;
    Py_ssize_t n_entries;
} keys_header;

static_assert(offsetof(keys_header, kind) == sizeof(Py_ssize_t) + 2, "as pycore_dict.h has it");
static_assert(offsetof(keys_header, usable) == sizeof(Py_ssize_t) + 8, "as pycore_dict.h has it");

enum { KIND_GENERAL = 0, KIND_UNICODE = 1, KIND_SPLIT = 2 };

#define LOG2_INDEX_BYTES_MAX 20u /* far more than LW_DICT_ENTRIES_MAX entries need */
#define CHUNK 12u                /* entries read at once: a piece of a walk (view.h) */
#define ENTRY_WORDS_MAX 3u

static_assert(CHUNK * ENTRY_WORDS_MAX * sizeof(uintptr_t) <= LW_PIECE_BYTES_MAX, "a piece");

#if PY_VERSION_HEX >= 0x030D0000
#define VALUES_OFFSET sizeof(uintptr_t) /* four bytes of sizes and flags stand before them */
#else
#define VALUES_OFFSET 0u
#endif

/* The index of the entry with the key and its value; index n and value 0 where none has it. */
static bool
find_entry(lw_reader *reader, uintptr_t entries, size_t n, size_t words, uintptr_t key,
           size_t *index, uintptr_t *value)
{
    uintptr_t chunk[CHUNK * ENTRY_WORDS_MAX];
    for (size_t first = 0; first < n; first += CHUNK) {
        size_t m = n - first < CHUNK ? n - first : CHUNK;
        uintptr_t address = entries + first * words * sizeof(uintptr_t);
        if (!lw_read(reader, address, chunk, m * words * sizeof(uintptr_t))) {
            return false;
        }
        for (size_t i = 0; i < m; i++) {
            const uintptr_t *entry = chunk + i * words;
            if (entry[words - 2] == key) {
                *index = first + i;
                *value = entry[words - 1];
                return true;
            }
        }
    }
    *index = n;
    *value = 0;
    return true;
}

bool
lw_dict_find(lw_reader *reader, uintptr_t dict, uintptr_t key, uintptr_t *value)
{
    PyDictObject head;
    keys_header keys;
    *value = 0;
    if (!lw_read(reader, dict, &head, sizeof head) || Py_TYPE((PyObject *)&head) != &PyDict_Type) {
        return false;
    }
    uintptr_t keys_address = (uintptr_t)head.ma_keys;
    if (!lw_read(reader, keys_address, &keys, sizeof keys) ||
        keys.log2_index_bytes > LOG2_INDEX_BYTES_MAX || keys.kind > KIND_SPLIT ||
        keys.n_entries < 0 || (size_t)keys.n_entries > LW_DICT_ENTRIES_MAX) {
        return false;
    }
    uintptr_t entries = keys_address + sizeof keys + ((uintptr_t)1 << keys.log2_index_bytes);
    size_t n = (size_t)keys.n_entries;
    size_t index;
    if (!find_entry(reader, entries, n, keys.kind == KIND_GENERAL ? 3 : 2, key, &index, value)) {
        return false;
    }
    if (keys.kind == KIND_SPLIT && index < n) {
        uintptr_t at = (uintptr_t)head.ma_values + VALUES_OFFSET + index * sizeof(uintptr_t);
        return lw_read(reader, at, value, sizeof *value);
    }
    return true;
}

#endif
