/* Copies a str in two reads, its head and then its characters, and encodes the copy.
 *
 * The head is PyASCIIObject as the public header of the version has it (final within a minor
 * version), so its bit fields are taken by the compiler. Only compact strings are read: the others
 * are results of deprecated APIs and of subclasses, and no compiler or marshal makes them. A str
 * that changes while it is read gives nonsense, never harm; whoever needs to be sure compares the
 * owner's identity before and after (code.c).
 */
#include <Python.h>

#include "layout.h"
#include "snapshot.h"
#include "strings.h"

#include <assert.h>

#define WIDTH_MAX 4u

static_assert(sizeof(Py_UCS4) == WIDTH_MAX, "the widest character");

static size_t
encode_one(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    if (c < 0x110000) {
        out[0] = (char)(0xF0 | c >> 18);
        out[1] = (char)(0x80 | (c >> 12 & 0x3F));
        out[2] = (char)(0x80 | (c >> 6 & 0x3F));
        out[3] = (char)(0x80 | (c & 0x3F));
        return 4;
    }
    return encode_one(0xFFFD, out); /* a torn read */
}

static uint32_t
character_at(const char *characters, size_t i, unsigned width)
{
    uint8_t narrow;
    uint16_t middle;
    uint32_t wide;
    switch (width) {
    case 1:
        memcpy(&narrow, characters + i, sizeof narrow);
        return narrow;
    case 2:
        memcpy(&middle, characters + i * sizeof middle, sizeof middle);
        return middle;
    default:
        memcpy(&wide, characters + i * sizeof wide, sizeof wide);
        return wide;
    }
}

size_t
lw_string_encode(const void *characters, size_t n, unsigned width, char *out, size_t room)
{
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        char encoded[4];
        size_t more = encode_one(character_at(characters, i, width), encoded);
        if (length + more > room) {
            break;
        }
        memcpy(out + length, encoded, more);
        length += more;
    }
    out[length] = '\0';
    return length;
}

bool
lw_string_read(lw_reader *reader, uintptr_t address, char *out, size_t room, size_t *length)
{
    PyASCIIObject head;
    char characters[LW_NAME_MAX * WIDTH_MAX];
    *out = '\0';
    *length = 0;
    if (!lw_read(reader, address, &head, sizeof head) ||
        lw_word_at((const char *)&head, lw_the_layout.object_type) != lw_the_layout.unicode_type ||
        !head.state.compact || head.length < 0) {
        return false;
    }
    unsigned width = head.state.kind;
    if (width != 1 && width != 2 && width != WIDTH_MAX) {
        return false;
    }
    size_t n = (size_t)head.length;
    size_t most = room < LW_NAME_MAX ? room : LW_NAME_MAX; /* a character is at least a byte */
    n = n < most ? n : most;
    uintptr_t data =
        address + (head.state.ascii ? sizeof(PyASCIIObject) : sizeof(PyCompactUnicodeObject));
    if (n && !lw_read(reader, data, characters, n * width)) {
        return false;
    }
    *length = lw_string_encode(characters, n, width, out, room);
    return true;
}
