"""The parts of src/frames/ by themselves: positions equal co_positions(), strings are cut at a character."""

import os
import random
import runpy
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stacks import none_as_minus_one

from loopwatch import _testcore as core

positions_of = runpy.run_path(str(Path(__file__).parent.parent / "reference" / "linetable.py"))["positions"]

pytestmark = pytest.mark.skipif(core.frames_setup()[1] is not None, reason=str(core.frames_setup()[1]))


@pytest.fixture
def fresh() -> Any:
    return core.frames_snapper()


# --- positions ---


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def library_files() -> list[Path]:
    files = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    files = [path for path in files if "site-packages" not in path.parts and "bad" not in path.stem]
    if os.environ.get("LOOPWATCH_ALL_POSITIONS"):
        return files
    return random.sample(files, 50)


def test_positions_equal_co_positions_of_the_library(fresh: Any) -> None:
    checked = 0
    for path in library_files():
        try:
            module = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, Warning):
            continue  # files for tests of the parser
        for code in codes_in(module):
            if len(code.co_code) > 20_000:
                continue  # the wrapper decodes from the start for each instruction: too slow
            expected = [none_as_minus_one(at) for at in code.co_positions()]
            _, filename, qualname, found = core.frames_positions(fresh, code)
            assert filename.decode() == str(path)
            assert qualname.decode() == code.co_qualname
            assert found == expected
            assert positions_of(code.co_linetable, code.co_firstlineno)[: len(expected)] == expected
            checked += 1
    assert checked > 50


numbers = st.integers(0, 2**31 - 1) | st.integers(0, 70)


def encode_number(value: int) -> bytes:
    out = bytearray()
    while value >= 64:
        out.append(0x40 | value & 0x3F)
        value >>= 6
    out.append(value)
    return bytes(out)


entries = st.one_of(
    st.builds(lambda k, n, b: bytes([0x80 | k << 3 | n, b]), st.integers(0, 9), st.integers(0, 7),
              st.integers(0, 127)),
    st.builds(lambda k, n, a, b: bytes([0x80 | k << 3 | n, a, b]), st.integers(10, 12), st.integers(0, 7),
              st.integers(0, 127), st.integers(0, 127)),
    st.builds(lambda n, d: bytes([0x80 | 13 << 3 | n]) + encode_number(d), st.integers(0, 7), numbers),
    st.builds(lambda n, a, b, c, d: bytes([0x80 | 14 << 3 | n]) + b"".join(map(encode_number, (a, b, c, d))),
              st.integers(0, 7), numbers, numbers, numbers, numbers),
    st.builds(lambda n: bytes([0x80 | 15 << 3 | n]), st.integers(0, 7)),
)  # fmt: skip


@given(st.binary(max_size=60) | st.lists(entries, max_size=12).map(b"".join), st.integers(0, 2**31 - 1))
def test_any_table_decodes_as_the_reference_does(table: bytes, firstlineno: int) -> None:
    expected = positions_of(table, firstlineno)
    for unit, at in enumerate(expected):
        assert core.frames_linetable(table, firstlineno, unit * 2) == at
    assert core.frames_linetable(table, firstlineno, len(expected) * 2) is None
    assert core.frames_linetable(table, firstlineno, -2) == (firstlineno, firstlineno, -1, -1)


# --- strings ---


@given(st.text(st.characters(codec=None), max_size=300), st.integers(0, 1024))
def test_strings_are_cut_at_a_character(text: str, room: int) -> None:
    encoded = text.encode("utf-8", "surrogatepass")
    found = core.frames_string(text, room)
    assert encoded.startswith(found)
    assert len(found) <= room
    rest = text[len(found.decode("utf-8", "surrogatepass")) :]
    assert not rest or len(found) + len(rest[0].encode("utf-8", "surrogatepass")) > room


@pytest.mark.parametrize("other", [b"bytes", 1, None, ["x"], 1.5])
def test_what_is_not_a_string_is_not_read(other: object) -> None:
    assert core.frames_string(other, 100) is None
