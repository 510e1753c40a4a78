"""JSON lines: each one valid by the schema that is shipped, whole whoever else writes, in a file that may be moved."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakewatch import FakeExecutor, FakeWatch, route
from records import APP, sample, stall

from loopwatch import _reading, jsonl
from loopwatch._linefile import LineFile
from loopwatch._outlets import outlets
from loopwatch._stall import Evidence, Frame, Stall, ThreadInfo, Verdict
from loopwatch.jsonl import JsonLines

FRAMES = (Frame(APP, 10, "main", 10, 4, 20), Frame(APP, 20, "load"))


def rich_stall(**changes):
    made = {
        "samples": (sample(0.2, *FRAMES), sample(0.1, FRAMES[0], offset=0.2)),
        "sites": ((FRAMES[1], 0.3),),
        "holder": ThreadInfo("worker", 5, FRAMES),
        "steps": {"tls": 0.05},
        "labels": {"route": "GET /\udcff"},
        "evidence": Evidence(cpu_time=0.1, gc_generation=2, syscall="poll"),
        "source": {(APP, 20): "load(everything)"},
        "hint": "Do less.",
    }
    return stall(**made | changes)


SATURATION = SimpleNamespace(
    executor=None,
    waited=0.7,
    state=FakeExecutor("default").state(),
    workers=(ThreadInfo("pool_0", 9, FRAMES),),
)


@pytest.fixture
def watches(monkeypatch):
    found = [FakeWatch()]
    monkeypatch.setattr(_reading.Reader.__init__, "__defaults__", (lambda: found,))
    return found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "loopwatch.jsonl"


@pytest.fixture
def written(path, watches):  # noqa: ARG001
    with JsonLines(path) as lines:
        outlets.tell(rich_stall())
        lines.saturation(SATURATION)
        lines.tick()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def validator():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(jsonl.SCHEMA.read_text(encoding="utf-8"))
    kind = jsonschema.Draft202012Validator
    kind.check_schema(schema)
    return kind(schema)


# --- what is in a line ---


def test_lines_are_valid_and_say_what_they_are(written):
    check = validator()
    for line in written:
        check.validate(line)
        assert (line["v"], line["pid"]) == (1, os.getpid())
    assert [line["kind"] for line in written] == ["stall", "saturation", "metrics"]


def test_the_schema_refuses_what_is_wrong(written):
    check = validator()
    stall_line, saturation_line, metrics_line = written
    for wrong in (
        stall_line | {"v": 2},
        stall_line | {"kind": "metrics"},
        stall_line | {"stall": stall_line["stall"] | {"verdict": "bored"}},
        stall_line | {"stall": {k: v for k, v in stall_line["stall"].items() if k != "duration"}},
        saturation_line | {"waited": "long"},
        metrics_line | {"metrics": [{"name": "turns", "labels": {}}]},
    ):
        assert not check.is_valid(wrong), wrong
    assert check.is_valid(stall_line | {"new": 1}), "fields may be added"


def test_the_schema_names_every_field_of_a_stall_and_every_verdict():
    schema = json.loads(jsonl.SCHEMA.read_text(encoding="utf-8"))["$defs"]
    assert set(schema["stall"]["properties"]) == set(rich_stall().to_dict())
    assert set(schema["stall"]["properties"]["evidence"]["properties"]) == {
        field.name for field in dataclasses.fields(Evidence)
    }
    assert schema["verdict"]["enum"] == [str(verdict) for verdict in Verdict]
    assert set(schema["executor_state"]["properties"]) == set(jsonl._STATE)


def test_a_stall_comes_back(written):
    data = written[0]["stall"]
    assert Stall.from_dict(data) == rich_stall()


def test_metrics_are_those_of_the_table(written):
    rows = {(row["name"], *row["labels"].values()): row for row in written[2]["metrics"]}
    watch = FakeWatch()
    assert rows["turns", "MainThread"]["value"] == watch.lag.turns
    assert sum(rows["turn", "MainThread"]["counts"]) == watch.lag.turns
    assert len(rows["turn", "MainThread"]["counts"]) == len(rows["turn", "MainThread"]["bounds"]) + 1


def test_infinity_is_null(path, watches):
    boundless = route()
    boundless.ceiling = math.inf
    watches[0].routes = {"GET /": boundless}
    with JsonLines(path) as lines:
        lines.tick()
    line = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    validator().validate(line)
    assert [row["value"] for row in line["metrics"] if row["name"] == "route.ceiling"] == [None]


def test_source_lines_can_be_left_out(path):
    with JsonLines(path, source=False):
        outlets.tell(rich_stall())
    assert "load(everything)" not in path.read_text(encoding="utf-8")


def test_a_line_is_of_limited_size(path):
    deep = tuple(Frame(f"{APP}{number}", number, "f" * 200) for number in range(900))
    stacks = tuple(sample(0.01, *deep[number:]) for number in range(300))
    with JsonLines(path):
        outlets.tell(rich_stall(samples=stacks))
    line = path.read_bytes()
    assert len(line) <= jsonl.LINE_MAX
    validator().validate(json.loads(line))
    assert json.loads(line)["stall"]["samples"] == []


def test_a_text_file_is_written_and_left_open():
    text = io.StringIO()
    lines = JsonLines(text)
    outlets.tell(rich_stall())
    lines.close()
    outlets.tell(rich_stall())
    assert len(text.getvalue().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"to": 7}, TypeError),
        ({"every": 0}, ValueError),
        ({"every": "1"}, TypeError),
        ({"max_bytes": 0}, ValueError),
        ({"max_bytes": 1.5}, TypeError),
        ({"to": "/nowhere/at/all.jsonl"}, OSError),
    ],
)
def test_bad_input(path, options, error):
    before = outlets._open
    with pytest.raises(error):
        JsonLines(**{"to": path} | options)
    assert outlets._open == before


# --- the file ---


def test_the_file_is_the_users_alone_and_of_no_child(path):
    file = LineFile(path)
    descriptor = file._descriptor
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not os.get_inheritable(descriptor)
        assert os.get_blocking(descriptor)
    finally:
        file.close()
    with pytest.raises(ValueError, match="is closed"):
        file.write(b"{}\n")


def test_a_symbolic_link_is_refused(path, tmp_path):
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        LineFile(path)


def test_a_file_that_was_moved_or_removed_is_opened_again(path):
    file = LineFile(path)
    file.write(b"1\n")
    moved = path.rename(path.with_suffix(".old"))
    file.write(b"2\n")
    path.unlink()
    file.write(b"3\n")
    file.close()
    assert (moved.read_bytes(), path.read_bytes()) == (b"1\n", b"3\n")


def test_where_it_cannot_be_opened_again_the_old_one_serves(path):
    file = LineFile(path)
    moved = path.rename(path.with_suffix(".old"))
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        file.write(b"1\n")
    path.rmdir()
    file.write(b"2\n")
    file.close()
    assert (moved.read_bytes(), path.read_bytes()) == (b"", b"2\n")


@pytest.mark.parametrize("closes", [False, True])
def test_a_descriptor_that_the_program_closed_is_not_touched_again(path, tmp_path, closes):
    file = LineFile(path)
    file.write(b"1\n")
    number = file._descriptor
    os.close(number)  # as daemons close all
    theirs = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    assert theirs == number
    try:
        if closes:
            file.close()
        else:
            file.write(b"2\n")
            file.close()
        assert os.read(theirs, 9) == b""
    finally:
        os.close(theirs)
    assert path.read_bytes() == (b"1\n" if closes else b"1\n2\n")


def test_a_descriptor_that_the_program_closed_is_opened_again(path):
    file = LineFile(path)
    os.close(file._descriptor)
    file.write(b"1\n")
    os.close(file._descriptor)
    file.close()
    assert path.read_bytes() == b"1\n"


def test_a_file_that_would_grow_too_large_is_renamed(path):
    file = LineFile(path, max_bytes=20)
    for number in range(7):
        file.write(b"line %d\n" % number)  # 7 bytes
    file.close()
    assert path.read_bytes() == b"line 6\n"
    assert path.with_suffix(".jsonl.1").read_bytes() == b"line 4\nline 5\n"
    assert sorted(path.parent.iterdir()) == [path, path.with_suffix(".jsonl.1")]


def test_a_line_that_was_cut_off_does_not_spoil_the_next(path, monkeypatch):
    file = LineFile(path)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:4]))
    with pytest.raises(OSError, match="4 of 9 bytes"):
        file.write(b"too long\n")
    monkeypatch.undo()
    file.write(b"whole\n")
    file.write(b"again\n")
    file.close()
    assert path.read_bytes() == b"too \nwhole\nagain\n"


WRITER = """
import sys
from loopwatch._linefile import LineFile
file = LineFile(sys.argv[1], max_bytes=int(sys.argv[3]) or None)
for number in range(300):
    file.write(b"%s %d %s\\n" % (sys.argv[2].encode(), number, b"x" * 9000))
"""


@pytest.mark.parametrize("max_bytes", [0, 3_000_000])
def test_lines_of_several_processes_stay_whole(path, max_bytes):
    """With a limit: both rename, and neither what the other has just begun. 6 MB in all, so once or twice."""
    from programs import environment

    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, name, str(max_bytes)], env=environment())
        for name in ("a", "b")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    files = [file for file in (Path(f"{path}.1"), path) if file.exists()]
    rows = [line.split() for file in files for line in file.read_bytes().splitlines()]
    assert all(len(row) == 3 and len(row[2]) == 9000 for row in rows)
    if not max_bytes:
        assert len(rows) == 600
    for name in (b"a", b"b"):
        numbers = [int(row[1]) for row in rows if row[0] == name]
        assert numbers == sorted(numbers)
        assert numbers[-1] == 299
