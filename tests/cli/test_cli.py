"""The command line itself: `python -m loopwatch`, the console script, usage errors, a reader that leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import loopwatch
from loopwatch.cli import COMMANDS, main

WAYS = [[sys.executable, "-m", "loopwatch"], [str(Path(sys.executable).parent / "loopwatch")]]


@pytest.mark.parametrize("command", WAYS, ids=["module", "script"])
def test_doctor(command: list[str]) -> None:
    done = subprocess.run(
        [*command, "doctor", "--quick"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "capture" in done.stdout
    assert done.stderr == ""


def test_each_command_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        assert f"loopwatch {name}" in capsys.readouterr().out.split("examples:")[1]


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["doctor", "--nonsense"], ["attach", "1", "--threshold=0.1ms"]]
)
def test_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: loopwatch" in capsys.readouterr().err


def test_without_a_command_it_is_helped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert all(f"\n    {name} " in error for name in COMMANDS)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"loopwatch {loopwatch.__version__}\n"


def test_a_reader_that_leaves() -> None:
    program = f"{WAYS[0][0]} -m loopwatch doctor --quick | true"
    done = subprocess.run(["/bin/sh", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
