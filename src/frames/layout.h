/* Where things are in this interpreter: the one table that everything else in frames/ reads
 * through.
 *
 * lw_layout_setup() fills it once, with the GIL, from the layout header of the version compiled for
 * (layout_3xx.h): constants of the headers on 3.11 and 3.12, whose layouts are final;
 * _Py_DebugOffsets of the running interpreter from 3.13 on, because private layouts move within a
 * minor version. Afterwards it never changes, so any thread reads it without a lock.
 *
 * A struct is copied whole by a guarded read; the lw_layout_read_* functions then take the fields
 * out of the copy. They run without the GIL and look at nothing but the copy and the table.
 */
#ifndef LW_LAYOUT_H
#define LW_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "result.h"

/* What the byte that says who owns a frame means for a walk. */
typedef enum lw_owner {
    LW_OWNER_BAD = 0,   /* no value of the enum: not a frame */
    LW_OWNER_STACK,     /* Python code; incomplete until its first traceable instruction */
    LW_OWNER_GENERATOR, /* Python code of a generator or coroutine: always complete */
    LW_OWNER_SKIP, /* the interpreter's or the C stack's own: no Python code, only `previous` */
} lw_owner;

#define LW_OWNERS 8 /* values of the byte that are looked up; all others are bad */

/* Lengths of the copies; lw_layout_setup refuses a layout that needs more. */
#define LW_THREAD_COPY_MAX 1024
#define LW_FRAME_COPY_MAX 128
#define LW_CODE_COPY_MAX 320
#define LW_GIL_COPY_MAX 64
#define LW_INT_COPY_MAX 64

/* Offsets are in bytes from the start of the struct. */
typedef struct lw_layout {
    uint32_t thread_length;       /* of the part of PyThreadState that is copied, from its start */
    uint32_t thread_next;         /* in the interpreter's list of thread states, which begins... */
    uint32_t interpreter_threads; /* ...here in its state */
    uint32_t thread_interpreter, thread_ident, thread_tid;
    uint32_t thread_current; /* the current frame, or the _PyCFrame that has it */
    uint32_t thread_chunk;   /* the newest chunk of the data stack */
    uint32_t thread_top;     /* where its used part ends */
    bool current_in_cframe;
    uint32_t cframe_current; /* in the _PyCFrame */

    uint32_t frame_length; /* up to the locals */
    uint32_t frame_executable, frame_previous, frame_instruction, frame_owner;
    uintptr_t tag_bits; /* of a _PyStackRef, to be masked off */
    uintptr_t tag_int;  /* those of one that is an integer itself; 0: there is no such thing */
    lw_owner owners[LW_OWNERS];

    uint32_t code_length; /* up to the instructions */
    uint32_t code_firstlineno, code_filename, code_name, code_qualname, code_linetable, code_consts;
    uint32_t code_firsttraceable, code_instructions;
    uint32_t
        code_version; /* co_version, unique while it does not overflow; 0: this version has none */

    uintptr_t gil_address; /* of the one GIL of the process; 0: each interpreter points to its... */
    uint32_t interpreter_gil;     /* ...here in its state, and... */
    uint32_t interpreter_own_gil; /* ...has its own, if it has one, there */
    uint32_t gil_length;          /* of the whole struct */
    uint32_t gil_holder, gil_locked;
    uint32_t gil_enabled; /* where gil_optional */
    bool gil_optional;    /* a free-threaded build */

    uint32_t int_length; /* of an int up to its first digit, and that */
    uint32_t int_size;   /* the word that says how many digits there are, and the sign */
    uint32_t int_digit;
    bool int_size_tagged; /* the number of digits stands above LW_INT_TAG_BITS, else it is a signed
                             number */

    uint32_t object_type, object_size; /* ob_type; ob_size of a PyVarObject */
    uint32_t bytes_data;
    uintptr_t code_type, unicode_type, bytes_type, int_type; /* addresses of the types */
} lw_layout;

extern lw_layout lw_the_layout; /* written by lw_layout_setup only */

/* With the GIL. LW_ERR_FRAMES_VERSION, with a sentence in *reason, where this interpreter's layout
 * is not known. */
lw_result lw_layout_setup(const char **reason);

/* --- fields out of copies --- */

typedef struct lw_raw_thread {
    uintptr_t interpreter, current, chunk, top;
    unsigned long ident, tid;
} lw_raw_thread;

