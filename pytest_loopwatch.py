"""The pytest plugin as pytest finds it: options and the marker. The rest is in loopwatch.pytest, imported only when
somebody asks for it: installing loopwatch must not change what a pytest run imports."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Final, TypeVar

import pytest

T = TypeVar("T")

MODES: Final = ("fail", "warn", "report")


def parse_time(name: str, value: object) -> float:
    """Seconds. UsageError that names the option, the value, and what is accepted."""
    from loopwatch.cli._durations import THRESHOLDS, is_threshold, seconds  # only where it is on

    found = -1.0
    with contextlib.suppress(ValueError, OverflowError):
        if isinstance(value, str):
            found = seconds(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = float(value)
    if not is_threshold(found):
        raise pytest.UsageError(f"{name} must be {THRESHOLDS}, not {value!r}")
    return found


def parse_hang_after(name: str, value: object) -> float | None:
    """Seconds; None for "never"."""
    from loopwatch._options import SECONDS_MAX
    from loopwatch.cli._durations import seconds

    if value == "never":
        return None
    found = 0.0
    with contextlib.suppress(ValueError, OverflowError):
        found = seconds(value) if isinstance(value, str) else found
    if not 0 < found <= SECONDS_MAX:
        raise pytest.UsageError(f"{name} must be a length of time, as 5s or 1m, or never, not {value!r}")
    return found


def parse_mode(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in MODES:
        raise pytest.UsageError(f"{name} must be one of {', '.join(MODES)}, not {value!r}")
    return value


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("loopwatch", "loopwatch: what blocks the event loops that tests run")
    group.addoption(
        "--loopwatch",
        action="store_true",
        help="Watch every event loop that a test runs; off without it, and without the options below (ini: "
        "loopwatch = true).",
    )
    group.addoption(
        "--loopwatch-threshold",
        metavar="TIME",
        help="How long a loop may be blocked: 50ms, 0.05s, 0.05 (ini: loopwatch_threshold; default 100ms).",
    )
    group.addoption(
        "--loopwatch-mode",
        metavar="MODE",
        help="What becomes of a test that blocks longer: fail, warn, or report: only list it at the end "
        "(ini: loopwatch_mode; default fail).",
    )
    group.addoption(
        "--loopwatch-hang-after",
        metavar="TIME",
        help="A loop blocked for this long is told on the terminal while it goes on, and again at each tenfold age: "
        "5s, 1m, never (ini: loopwatch_hang_after; default 5s).",
    )
    parser.addini("loopwatch", "Watch every event loop that a test runs.", type="bool", default=False)
    parser.addini("loopwatch_threshold", "How long a loop may be blocked: 50ms, 0.05s.", default="100ms")
    parser.addini("loopwatch_mode", "What becomes of a test that blocks longer.", default="fail")
    parser.addini("loopwatch_hang_after", "How long until a hang is told: 5s, 1m, never.", default="5s")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "loopwatch(threshold=None, enabled=True): how long this test may block an event loop (seconds, or "
        "'50ms'), or that it is not watched.",
    )
    if _asked(config):
        with _as_it_is():
            from loopwatch.pytest.plugin import Plugin

        threshold = _chosen(config, "threshold", parse_time)
        mode = _chosen(config, "mode", parse_mode)
        hang_after = _chosen(config, "hang_after", parse_hang_after)
        config.pluginmanager.register(Plugin(config, threshold, mode, hang_after), "loopwatch-watching")


class _Finder(MetaPathFinder):
    """Finds loopwatch's modules as Python does."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "loopwatch":
            return None
        return PathFinder.find_spec(fullname, path, target)


@contextlib.contextmanager
def _as_it_is() -> Iterator[None]:
    """pytest rewrites the asserts in all modules of a distribution that has a plugin. In those of loopwatch none is a
    test's, and to import them takes twice as long that way; where the rewritten ones cannot be kept, seconds."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _asked(config: pytest.Config) -> bool:
    """An option that says how to watch asks as well; in the ini file, only the switch does."""
    given = (getattr(config.option, f"loopwatch_{name}") for name in ("threshold", "mode", "hang_after"))
    return bool(
        config.option.loopwatch or config.getini("loopwatch") or any(value is not None for value in given)
    )


def _chosen(config: pytest.Config, name: str, parse: Callable[[str, object], T]) -> T:
    given = getattr(config.option, f"loopwatch_{name}")
    if given is not None:
        return parse(f"--loopwatch-{name.replace('_', '-')}", given)
    return parse(f"ini option loopwatch_{name}", config.getini(f"loopwatch_{name}"))
