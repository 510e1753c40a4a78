"""loopwatch report: a summary, a file in each format, broken lines, and what is wrong said in one line."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from reported import lines, loop_line, varied

from loopwatch import report
from loopwatch.cli import main
from loopwatch.cli.report import Progress


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "web.jsonl"
    path.write_bytes(lines(varied(5)) + b"nonsense\n" + loop_line())
    return path


def test_a_summary_to_standard_output(file):
    command = [sys.executable, "-m", "loopwatch", "report", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("5 stalls, ")
    assert f"{file}:6: not JSON" in done.stdout
    assert done.stderr == ""


def test_several_processes_in_one_report(file, tmp_path, capsys):
    other = tmp_path / "worker.jsonl"
    other.write_bytes(lines(varied(5), pid=2))
    assert main(["report", str(file), str(other)]) == 0
    assert "10 stalls, " in (said := capsys.readouterr().out)
    assert "2 loops of 2 processes" in said


def test_the_full_text_of_all(tmp_path, capsys):
    path = tmp_path / "web.jsonl"
    path.write_bytes(lines(varied(25)))
    assert main(["report", "--full", str(path)]) == 0
    said = capsys.readouterr().out
    made = report.load(path)
    ranked = sorted(made.stalls, key=lambda stall: -stall.duration)
    places = [said.index(stall.format()) for stall in ranked[:20]]
    assert places == sorted(places)
    assert ranked[20].format() not in said
    assert said.startswith("25 stalls, ")
    assert said.endswith("And 5 stalls more; --stall N shows one.\n")


def test_the_full_text_of_one(file, capsys):
    ranked = sorted(report.load(file).stalls, key=lambda stall: -stall.duration)
    assert main(["report", "--stall", "2", str(file)]) == 0
    assert capsys.readouterr().out == f"Stall 2 of 5, loop of MainThread (1):\n{ranked[1].format()}\n"
    assert main(["report", "--stall", "6", str(file)]) == 2
    assert capsys.readouterr().err == "loopwatch report: --stall 6: there is no such one, of 5 stalls\n"


@pytest.mark.parametrize("wrong", [["--stall", "0"], ["--stall", "x"], ["--full", "-o", "a.jsonl"]])
def test_what_cannot_be_asked_for(file, wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["report", *wrong, str(file)])
    assert ended.value.code == 2
    assert "usage: loopwatch report" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["<!DOCTYPE html>\n<p>\n", "import os\n", '{"a": 1}\n', "[]\n", "\0\0"])
@pytest.mark.parametrize("output", [[], ["-o", "out.jsonl"]])
def test_another_file_is_refused(file, tmp_path, monkeypatch, text, output, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.html").write_text(text)
    assert main(["report", str(file), "a.html", *output]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "loopwatch report: a.html is not a file of JSON lines of loopwatch\n")
    assert not (tmp_path / "out.jsonl").exists()


def test_an_empty_file_is_one(tmp_path, capsys):
    (tmp_path / "web.jsonl").touch()
    assert main(["report", str(tmp_path / "web.jsonl")]) == 0
    assert capsys.readouterr().out.startswith("0 stalls")


@pytest.mark.parametrize(
    ("name", "why"), [("missing/out.jsonl", "No such file"), ("directory.jsonl", "Is a directory")]
)
def test_a_place_that_cannot_be_written(file, tmp_path, monkeypatch, name, why, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory.jsonl").mkdir()
    assert main(["report", "no-such.jsonl", "-o", name]) == 2
    assert capsys.readouterr().err.startswith(f"loopwatch report: {name} cannot be written: {why}")
    with pytest.raises(OSError, match=f"{name} cannot be written: {why}"):
        report.write(name, file)


@pytest.mark.parametrize("name", ["out.speedscope.json", "out.jsonl"])
def test_a_file(file, tmp_path, name, capsys):
    out = tmp_path / name
    assert main(["report", str(file), "-o", str(out)]) == 0
    json.loads(out.read_text(encoding="utf-8").splitlines()[0])
    said = capsys.readouterr()
    assert said.out == f"{out}: 5 stalls; 1 line left out\n"
    assert said.err == f"{file}:6: not JSON\n"


def test_a_page(file, tmp_path):
    pytest.importorskip("bokeh")
    out = tmp_path / "out.html"
    assert main(["report", str(file), "--output", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_without_bokeh_it_says_what_to_install(file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["report", str(file), "-o", str(tmp_path / "out.html")]) == 1
    assert capsys.readouterr().err == (
        "loopwatch report: an HTML report needs BokehJS: pip install 'loopwatch[html]'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["missing.jsonl"], 1, "No such file"),
        (["missing.jsonl", "-o", "out.pdf"], 2, "must end in .html"),
        (["/"], 1, "Is a directory"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, status, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == status
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("loopwatch report: ")
    assert said in written.err
    assert written.err.count("\n") == 1


def test_progress_says_nothing_in_the_first_second(capsys, monkeypatch):
    progress = Progress()
    progress("reading x", 0.1)
    assert capsys.readouterr().err == ""
    later = time.monotonic() + 1.5
    monkeypatch.setattr(time, "monotonic", lambda: later)
    progress("reading x", 0.5)
    progress("reading x", 0.6)  # too soon after the one before
    assert capsys.readouterr().err == "reading x: 50%\n"
