"""What happens when: watches every loop of the session, and asks at the end of each phase of a test whose stalls
have come."""

from __future__ import annotations

import collections
import threading
import warnings
from collections.abc import Generator
from typing import Any, Final, TypeVar

import pytest

from loopwatch._everywhere import Layer, deliver, unwatch_all, watch_all
from loopwatch._options import Options
from loopwatch._registry import DELIVERY_SECONDS, registry
from loopwatch._stall import Stall
from loopwatch._text import seconds
from loopwatch._watch import Watch
from loopwatch.pytest.cost import cost_of
from loopwatch.pytest.options import Limit, limit_of
from loopwatch.pytest.places import Place, Places, When
from loopwatch.pytest.report import Summary
from loopwatch.pytest.traceback import Offence, representation

T = TypeVar("T")

ORIGIN: Final = "pytest"
_OUTPUT: Final = "loopwatch"  # in xdist's workeroutput
_OUTSIDE: Final = "outside a test"
_PATIENCE_SECONDS: Final = 20.0
"""For stalls that have ended to be delivered: on a machine that has far too much to do, which fails no test."""


class LoopBlocked(AssertionError):  # noqa: N818
    """A test blocked an event loop for longer than it may."""

    def __init__(self, offences: list[Offence]) -> None:
        super().__init__("; ".join(offence.headline for offence in offences))
        self.offences = offences


class LoopwatchWarning(pytest.PytestWarning):
    """The same with --loopwatch-mode=warn."""


class Plugin:
    def __init__(self, config: pytest.Config, threshold: float, mode: str) -> None:
        self._config, self._mode = config, mode
        self._limit = self._default = Limit(threshold)
        self._places = Places()
        self._summary = Summary(config.rootpath)
        self._seen: collections.deque[Stall] = collections.deque()
        self._judged: dict[int, Place] = {}  # stalls that went on when their phase ended, by id
        self._layer: Layer | None = None
        self._patience = _PATIENCE_SECONDS

    # --- the session ---

    def pytest_report_header(self) -> str:
        return f"loopwatch: {self._mode} above {seconds(self._default.threshold)}"

    def pytest_sessionstart(self) -> None:
        if self._config.pluginmanager.hasplugin("dsession"):  # xdist: the workers run the tests
            return
        options: Options = {
            "threshold": self._default.threshold,
            "on_stall": self._seen.append,
            "log": False,
            "dump_to": False,
            "hang_after": None,
            "profile_hz": 0,
        }
        try:
            self._layer = watch_all(options, origin=ORIGIN, on_watch=self._on_watch)
        except RuntimeError as problem:
            raise pytest.UsageError(f"--loopwatch: {problem}") from None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._collect()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = self._summary.to_plain()

    def pytest_unconfigure(self) -> None:
        if self._layer is not None:
            self._layer = None
            unwatch_all(ORIGIN)

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
            offences = self._collect()
        finally:
            self._places.leave()
        if not offences or self._mode == "report":
            return
        if self._mode == "warn":
            for offence in offences:
                _warn(offence)
        elif failed:
            text = "\n".join("\n".join([offence.headline, *offence.details]) for offence in offences)
            item.add_report_section(when, "loopwatch", text)
        else:
            raise LoopBlocked(offences)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        problem = call.excinfo.value if call.excinfo is not None else None
        if isinstance(problem, LoopBlocked) and report.outcome == "failed":
            style = self._config.getoption("tbstyle", "auto")
            report.longrepr = representation(problem.offences, style, self._config.invocation_params.dir)
        return report

    # --- stalls ---

    def _collect(self) -> list[Offence]:
        """Takes all that has come, and what goes on in other threads where a phase ends."""
        if not deliver(self._patience):
            self._patience = DELIVERY_SECONDS  # what holds it up holds up the next phases too
            self._complain()
        stalls = [self._seen.popleft() for _ in range(len(self._seen))]
        if self._places.phase is not None:
            stalls += self._going_on()
        return [offence for stall in stalls if (offence := self._judge(stall)) is not None]

    def _complain(self) -> None:
        place = self._places.phase
        if place is not None and self._mode != "report":
            message = (
                f"{place.nodeid}: stalls of its {place.when} were not delivered in time, and fail nothing"
            )
            warnings.warn(message, LoopwatchWarning, stacklevel=2)

    def _going_on(self) -> list[Stall]:
        here = threading.get_native_id()
        stalls = [watch.current for watch in registry().watches() if watch.automatic and watch.slot.running]
        return [stall for stall in stalls if stall is not None and stall.native_thread_id != here]

    def _judge(self, stall: Stall) -> Offence | None:
        known = self._judged.pop(stall.id, None)
        place = known or self._places.where(stall.started_at.timestamp())
        limit = self._default if place is None or place.shared else self._limit
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

    def _test(self, place: Place | None) -> str:
        return place.nodeid if place is not None else _OUTSIDE


def _warn(offence: Offence) -> None:
    frame = offence.cost.culprit
    message = f"{offence.place.nodeid}: {offence.headline}"
    if frame is None:
        warnings.warn(message, LoopwatchWarning, stacklevel=2)
    else:
        warnings.warn_explicit(message, LoopwatchWarning, frame.filename, frame.lineno)
