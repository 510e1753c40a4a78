"""What --loopwatch costs a test suite: python benchmarks/pytest_plugin.py [--short] [--suite DIRECTORY].

The suite is janus's own (threads beside loops, many short tests), from its source distribution, which pip downloads. It
is run as it is and with --loopwatch --loopwatch-mode=report, in pairs, each in a process of its own: wall time, and
user and system time of all threads. Byte code is cached in both, as that of installed packages is. The outcomes
of the tests must be the same. Reach: 1.05.

What a process pays once, most of it for importing loopwatch, is given apart: the same for one test that does nothing.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from common import begin, interval, parser, spread, verdict

PAIRS, SHORT_PAIRS = 9, 2
REACH = 1.05
PACKAGE = "janus==2.0.0"
LEFT_OUT = "tests/test_benchmarks.py"  # needs pytest-codspeed
PYTEST = ["-m", "pytest", "-q", "-rA", "-o", "addopts=", "-p", "no:randomly", "-p", "no:cacheprovider"]
WATCHED = ["--loopwatch", "--loopwatch-mode=report"]
OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+)", re.MULTILINE)


def downloaded(directory: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
    only_source = ["--no-binary", PACKAGE.partition("==")[0]]
    subprocess.run([*pip, *only_source, "-d", str(directory), PACKAGE], check=True)
    archive = next(directory.glob("*.tar.gz"))
    with tarfile.open(archive) as file:
        file.extractall(directory, filter="data")
    return directory / archive.name.removesuffix(".tar.gz")


class Run(NamedTuple):
    wall: float
    cpu: float
    outcomes: set[tuple[str, str]]
    """What became of each test."""


def run(suite: Path, *options: str) -> Run:
    before = os.times()
    command = [sys.executable, *PYTEST, "--ignore", LEFT_OUT, *options, "tests"]
    environment = os.environ | {"PYTHONPATH": str(suite), "PYTHONPYCACHEPREFIX": str(suite / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, check=False)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    wall = after.elapsed - before.elapsed
    outcomes = set(OUTCOME.findall(done.stdout))
    if done.returncode not in (0, 1) or not outcomes:
        sys.exit(done.stdout + done.stderr)
    return Run(wall, cpu, outcomes)


def pairs(suite: Path, count: int) -> list[tuple[Run, Run]]:
    """(as it is, watched), after one run of each that compiles."""
    run(suite), run(suite, *WATCHED)
    runs = []
    for i in range(count):
        if i % 2:
            watched, plain = run(suite, *WATCHED), run(suite)
        else:
            plain, watched = run(suite), run(suite, *WATCHED)
        runs.append((plain, watched))
    return runs


def one_test(directory: Path) -> Path:
    tests = directory / "one" / "tests"
    tests.mkdir(parents=True)
    source = "import asyncio\n\n\ndef test_one():\n    asyncio.run(asyncio.sleep(0))\n"
    (tests / "test_one.py").write_text(source, encoding="utf-8")
    return tests.parent


def main(suite: Path, directory: Path, count: int) -> None:
    runs = pairs(suite, count)
    number = len(runs[0][0].outcomes)
    plain_wall, plain_cpu = (
        spread([plain.wall for plain, _ in runs]),
        spread([plain.cpu for plain, _ in runs]),
    )
    print(f"{suite.name}: {number} tests, {plain_wall.text(2)} s, {plain_cpu.text(2)} s of CPU as they are")
    for name in ("wall", "cpu"):
        ratios = [getattr(watched, name) / getattr(plain, name) for plain, watched in runs]
        low, high = interval(ratios)
        figure = spread(ratios)
        print(
            f"{name} time with {' '.join(WATCHED)}: {figure.text()}, 95 % interval {low:.3f} to {high:.3f}, "
            f"{count} pairs; reach {REACH}: {verdict(figure.median <= REACH)}"
        )
    extra = spread([(watched.cpu - plain.cpu) * 1e3 for plain, watched in runs])
    once = spread([(watched.cpu - plain.cpu) * 1e3 for plain, watched in pairs(one_test(directory), count)])
    print(f"CPU time more: {extra.text(0)} ms; for one test that does nothing {once.text(0)} ms")
    differing = {outcome for plain, watched in runs for outcome in plain.outcomes ^ watched.outcomes}
    print(f"tests with another outcome: {sorted(differing) or 'none'}")
    if differing:
        sys.exit(1)


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--suite", type=Path, help="an unpacked source distribution with tests/")
    given = begin(arguments)
    with tempfile.TemporaryDirectory() as name:
        suite = given.suite.absolute() if given.suite is not None else downloaded(Path(name))
        main(suite, Path(name), SHORT_PAIRS if given.short else PAIRS)