typedef struct lw_raw_frame {
    uintptr_t executable; /* PyCodeObject*, without tag bits */
    uintptr_t previous;
    uintptr_t instruction;
    lw_owner owner;
} lw_raw_frame;

/* What makes a code object this one and no other: never its address alone, which is reused at once.
 * All of it is set when the object is made and stays; compared whole, as bytes. */
typedef struct lw_code_identity {
    uintptr_t address;
    uintptr_t filename, name, qualname, linetable, consts;
    int64_t size; /* code units */
    int32_t firstlineno;
    uint32_t version;
} lw_code_identity;

typedef struct lw_raw_code {
    lw_code_identity identity;
    uintptr_t type;
    int32_t firsttraceable; /* code units */
} lw_raw_code;

/* The header of a chunk of the data stack, as every version has it. */
typedef struct lw_raw_chunk {
    uintptr_t previous;
    size_t size; /* bytes, header included */
    size_t top;  /* words of the data that were used when the next chunk was begun */
} lw_raw_chunk;

static inline uintptr_t
lw_word_at(const char *copy, uint32_t offset)
{
    uintptr_t word;
    memcpy(&word, copy + offset, sizeof word);
    return word;
}

static inline int32_t
lw_int_at(const char *copy, uint32_t offset)
{
    int32_t value;
    memcpy(&value, copy + offset, sizeof value);
    return value;
}

static inline void
lw_layout_read_thread(const char *copy, lw_raw_thread *out)
{
    const lw_layout *layout = &lw_the_layout;
    out->interpreter = lw_word_at(copy, layout->thread_interpreter);
    out->ident = lw_word_at(copy, layout->thread_ident);
    out->tid = lw_word_at(copy, layout->thread_tid);
    out->current = lw_word_at(copy, layout->thread_current);
    out->chunk = lw_word_at(copy, layout->thread_chunk);
    out->top = lw_word_at(copy, layout->thread_top);
}

static inline void
lw_layout_read_frame(const char *copy, lw_raw_frame *out)
{
    const lw_layout *layout = &lw_the_layout;
    uint8_t owner = (uint8_t)copy[layout->frame_owner];
    out->executable = lw_word_at(copy, layout->frame_executable) & ~layout->tag_bits;
    out->previous = lw_word_at(copy, layout->frame_previous);
    out->instruction = lw_word_at(copy, layout->frame_instruction);
    out->owner = owner < LW_OWNERS ? layout->owners[owner] : LW_OWNER_BAD;
}

#define LW_INT_TAG_BITS 3  /* sign and, from 3.14 on, immortality */
#define LW_INT_SIGN_BITS 3 /* 0: positive, 1: zero */

/* The value of an int of one digit at most; -1 where it is another object, negative or larger. */
static inline int32_t
lw_layout_read_int(const char *copy)
{
    const lw_layout *layout = &lw_the_layout;
    uintptr_t size = lw_word_at(copy, layout->int_size);
    bool negative = false;
    if (layout->int_size_tagged) {
        negative = (size & LW_INT_SIGN_BITS) > 1;
        size >>= LW_INT_TAG_BITS;
    }
    if (negative || size > 1 || lw_word_at(copy, layout->object_type) != layout->int_type) {
        return -1;
    }
    return size ? lw_int_at(copy, layout->int_digit) : 0;
}

static inline void
lw_layout_read_code(const char *copy, uintptr_t address, lw_raw_code *out)
{
    const lw_layout *layout = &lw_the_layout;
    memset(out, 0,
           sizeof *out); /* no padding with chance values: identities are compared as bytes */
    out->type = lw_word_at(copy, layout->object_type);
    out->firsttraceable = lw_int_at(copy, layout->code_firsttraceable);
    lw_code_identity *identity = &out->identity;
    identity->address = address;
    identity->filename = lw_word_at(copy, layout->code_filename);
    identity->name = lw_word_at(copy, layout->code_name);
    identity->qualname = lw_word_at(copy, layout->code_qualname);
    identity->linetable = lw_word_at(copy, layout->code_linetable);
    identity->consts = lw_word_at(copy, layout->code_consts);
    identity->size = (int64_t)lw_word_at(copy, layout->object_size);
    identity->firstlineno = lw_int_at(copy, layout->code_firstlineno);
    if (layout->code_version) {
        identity->version = (uint32_t)lw_int_at(copy, layout->code_version);
    }
}

#endif
