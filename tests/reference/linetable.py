"""The location table decoder of src/frames/linetable.c, in Python: short and slow."""

Position = tuple[int, int, int, int]
"""(lineno, end_lineno, colno, end_colno), -1 where there is none."""

NOWHERE: Position = (-1, -1, -1, -1)


class Cursor:
    def __init__(self, table: bytes) -> None:
        self.table = table
        self.at = 0

    def byte(self) -> int:
        if self.at == len(self.table):
            return 0
        self.at += 1
        return self.table[self.at - 1]

    def number(self) -> int:
        value, shift = 0, 0
        while self.at < len(self.table):
            byte = self.byte()
            value |= (byte & 0x3F) << shift
            shift += 6
            if not byte & 0x40:
                break
        return value & 0xFFFFFFFF

    def signed(self) -> int:
        value = self.number()
        return -(value >> 1) if value & 1 else value >> 1


def as_signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value if value < 1 << 31 else -1


def positions(table: bytes, firstlineno: int) -> list[Position]:
    """The position of each code unit."""
    cursor, line, found = Cursor(table), firstlineno, []
    while cursor.at < len(table):
        head = cursor.byte()
        if not head & 0x80:
            break
        kind, units = head >> 3 & 15, (head & 7) + 1
        if kind == 15:
            found += [NOWHERE] * units
            continue
        column = end_column = -1
        span = 0
        if kind == 14:
            line += cursor.signed()
            span, column, end_column = cursor.number(), cursor.number() - 1, cursor.number() - 1
        elif kind == 13:
            line += cursor.signed()
        elif kind >= 10:
            line += kind - 10
            column, end_column = cursor.byte(), cursor.byte()
        else:
            byte = cursor.byte()
            column = kind << 3 | (byte >> 4 & 7)
            end_column = column + (byte & 15)
        found += [tuple(map(as_signed, (line, line + span, column, end_column)))] * units
    return found
