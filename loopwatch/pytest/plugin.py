"""What happens when: watches every loop of the session, and asks at the end of each phase of a test whose stalls
have come."""

from __future__ import annotations

import collections
import logging
import threading
import warnings
from collections.abc import Generator, Sequence
from typing import Any, Final, TypeVar

import pytest

from loopwatch._cost import cost_of
from loopwatch._everywhere import Layer, deliver, unwatch_all, watch_all
from loopwatch._hang_log import HangLog
from loopwatch._options import Options
from loopwatch._registry import DELIVERY_SECONDS, registry
from loopwatch._stall import Stall
from loopwatch._terminal import Terminal
from loopwatch._text import printable, seconds
from loopwatch._watch import Watch
from loopwatch.pytest.offence import Offence, by_place
from loopwatch.pytest.options import Limit, limit_of
from loopwatch.pytest.places import Place, Places, When
from loopwatch.pytest.report import Summary
from loopwatch.pytest.traceback import representation

T = TypeVar("T")

ORIGIN: Final = "pytest"
_OUTPUT: Final = "loopwatch"  # in xdist's workeroutput
_OUTSIDE: Final = "outside a test"
_PATIENCE_SECONDS: Final = 20.0
"""For stalls that have ended to be delivered: on a machine that has far too much to do, which fails no test."""


class LoopBlocked(AssertionError):  # noqa: N818
    """A test blocked an event loop for longer than it may."""

    def __init__(self, offences: Sequence[Offence]) -> None:
        super().__init__(_headlines(offences))
        self.offences = offences


class LoopwatchWarning(pytest.PytestWarning):
    """The same with --loopwatch-mode=warn."""

    def __init__(self, message: str, offences: Sequence[Offence] = ()) -> None:
        super().__init__(message)
        self.offences = offences


def _headlines(offences: Sequence[Offence]) -> str:
    return "; ".join(offence.headline for offence in offences)


