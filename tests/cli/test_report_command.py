"""loopwatch report: a summary, a file in each format, broken lines, and what is wrong said in one line."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from reported import lines, loop_line, varied

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
