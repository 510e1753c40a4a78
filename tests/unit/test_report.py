"""What a report is made of: every source once, what is broken counted and named, one site for one fingerprint."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import stat
from datetime import timedelta

import pytest
from records import sample, stall
from reported import BEGAN, HOSTILE, loop_line, varied
from reported import lines as lines_of

from loopwatch import report
from loopwatch._process import process_started
from loopwatch._stall import Frame, Stall, Verdict
from loopwatch.jsonl import SCHEMA
from loopwatch.report import lines, model
from loopwatch.report.flame import NODES_MAX, tree
from loopwatch.report.html import as_data
from loopwatch.report.load import LINE_MAX
from loopwatch.report.payload import payload
from loopwatch.report.text import summary


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "web.jsonl"
    path.write_bytes(lines_of(varied(20)) + loop_line())
    return path


# --- sources ---


def test_a_file_gives_its_stalls_and_seconds(file):
    made = report.load(file)
    assert made.stalls == sorted(varied(20), key=lambda each: each.started_at)
    (lane,) = made.lanes
    assert (lane.name, lane.busy, lane.watched) == ("MainThread (1)", 15.0, 60.0)
    assert len(list(lane.cells())) == 60
    assert made.gc == {0: {"count": 9, "seconds": 0.02, "worst": 0.004}}
    assert made.problem_count == 0


def test_the_same_file_twice_changes_nothing_but_the_order_of_reading(file):
    once, twice = report.load(file), report.load(str(file), [file])
    assert twice.stalls == once.stalls
    assert [list(lane.cells()) for lane in twice.lanes] == [list(lane.cells()) for lane in once.lanes]
    assert twice.gc == once.gc


def test_a_stall_and_a_record_are_sources_too(file):
    records = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert report.load(records).stalls == report.load(file).stalls
    (lane,) = report.load(stall()).lanes
    assert lane.process.pid == os.getpid()


@pytest.mark.parametrize("source", [7, None, [7]])
def test_what_is_no_source(source):
    with pytest.raises(TypeError, match="watches, stalls, paths"):
        report.load(source)


def test_of_one_stall_the_final_report_counts():
    final = stall(duration=3.0, breakdown={Verdict.LOCK: 3.0})
    earlier, later = (
        dataclasses.replace(final, duration=seconds, ongoing=True, breakdown={Verdict.LOCK: seconds})
        for seconds in (1.0, 2.0)
    )
    for order in ([earlier, later, final], [final, later, earlier], [later, final]):
        assert report.load(order).stalls == [final]
    assert report.load(later, earlier).stalls == [later]


def test_processes_of_several_files_are_apart_and_their_sites_together(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(lines_of([stall()], pid=1))
    (tmp_path / "a.jsonl.1").write_bytes(
        lines_of([stall(id=8)], pid=1)
    )  # renamed by JsonLines: the same process
    made = report.load(*sorted(tmp_path.iterdir()))
    assert (len(made.lanes), made.processes) == (2, 2)
    (site,) = made.sites()
    assert (site.count, site.processes, site.fingerprint) == (3, 2, "abc")
    assert site.seconds == pytest.approx(0.9)


def test_watches_that_ran_one_after_the_other_are_one_lane(tmp_path):
    path = tmp_path / "two.jsonl"
    path.write_bytes(loop_line(watch=1) + loop_line(watch=2) + loop_line(watch=1, thread="other"))
    main, other = report.load(path).lanes
    assert (main.watched, other.watched) == (120.0, 60.0)
    bounds, counts = report.load(path).histogram()
    assert len(counts) == len(bounds) + 1
    assert counts[1] == 15


# --- what is broken ---

BROKEN = {
    b"{": "not JSON",
    b"\xff\xfe": "not JSON",
    b"[" * 100_000: "not JSON",
    b"7": "not a line of loopwatch",
    b'{"level": "info"}': "not a line of loopwatch",
    b'{"kind":"stall","v":2,"pid":1}': "version 2",
    b'{"kind":"stall","v":1,"pid":true}': "no process id",
    b'{"kind":"stall","v":1,"pid":1}': "not a stall",
    b'{"kind":"loop","v":1,"pid":1}': "not a loop's line",
    b"x" * (LINE_MAX + 1): "longer than",
}


@pytest.mark.parametrize("line", BROKEN, ids=BROKEN.values())
def test_a_broken_line_is_counted_and_named(tmp_path, line):
    path = tmp_path / "broken.jsonl"
    path.write_bytes(lines_of([stall()]) + line + b"\n\n" + loop_line())
    made = report.load(path)
    assert made.problem_count == 1
    assert made.problems[0].startswith(f"{path}:2: ")
    assert BROKEN[line] in made.problems[0]
    assert (len(made.stalls), made.lanes[0].watched) == (1, 60.0)


def test_kinds_that_are_not_known_yet_are_no_problem():
    assert report.load({"v": 1, "kind": "later", "pid": 1}).problem_count == 0


def wrecked(value, chance):
    """The same with one part replaced by something of another type, or one more."""
    if isinstance(value, dict) and chance.random() < 0.1:
        return {**value, "more": chance.choice([float("-inf"), {}, HOSTILE])}
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        return {**value, key: wrecked(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        index = chance.randrange(len(value))
        return [*value[:index], wrecked(value[index], chance), *value[index + 1 :]]
    return chance.choice([None, "text", -1, 1e308, float("nan"), [], {}, True, [[]], HOSTILE])


def test_a_line_with_anything_in_it_makes_a_report_or_is_left_out(tmp_path):
    chance = random.Random(5)
    whole = [json.loads(line) for line in (lines_of(varied(3)) + loop_line(5)).splitlines()]
    path = tmp_path / "wrecked.jsonl"
    left_out = 0
    for _ in range(400):
        path.write_text(json.dumps(wrecked(chance.choice(whole), chance)))
        made = report.load(path, *whole[1:])
        left_out += made.problem_count
        as_data(payload(made))
        for suffix in (".jsonl", ".speedscope.json"):
            json.loads(report.render(made, suffix).splitlines()[0])
        summary(made)
    assert 100 < left_out < 390  # most are broken; what is not looked at may be anything


def test_the_names_of_problems_are_bounded():
    made = report.load([{}] * (model.PROBLEMS_NAMED + 5))
    assert (made.problem_count, len(made.problems)) == (model.PROBLEMS_NAMED + 5, model.PROBLEMS_NAMED)
    assert f"{made.problem_count} lines left out" in summary(made)


# --- writing ---


def test_json_lines_can_be_read_back_and_are_valid(file, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    copy = tmp_path / "copy.jsonl"
    made = report.write(copy, file)
    for line in copy.read_text(encoding="utf-8").splitlines():
        check.validate(json.loads(line))
    again = report.load(copy)
    assert again.stalls == made.stalls
    assert [list(lane.cells()) for lane in again.lanes] == [list(lane.cells()) for lane in made.lanes]
    assert lines.text(report.Report()) == ""


def test_a_file_is_replaced_whole_and_is_for_its_user_alone(file, tmp_path, monkeypatch):
    path = tmp_path / "out.jsonl"
    path.write_text("older")
    report.write(path, file)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    monkeypatch.setattr(report.Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        report.write(path, stall())
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.jsonl", "web.jsonl"]


def test_what_a_killed_run_left_beside_it_is_in_nobodys_way(file, tmp_path):
    (tmp_path / f".out.jsonl.{os.getpid()}").touch()
    report.write(tmp_path / "out.jsonl", file)
    long = tmp_path / ("x" * 240 + ".jsonl")
    report.write(long, file)
    assert long.stat().st_size


@pytest.mark.parametrize("name", ["report.txt", "report", "report.json", "html"])
def test_other_endings_are_refused_before_anything_is_read(tmp_path, name):
    with pytest.raises(ValueError, match=r"must end in \.html, \.jsonl or \.speedscope\.json"):
        report.write(tmp_path / name, tmp_path / "missing.jsonl")


def test_what_a_path_will_be_can_be_asked_before(monkeypatch):
    assert report.check("a/B.JSONL") == ".jsonl"
    assert report.check("x.speedscope.json") == ".speedscope.json"
    with pytest.raises(ValueError, match="must end in"):
        report.check("x.json")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"loopwatch\[html\]"):
        report.check("x.html")


def test_progress_of_a_long_file(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_bytes(loop_line(3600) * 40)
    told: list[tuple[str, float]] = []
    report.load(path, progress=lambda *what: told.append(what))
    assert [what for what, _ in told] == [f"reading {path}"] * len(told)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1


# --- parts ---


def test_the_tree_adds_up_and_is_bounded():
    stalls = varied(300)
    root = tree(stalls)
    assert root.seconds == pytest.approx(sum(each.duration for each in stalls))

    def check(node):
        assert sum(child.seconds for child in node.children.values()) <= node.seconds + 1e-9
        return 1 + sum(map(check, node.children.values()))

    assert check(root) <= NODES_MAX
    assert all(child.frame.qualname != "BaseEventLoop._run_once" for child in root.children.values())


def test_a_stall_without_samples_is_in_the_tree_by_its_stack():
    root = tree([stall()])
    assert root.seconds == 0.3
    (main,) = root.children.values()
    assert (main.frame.qualname, main.verdict) == ("main", Verdict.UNKNOWN)


def test_the_summary_names_causes_and_sites(file):
    said = summary(report.load(file))
    assert said.startswith("20 stalls, ")
    assert "in 1 loop of 1 process." in said
    assert "watched 60.00 s, busy 25.0%" in said
    for verdict in {each.verdict for each in varied(20)}:
        assert str(verdict) in said


def test_the_summary_of_nothing():
    assert summary(report.load()) == "0 stalls, 0.0 ms in all, in 0 loops of 0 processes."


def test_where_the_loop_stood_that_had_no_cpu():
    spin = Frame("/srv/app.py", 28, "spin")
    without = stall(culprit=None, breakdown={Verdict.NOT_SCHEDULED: 0.3}, samples=(sample(0.3, spin),))
    assert "not-scheduled, nobody to blame, mostly while in spin (app.py:28)" in summary(report.load(without))


def test_names_from_elsewhere_are_printable_in_the_summary():
    hostile = stall(culprit=Frame(f"/srv/{HOSTILE}.py", 3, HOSTILE), thread="\x1b[2J")
    assert all(line.isprintable() for line in summary(report.load(hostile)).splitlines())


def test_speedscope_is_what_its_schema_says(file):
    data = json.loads(report.render(report.load(file), ".speedscope.json"))
    assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = data["shared"]["frames"]
    for frame in frames:
        assert frame.keys() <= {"name", "file", "line", "col"}
        assert isinstance(frame["name"], str)
    (profile,) = data["profiles"]
    assert profile.keys() == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
    assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "seconds", 0)
    assert len(profile["samples"]) == len(profile["weights"]) == 20 * 8
    assert all(0 <= index < len(frames) for stack in profile["samples"] for index in stack)
    assert profile["endValue"] == pytest.approx(sum(each.duration for each in varied(20)))
    assert frames[profile["samples"][0][0]]["name"] != "BaseEventLoop._run_once"
    assert data["activeProfileIndex"] == 0


def test_from_dict_still_reads_what_a_report_wrote(file, tmp_path):
    report.write(tmp_path / "copy.jsonl", file)
    first = json.loads((tmp_path / "copy.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert Stall.from_dict(first["stall"]) in varied(20)


# --- processes with one number ---


def test_processes_that_had_one_number_after_each_other_are_apart(tmp_path):
    """In containers the first process is always number 1, and its first watch always watch 1."""
    path = tmp_path / "app.jsonl"
    gc = [{"generation": 0, "count": 4, "seconds": 0.5, "worst": 0.4}]
    path.write_bytes(
        lines_of([stall()], started="2026-11-30T08:00:00+00:00")
        + loop_line(started="2026-11-30T08:00:00+00:00")
        + lines_of([stall()], started="2026-11-30T09:30:00+00:00")
        + loop_line(started="2026-11-30T09:30:00+00:00", gc=gc)
    )
    made = report.load(path)
    assert (len(made.stalls), len(made.lanes), made.processes) == (2, 2, 2)
    assert made.gc[0] == {"count": 13, "seconds": 0.52, "worst": 0.4}
    assert sum(made.histogram()[1]) == 2 * sum(json.loads(loop_line())["histogram"]["counts"])
    copy = tmp_path / "copy.jsonl"
    report.write(copy, path)
    again = report.load(copy)
    assert [lane.process for lane in again.lanes] == [lane.process for lane in made.lanes]
    assert again.gc == made.gc


def test_the_youngest_line_of_a_loop_counts_whichever_is_read_last(tmp_path):
    lag = json.loads(loop_line())["lag"]
    young, old = (
        loop_line(at=BEGAN + timedelta(seconds=seconds), lag=lag | {"busy": busy}, gc=[])
        for seconds, busy in ((60, 30.0), (0, 1.0))
    )
    for number, order in enumerate(([young, old], [old, young])):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(b"".join(order))
        (lane,) = report.load(path).lanes
        assert lane.busy == 30.0
        assert len(list(lane.cells())) == 60


def test_a_stall_is_one_also_where_the_clock_was_set_while_it_lasted(tmp_path):
    final = stall(duration=3.0, breakdown={Verdict.LOCK: 3.0})
    shifted = dataclasses.replace(
        final,
        duration=1.0,
        breakdown={Verdict.LOCK: 1.0},
        ongoing=True,
        started_at=final.started_at - timedelta(hours=1),
    )
    path = tmp_path / "app.jsonl"
    path.write_bytes(lines_of([shifted, final]))
    assert report.load(path).stalls == [final]


def test_lines_of_an_earlier_version_say_nothing_of_when_their_process_started(tmp_path):
    path, copy = tmp_path / "old.jsonl", tmp_path / "copy.jsonl"
    path.write_bytes(lines_of([stall()], started="") + loop_line(started=""))
    report.write(copy, path)
    assert all("started" not in json.loads(line) for line in copy.read_bytes().splitlines())
    made = report.load(copy)
    assert (len(made.stalls), len(made.lanes)) == (1, 1)


@pytest.mark.parametrize("change", [{"at": "yesterday"}, {"at": None}, {"at": "2026-11-30"}, {"started": 7}])
def test_a_line_whose_dates_are_none_is_left_out(change):
    made = report.load(json.loads(loop_line()) | change)
    assert (made.problem_count, made.lanes) == (1, [])


def test_a_forked_child_is_another_process():
    mine = process_started()
    assert process_started() == mine
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, process_started().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told > mine
