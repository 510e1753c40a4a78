"""Source lines: read once, bounded, never on a loop's thread, and never from what is not a file."""

import asyncio
import linecache
import os
import time

import pytest

from loopwatch._source import PIECE_BYTES, SourceCache
from loopwatch._stall import Frame


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "app.py"
    path.write_text("# -*- coding: latin-1 -*-\n    total = price * 3  # caf\u00e9\n", encoding="latin-1")
    return path


def test_line(source):
    cache = SourceCache()
    assert cache.line(str(source), 2) == "total = price * 3  # caf\u00e9"
    assert cache.line(str(source), 0) == cache.line(str(source), 3) == ""


def test_read_once(source):
    cache = SourceCache()
    assert cache.line(str(source), 1).startswith("#")
    source.unlink()
    assert cache.line(str(source), 2).startswith("total")


def test_absence_is_remembered(tmp_path):
    cache, path = SourceCache(), tmp_path / "later.py"
    assert cache.line(str(path), 1) == ""
    path.write_text("x = 1")
    assert cache.line(str(path), 1) == ""


def test_never_read_where_a_loop_runs(source):
    cache = SourceCache()

    async def look():
        return cache.line(str(source), 2)

    assert asyncio.run(look()) == ""
    assert cache.line(str(source), 2) != "", "and that is not remembered"
    assert asyncio.run(look()) != "", "what is known may be used"


def test_bounded_number_and_size(tmp_path):
    cache = SourceCache(files_max=2, bytes_max=100)
    paths = [tmp_path / f"{n}.py" for n in range(3)]
    for path in paths:
        path.write_text("x = 1\n")
        assert cache.line(str(path), 1) == "x = 1"
        path.unlink()
    assert [cache.line(str(path), 1) for path in paths[1:]] == ["x = 1"] * 2
    assert cache.line(str(paths[0]), 1) == ""
    big = tmp_path / "big.py"
    big.write_text("x = 1\n" * 100)
    assert cache.line(str(big), 1) == ""


def test_a_file_of_many_pieces(tmp_path):
    """Lines as Python counts them: a form feed ends none."""
    path = tmp_path / "large.py"
    lines = [f"x{n} = '{'é' * (n % 90)}'" for n in range(9000)] + [
        "y = 1\x0c",
        "z = 2  # the last, without an end",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert path.stat().st_size > 5 * PIECE_BYTES
    cache = SourceCache()
    assert [cache.line(str(path), n) for n in range(len(lines) + 2)] == ["", *map(str.strip, lines), ""]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_ends_of_lines(tmp_path, end):
    path = tmp_path / "other.py"
    path.write_bytes(end.join(f"x{n} = {n}" for n in range(20_000)).encode())
    cache = SourceCache()
    assert [cache.line(str(path), n) for n in (1, 2, 19_999, 20_000, 20_001)] == [
        "x0 = 0", "x1 = 1", "x19998 = 19998", "x19999 = 19999", "",
    ]  # fmt: skip


def test_a_mark_of_the_byte_order_is_no_part_of_the_line(tmp_path):
    path = tmp_path / "marked.py"
    path.write_text("x = 1\ny = 2\n", encoding="utf-8-sig")
    cache = SourceCache()
    assert [cache.line(str(path), n) for n in (1, 2)] == ["x = 1", "y = 2"]


def test_pipes_and_devices_are_not_read(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    began = time.monotonic()
    assert SourceCache().line(str(fifo), 1) == ""
    assert SourceCache().line("/dev/zero", 1) == ""
    assert time.monotonic() - began < 5, "it would wait for a writer for ever"


@pytest.mark.parametrize("content", [b"\xff\xfe broken", b"# coding: no-such\n", b"x\0y"])
def test_broken_files(tmp_path, content):
    path = tmp_path / "broken.py"
    path.write_bytes(content)
    assert isinstance(SourceCache().line(str(path), 1), str)


def test_names_that_are_no_paths():
    assert SourceCache().line("a\0b", 1) == ""
    assert SourceCache().line("", 1) == ""


def test_notebook_cells_come_from_linecache(monkeypatch):
    monkeypatch.setitem(linecache.cache, "<ipython-input-1>", (6, None, ["x = 1\n"], "<ipython-input-1>"))
    assert SourceCache().line("<ipython-input-1>", 1) == "x = 1"
    assert SourceCache().line("<nothing typed>", 1) == ""


def test_expression(tmp_path):
    path = tmp_path / "app.py"
    path.write_text("é = load(name) + time.sleep(0.4)  # not gc.collect()\ntotal = f(\n    1)\n")
    cache = SourceCache()

    def expression(*place):
        return cache.expression(Frame(str(path), place[0], "main", *place[1:]))

    assert expression(1, 1, 18, 33) == "time.sleep(0.4)", "columns count bytes"
    assert expression(1) == "é = load(name) + time.sleep(0.4)  # not gc.collect()"
    assert expression(2, 3, 8, 6) == "total = f("
    assert expression(9) == expression(0) == ""
