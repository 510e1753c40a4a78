"""CPython's own tests of asyncio and of selectors, with every new event loop watched and without, compared.

    python asyncio_suite.py [--all] [--retries N] [MODULE...]

A MODULE is a part of test.test_asyncio ("test_events", or "events"), or "test_selectors". Without any:
those that SELECTIONS names for this interpreter; --all: all of them. Each module runs in two processes of
its own, one in which nothing is watched and one in which loopwatch is installed on each selector loop as it
is made. Loops that a test builds around mocks cannot be installed on: they are counted and left alone.

A test that fails watched and passes unwatched is run again, N times in both ways. It counts against
loopwatch where it fails again watched and never fails unwatched; else it is called flaky, and named. Exit
status 1: something counted, a run died, or nothing could be watched.

The classes that are patched for it (BaseEventLoop.__init__ and the like) are patched by this program, in
its own child processes; loopwatch itself puts attributes on instances only.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import importlib
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

PACKAGE: Final = "test.test_asyncio"
SELECTORS: Final = "test_selectors"
THRESHOLD: Final = 0.05  # short, so that stalls are captured and reported while tests run

QUICK: Final = (
    "test_base_events", "test_buffered_proto", "test_context", "test_free_threading", "test_futures",
    "test_futures2", "test_graph", "test_locks", "test_pep492", "test_protocols", "test_queues",
    "test_runners", "test_selector_events", "test_sendfile", "test_server", "test_sock_lowlevel",
    "test_streams", "test_taskgroups", "test_threads", "test_timeouts", "test_tools", "test_transports",
    "test_unix_events", "test_waitfor", SELECTORS,
)  # fmt: skip
"""Each takes less than 10 s on a quiet machine."""

THOROUGH: Final = (
    *QUICK, "test_eager_task_factory", "test_events", "test_sslproto", "test_subprocess", "test_tasks",
)  # fmt: skip
SELECTIONS: Final = {(3, 14): THOROUGH}
"""By Python version; the others run QUICK. Thorough is the one in which asyncio was changed most. --all adds test_ssl,
test_staggered and what a new version may bring. A quiet machine takes one to two minutes each way for THOROUGH, half a
minute for QUICK; one with eight times the load, 4 minutes."""

FOREIGN: Final = ("test_proactor_events", "test_windows_events", "test_windows_utils")


# --- one module, in this process ----------------------------------------------------------------------------


@dataclass
class Run:
    """What came of one module in one process."""

    outcomes: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    unraisable: list[str] = field(default_factory=list)
    loops: int = 0
    watched: int = 0
    turns: int = 0
    stalls: int = 0
    seconds: float = 0.0
    died: str = ""

    @property
    def failed(self) -> set[str]:
        return {name for name, outcome in self.outcomes.items() if outcome in ("failed", "error")}


class Recorder(unittest.TestResult):
    """Keeps one outcome for each test, the worst of its subtests."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def note(self, test: unittest.TestCase, outcome: str, detail: str = "") -> None:
        name = test.id().removeprefix(f"{PACKAGE}.").removeprefix("test.")
        if self.run.outcomes.get(name) not in ("failed", "error"):
            self.run.outcomes[name] = outcome
            if detail:
                self.run.details[name] = detail

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.note(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.note(test, "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.note(test, "error", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: ARG002, N802
        if err is not None:
            self.addError(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: ARG002, N802
        self.note(test, "skipped")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: ARG002, N802
        self.note(test, "passed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.note(test, "failed", "unexpected success")


def after_init(cls: type, then: Callable[[Any], None]) -> None:
    """Have `then` called with each new instance, at the end of this class's own __init__."""
    original = cls.__init__  # type: ignore[misc]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        then(self)

    cls.__init__ = __init__  # type: ignore[misc]


class LoopWatcher:
    """Installs loopwatch on every selector loop of this process, as it is made."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.watches: list[Any] = []

    def start(self) -> None:
        from asyncio.selector_events import BaseSelectorEventLoop

        import loopwatch

        def install(loop: asyncio.AbstractEventLoop) -> None:
            try:
                watch = loopwatch.install(loop, threshold=THRESHOLD, log=False, dump_to=False, pulse="turn")
            except ValueError:
                return  # its selector is a mock
            self.watches.append(watch)
            self.run.watched += 1

        after_init(BaseSelectorEventLoop, install)

    def finish(self) -> None:
        for watch in self.watches:
            counters = watch.stats()
            self.run.turns += int(counters["turns"])
            self.run.stalls += int(counters["stalls"])


def count_loops(run: Run) -> None:
    def count(_: object) -> None:
        run.loops += 1

    after_init(asyncio.BaseEventLoop, count)


class SelectorWatcher:
    """EpollSelectorTestCase then makes selectors whose own `select` is ours."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.slots: list[Any] = []

    def start(self) -> None:
        from loopwatch import _core

        def hooked() -> selectors.EpollSelector:
            selector = selectors.EpollSelector()
            slot = _core.Slot(
                loop=self,  # type: ignore[arg-type]  # a slot only refers to it
                threshold_ns=int(THRESHOLD * 1e9),
                hang_after_ns=None,
                capture="off",
                pulse="turn",
                dump_fd=-1,
                dump_names=True,
            )
            slot.start()
            self.slots.append(slot)
            selector.select = _core.TurnSelect(slot, selector)  # type: ignore[method-assign]
            self.run.watched += 1
            return selector

        module = importlib.import_module(f"test.{SELECTORS}")
        module.EpollSelectorTestCase.SELECTOR = staticmethod(hooked)

    def finish(self) -> None:
        from loopwatch import _core

        for slot in self.slots:
            self.run.turns += slot.counters()["turns"]
            slot.retire(10**9)
        _core.stop_watchdog(10**9)


def suite_of(module: str, tests: Iterable[str]) -> unittest.TestSuite:
    prefix = "test." if module == SELECTORS else f"{PACKAGE}."
    importlib.import_module(prefix + module)
    everything = f"{SELECTORS}.EpollSelectorTestCase" if module == SELECTORS else module
    return unittest.TestLoader().loadTestsFromNames([prefix + test for test in tests or [everything]])


def run_here(module: str, tests: list[str], watched: bool) -> Run:
    run = Run()
    sys.unraisablehook = lambda problem: run.unraisable.append(f"{problem.object!r}: {problem.exc_value!r}")
    suite = suite_of(module, tests)
    count_loops(run)
    watcher = SelectorWatcher(run) if module == SELECTORS else LoopWatcher(run)
    if watched:
        watcher.start()
    began = time.monotonic()
    suite.run(Recorder(run))
    run.seconds = time.monotonic() - began
    if watched:
        watcher.finish()
    return run


def child(args: argparse.Namespace) -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(args.minutes * 60 - 5, exit=True)
    module, *tests = args.modules
    run = run_here(module, tests, args.child == "watched")
    Path(args.result).write_text(json.dumps(asdict(run)), encoding="utf-8")
    faulthandler.cancel_dump_traceback_later()


# --- all of them, and the comparison ------------------------------------------------------------------------


def run_apart(module: str, tests: Iterable[str], *, watched: bool, minutes: float) -> Run:
    """One module, or some of its tests, in a process of its own."""
    way = "watched" if watched else "plain"
    search_path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path[1:] if entry)
    with tempfile.TemporaryDirectory() as scratch:
        result, output = Path(scratch) / "result", Path(scratch) / "output"
        options = ["--child", way, "--result", str(result), "--minutes", str(minutes)]
        with output.open("wb") as sink:
            try:
                status = subprocess.run(
                    [sys.executable, __file__, *options, module, *tests],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    timeout=minutes * 60,
                    cwd=scratch,
                    env=os.environ | {"PYTHONPATH": search_path},
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                status = -1
        if result.exists():
            run = Run(**json.loads(result.read_text(encoding="utf-8")))
            run.died = "" if status == 0 else f"at exit, status {status}"
        else:
            run = Run(died=f"status {status}")
        if run.died:
            run.details["its output"] = output.read_text(encoding="utf-8", errors="replace")[-3000:]
    return run


@dataclass
class Comparison:
    module: str
    plain: Run
    watched: Run
    ours: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)

    def judge(self, retries: int, minutes: float) -> None:
        """Fails watched only: run it again, both ways."""
        vanished = self.plain.outcomes.keys() - self.watched.outcomes.keys()
        if not self.watched.died:
            self.ours += [f"{name} (did not run)" for name in sorted(vanished)]
        self.ours += [f"unraisable: {text}" for text in self.watched.unraisable if "loopwatch" in text]
        for name in sorted(self.watched.failed - self.plain.failed):
            again = [self.once(name, watched=True, minutes=minutes) for _ in range(retries)]
            without = [self.once(name, watched=False, minutes=minutes) for _ in range(retries)]
            (self.ours if any(again) and not any(without) else self.flaky).append(name)
        if self.watched.died:
            self.ours.append(f"the watched run died: {self.watched.died}")

    def once(self, name: str, *, watched: bool, minutes: float) -> bool:
        run = run_apart(self.module, [name], watched=watched, minutes=minutes)
        return bool(run.died or run.failed)

    def row(self) -> str:
        plain, watched = self.plain, self.watched
        skipped = sum(outcome == "skipped" for outcome in watched.outcomes.values())
        verdict = "DIFFERS" if self.ours else "DIED" if plain.died else "flaky" if self.flaky else "same"
        return (
            f"{self.module:24}{len(watched.outcomes):7}{skipped:9}{len(plain.failed):8}{len(watched.failed):9}"
            f"{watched.watched:9}/{watched.loops:<6}{watched.turns:9}{watched.stalls:8}"
            f"{plain.seconds:8.1f}{watched.seconds:9.1f}  {verdict}"
        )


HEAD: Final = (
    f"{'':24}{'':7}{'':9}{'failures':>17}{'loops':>11}{'':6}{'':9}{'':7}{'seconds':>18}\n"
    f"{'module':24}{'tests':>7}{'skipped':>9}{'plain':>8}{'watched':>9}{'watched':>9}{'/all':7}{'turns':>9}{'stalls':>7}"
    f"{'plain':>9}{'watched':>9}"
)


def available() -> list[str]:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return []
    here = Path(next(iter(spec.submodule_search_locations)))
    return [path.stem for path in sorted(here.glob("test_*.py")) if path.stem not in FOREIGN] + [SELECTORS]


def chosen(args: argparse.Namespace) -> list[str]:
    there = available()
    if not there:
        sys.exit(f"{sys.executable} has no {PACKAGE}: its test package is not installed")
    if args.modules:
        wanted = [name if name.startswith("test_") else f"test_{name}" for name in args.modules]
        if unknown := set(wanted) - set(there):
            sys.exit(f"{PACKAGE} has no {', '.join(sorted(unknown))}; it has {', '.join(there)}")
        return wanted
    selection = () if args.all else SELECTIONS.get(sys.version_info[:2], QUICK)
    return [name for name in there if not selection or name in selection]


def compare(module: str, args: argparse.Namespace) -> Comparison:
    """Both ways at once: what fails for want of a CPU is run again."""
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(run_apart, module, [], watched=way, minutes=args.minutes) for way in (False, True)
        ]
    comparison = Comparison(module, *(run.result() for run in runs))
    comparison.judge(args.retries, args.minutes)
    return comparison


def report(comparisons: list[Comparison]) -> int:
    for comparison in comparisons:
        for name in comparison.ours + comparison.flaky:
            kind = "fails watched only" if name in comparison.ours else "flaky"
            print(f"\n{comparison.module}: {name}: {kind}")
            print(comparison.watched.details.get(name, ""))
        if comparison.watched.died or comparison.plain.died:
            for run in (comparison.plain, comparison.watched):
                print(run.died, run.details.get("its output", ""))
    tests = sum(len(each.watched.outcomes) for each in comparisons)
    both = [name for each in comparisons for name in each.watched.failed & each.plain.failed]
    ours = sum(len(each.ours) for each in comparisons)
    flaky = sum(len(each.flaky) for each in comparisons)
    watched = sum(each.watched.watched for each in comparisons)
    loops = sum(each.watched.loops for each in comparisons)
    print(
        f"\n{tests} tests, {watched} loops and selectors watched of {loops} loops made: "
        f"{ours} differ, {flaky} flaky, {len(both)} fail both ways"
    )
    if both:
        print("both ways:", *sorted(both))
    return 0 if watched and not ours and not any(each.plain.died for each in comparisons) else 1


def main() -> int:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--all", action="store_true", help="every module, whatever the interpreter")
    parser.add_argument("--retries", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=4, help="the most that one run of a module may take")
    parser.add_argument("--child", choices=("plain", "watched"), help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return 0
    print(f"CPython {sys.version}\n\n{HEAD}", flush=True)
    comparisons = []
    for module in chosen(args):
        comparisons.append(compare(module, args))
        print(comparisons[-1].row(), flush=True)
    return report(comparisons)


if __name__ == "__main__":
    sys.exit(main())
