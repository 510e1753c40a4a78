"""The self-test of loopwatch doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from programs import environment

from loopwatch import _core
from loopwatch._stall import Verdict
from loopwatch.cli import _selftest
from loopwatch.cli._stalls import PREPARE
from loopwatch.cli.doctor import run as doctor

ALL = {"schedstat": True, "syscall": True, "stat": True, "throttled": True, "gil": None, "gc": True}


def test_each_verdict_has_a_stall() -> None:
    assert PREPARE.keys() == _selftest._NEEDS.keys() == {str(verdict) for verdict in Verdict} - {"unknown"}


def test_every_verdict_that_can_be_told_comes_out_right() -> None:
    """All of them, on a machine that may have other work: three tries each, without the time that had no CPU."""
    line = [sys.executable, "-m", "loopwatch", "doctor", "--json"]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=200, check=False)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (0, True), done
    assert {outcome["verdict"] for outcome in told["self_test"]} == PREPARE.keys()
    assert done.stderr.count("\n") == len(PREPARE), "progress"


def test_it_looks_beside_a_loop_of_its_own() -> None:
    """What the watchdog reads is known, and nothing reads as broken."""
    line = [sys.executable, "-m", "loopwatch", "doctor", "--quick", "--json"]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    told = json.loads(done.stdout)
    checks = {check["name"]: check["detail"] for check in told["checks"]}
    assert checks["watches"].startswith("1 active: ")
    assert "evidence" not in checks
    assert told["facts"]["watchdog"] is True
    assert told["facts"]["read_backend"] != "none" or _core.PORTABLE


@pytest.mark.parametrize("variables", [{"LOOPWATCH": "0"}, {"LOOPWATCH_THRESHOLD": "x"}])
def test_where_no_loop_can_be_watched_it_says_why(variables: dict[str, str]) -> None:
    line = [sys.executable, "-m", "loopwatch", "doctor", "--quick"]
    done = subprocess.run(
        line, env=environment(variables), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("no") or "\nno  defaults" in done.stdout
    assert "known only while a loop is watched" in done.stdout
    assert "read_backend" not in done.stdout, "what was not looked at"


class Fake:
    """A child process's answer."""

    def __init__(self, **answer: Any) -> None:
        self.answer = {"breakdown": {}, "evidence": ALL} | answer

    def __call__(self, _: str) -> dict[str, Any]:
        return {"breakdown": dict(self.answer["breakdown"]), "evidence": self.answer["evidence"]}


@pytest.mark.parametrize(
    ("kind", "answer", "result", "says"),
    [
        ("lock", {"breakdown": {"lock": 0.3}}, "ok", "300 ms"),
        ("lock", {"breakdown": {"lock": 0.1, "not-scheduled": 0.9}}, "ok", "beside 900 ms without a CPU"),
        ("lock", {"breakdown": {"python": 0.3}}, "wrong", "came out as python"),
        ("lock", {}, "wrong", "was not seen"),
        ("lock", {"evidence": ALL | {"syscall": False}}, "missing", "/syscall cannot be read"),
        ("suspended", {"evidence": ALL | {"schedstat": False}}, "missing", "schedstat"),
        ("not-scheduled", {"breakdown": {"not-scheduled": 0.2}}, "ok", "200 ms"),
        ("gil", {"evidence": ALL | {"gil": "because"}}, "missing", "cannot be told here"),
        ("gc", {"evidence": ALL | {"gc": False}}, "missing", "not timed"),
    ],
)
def test_outcomes(
    monkeypatch: pytest.MonkeyPatch, kind: str, answer: dict[str, Any], result: str, says: str
) -> None:
    monkeypatch.setattr(_selftest, "_stall", Fake(**answer))
    told = _selftest._try(kind)
    assert told[0] == result
    assert says in told[1]


@pytest.mark.parametrize(("result", "status"), [("ok", 0), ("missing", 0), ("wrong", 1)])
def test_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], result: Any, status: int
) -> None:
    from argparse import Namespace

    monkeypatch.setattr(_selftest, "run", lambda: iter([_selftest.Outcome("gc", result, "so", 0.1)]))
    assert doctor(Namespace(json=False, quick=False)) == status
    assert capsys.readouterr().out.splitlines()[-1].split()[1:] == ["gc", "so"]