class Plugin:
    def __init__(self, config: pytest.Config, threshold: float, mode: str, hang_after: float | None) -> None:
        self._config, self._mode, self._hang_after = config, mode, hang_after
        self._limit = self._default = Limit(threshold)
        self._places = Places()
        self._summary = Summary(config.rootpath)
        self._seen: collections.deque[Stall] = collections.deque()
        self._judged: dict[int, Place] = {}  # stalls that went on when their phase ended, by id
        self._layer: Layer | None = None
        self._terminal: Terminal | None = None
        self._patience = _PATIENCE_SECONDS

    # --- the session ---

    def pytest_report_header(self) -> str:
        return f"loopwatch: {self._mode} above {seconds(self._default.threshold)}"

    def pytest_sessionstart(self) -> None:
        if self._config.pluginmanager.hasplugin("dsession"):  # xdist: the workers run the tests
            return
        options: Options = {
            "threshold": self._default.threshold,
            "on_stall": self._take,
            "profile_hz": 0,
            **self._hang_options(),
        }
        try:
            self._layer = watch_all(options, origin=ORIGIN, on_watch=self._on_watch, brief=True)
        except RuntimeError as problem:
            raise pytest.UsageError(f"--loopwatch: {problem}") from None

    def _hang_options(self) -> Options:
        if self._hang_after is not None:
            self._terminal = Terminal.of_this_process()
        if self._terminal is None:
            return {"log": False, "dump_to": False, "hang_after": None}
        return {
            "log": HangLog(self._tell_hang),
            "log_every": 0,
            "dump_to": self._terminal.descriptor,
            "hang_after": self._hang_after,
        }

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._deliver()
        self._collect()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = self._summary.to_plain()

    def pytest_unconfigure(self) -> None:
        if self._layer is not None:
            self._layer = None
            unwatch_all(ORIGIN)
        if self._terminal is not None:
            self._terminal.close()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if (plain := getattr(node, "workeroutput", {}).get(_OUTPUT)) is not None:
            self._summary.merge(plain)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._summary:
            terminalreporter.section("loopwatch: where event loops were blocked")
        for line in self._summary.lines():
            terminalreporter.line(line)

    def _on_watch(self, watch: Watch) -> None:
        if watch.threshold != self._watched_from:
            watch.threshold = self._watched_from

    @property
    def _watched_from(self) -> float:
        """What is shared by tests is held to the session's threshold, whatever the marker of the test says in which
        it happens: which of the two counts turns out when it has happened."""
        return min(self._limit.threshold, self._default.threshold)

    # --- the phases of a test ---

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            limit_of(item, self._default.threshold)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, T, T]:
        self._set_limit(limit_of(item, self._default.threshold))
        try:
            return (yield)
        finally:
            self._set_limit(self._default)

    def _set_limit(self, limit: Limit) -> None:
        before = self._watched_from
        self._limit = limit
        if self._watched_from != before and self._layer is not None:
            for watch in list(self._layer.watches):
                watch.threshold = self._watched_from

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, T, T]:
        return (yield from self._phase(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, T, T]:
        return (yield from self._phase(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, T, T]:
        return (yield from self._phase(item, "teardown"))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, T, T]:
        self._places.fixture_begins(fixturedef.argname, fixturedef.scope)
        try:
            return (yield)
        finally:
            self._places.fixture_ends()

    @pytest.hookimpl(trylast=True)
    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        self._places.fixture_is_down(fixturedef.argname, fixturedef.scope)

    def _phase(self, item: pytest.Item, when: When) -> Generator[None, T, T]:
        self._places.enter(item.nodeid, when)
        try:
            result = yield
        except BaseException:
            self._end(item, when, failed=True)
            raise
        self._end(item, when, failed=False)
        return result

    def _end(self, item: pytest.Item, when: When, *, failed: bool) -> None:
        try:
            delivered = self._deliver()
            offences = by_place(self._collect())
        finally:
            self._places.leave()
        if self._mode == "report":
            return
        problems: list[LoopBlocked | LoopwatchWarning] = []
        if self._mode == "warn":
            problems += _warn_of(item, offences)
        elif offences:
            problems.append(LoopBlocked(offences))
        if not delivered:
            message = f"{item.nodeid}: stalls of its {when} were not delivered in time, and fail nothing"
            problems += _warn(LoopwatchWarning(message), *_line_of(item))
        for problem in problems:
            if failed or problem is not problems[0]:
                item.add_report_section(when, "loopwatch", _text_of(problem))
        if problems and not failed:
            raise problems[0]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        problem = call.excinfo.value if call.excinfo is not None else None
        if isinstance(problem, LoopBlocked | LoopwatchWarning) and report.outcome == "failed":
            name = type(problem).__name__
            style = self._config.getoption("tbstyle", "auto")
            here = self._config.invocation_params.dir
            report.longrepr = (
                representation(problem.offences, name, style, here)
                if problem.offences
                else f"{name}: {problem}"
            )
        return report

    # --- stalls ---

    def _deliver(self) -> bool:
        """Wait for what has ended. False: it took too long."""
        delivered = deliver(self._patience)
        if not delivered:
            self._patience = DELIVERY_SECONDS  # what holds it up holds up the next phases too
        return delivered

    def _collect(self) -> list[Offence]:
        """Takes all that has come, and what goes on in other threads where a phase ends."""
        stalls = [self._seen.popleft() for _ in range(len(self._seen))]
        if self._places.phase is not None:
            stalls += self._going_on()
        return [offence for stall in stalls if (offence := self._judge(stall)) is not None]

    def _going_on(self) -> list[Stall]:
        here = threading.get_native_id()
        stalls = [watch.current for watch in registry().watches() if watch.automatic and watch.slot.running]
        return [stall for stall in stalls if stall is not None and stall.native_thread_id != here]

    def _take(self, stall: Stall) -> None:
        """On loopwatch's own thread."""
        if not stall.ongoing:
            self._seen.append(stall)

    def _judge(self, stall: Stall) -> Offence | None:
        known = self._judged.pop(stall.id, None)
        place = known or self._places.where(stall.started_at.timestamp())
        limit = self._limit_at(place)
        if not limit.enabled or stall.duration < limit.threshold:
            return None
        cost = cost_of(stall)
        if not stall.ongoing:
            self._summary.add(stall, cost, self._test(place))
        if place is None or cost.seconds < limit.threshold:
            return None
        if stall.ongoing:
            self._judged[stall.id] = place
        if known is not None:
            return None
        return Offence(stall, cost, limit.threshold, place)

    def _limit_at(self, place: Place | None) -> Limit:
        return self._default if place is None or place.shared else self._limit

    def _test(self, place: Place | None) -> str:
        return place.nodeid if place is not None else _OUTSIDE

    def _tell_hang(self, record: logging.LogRecord) -> None:
        """On loopwatch's own thread. What is mostly the machine's doing is told at a later age, if at all."""
        stall: Stall | None = getattr(record, "stall", None)
        if stall is None:
            return
        place = self._judged.get(stall.id) or self._places.where(stall.started_at.timestamp())
        limit = self._limit_at(place)
        if self._terminal is None or self._hang_after is None or not limit.enabled:
            return
        if cost_of(stall).seconds >= max(limit.threshold, self._hang_after / 2):
            where = f", {place}" if place is not None and str(place) else ""
            self._terminal.write(
                f"\nloopwatch: {printable(self._test(place))} hangs{where}\n{record.stack_info}\n\n"
            )


def _text_of(problem: LoopBlocked | LoopwatchWarning) -> str:
    texts = ["\n".join([offence.headline, *offence.details]) for offence in problem.offences]
    return "\n".join(texts) or str(problem)


def _warn_of(item: pytest.Item, offences: Sequence[Offence]) -> list[LoopwatchWarning]:
    """Those that -W error makes errors, as one."""
    errors: list[LoopwatchWarning] = []
    for offence in offences:
        frame = offence.cost.culprit
        said = ", ".join(filter(None, [offence.headline, offence.repeats]))
        warning = LoopwatchWarning(f"{item.nodeid}: {said}", [offence])
        errors += _warn(warning, *((frame.filename, frame.lineno) if frame is not None else _line_of(item)))
    if len(errors) <= 1:
        return errors
    together = [offence for error in errors for offence in error.offences]
    return [LoopwatchWarning(f"{item.nodeid}: {_headlines(together)}", together)]


def _warn(warning: LoopwatchWarning, filename: str, lineno: int) -> list[LoopwatchWarning]:
    """What was raised."""
    try:
        warnings.warn_explicit(warning, None, filename, lineno)
    except LoopwatchWarning as error:
        return [error]
    return []


def _line_of(item: pytest.Item) -> tuple[str, int]:
    return str(item.path), (item.location[1] or 0) + 1
