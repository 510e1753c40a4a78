"""The options of install, run and Runner: checked in one place, with the environment's defaults."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar, cast

from loopwatch import _env
from loopwatch._dump import DumpFile
from loopwatch._stall import Stall

Pulse = Literal["auto", "turn", "uv", "heartbeat"]
Capture = Literal["auto", "raw", "gil", "off"]
StallCallback = Callable[[Stall], object]
Logger = logging.Logger | logging.LoggerAdapter[Any]
Log = bool | Logger
DumpTo = int | str | bytes | os.PathLike[str] | os.PathLike[bytes] | None
Status = bool | str | bytes | os.PathLike[str] | os.PathLike[bytes]
Ignore = str | Callable[[Stall], object]
Redact = Callable[[str], str]

PULSES: Final = ("auto", "turn", "uv", "heartbeat")
CAPTURES: Final = ("auto", "raw", "gil", "off")
THRESHOLD_MIN: Final = 0.001
THRESHOLD_MAX: Final = 3600.0
EVERY_MIN: Final = 0.1
SECONDS_MAX: Final = 1e9
PROFILE_HZ_MIN: Final = 0.01
PROFILE_HZ_MAX: Final = 1000.0

T = TypeVar("T")


class Options(TypedDict, total=False):
    """The keywords of install(), for Runner and run."""

    threshold: float
    on_stall: StallCallback | None
    log: Log
    hang_after: float | None
    pulse: Pulse
    capture: Capture
    dump_to: DumpTo
    own: Iterable[str | os.PathLike[str]]
    ignore: Iterable[Ignore]
    redact: Redact | None
    log_every: float
    profile_hz: float
    status: Status


class Default:
    """Stands in a signature for a value that was not given: the environment may say otherwise."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:  # what reads signatures compares defaults
        return self.value == (other.value if isinstance(other, Default) else other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


def default(value: T) -> T:
    return cast(T, Default(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options that were checked."""

    threshold: float = 0.1
    on_stall: StallCallback | None = None
    log: Logger | None = None
    hang_after: float | None = 1.0
    pulse: Pulse = "auto"
    capture: Capture = "auto"
    dump_to: DumpTo = None
    own: tuple[str, ...] = ()
    ignore: tuple[Ignore, ...] = ()
    redact: Redact | None = None
    log_every: float = 60.0
    profile_hz: float = 20.0
    status: Status = False
    brief: bool = False
    """No option of install(): for a tool that watches thousands of loops for a moment each. Their default executors
    are left alone, and nobody waits until the watchdog has duplicated `dump_to`, which the tool keeps open."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Option → the environment variable that its value is from."""
    dump: DumpFile = field(default_factory=DumpFile, repr=False, compare=False)
    """Of `dump_to`, as it was when it was given."""

    @contextlib.contextmanager
    def naming(self, option: str) -> Iterator[None]:
        """What is wrong with the option's value turns out in here; the error names the variable."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as problem:
            if (variable := self.variables.get(option)) is None:
                raise
            raise ValueError(f"environment variable {variable}: {problem}") from problem


def _wrong(error: type[Exception], name: str, value: object, accepted: str) -> Exception:
    return error(f"{name} must be {accepted}, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_range(name: str, value: Any, least: float, most: float, accepted: str) -> float:
    if not _is_number(value):
        raise _wrong(TypeError, name, value, accepted)
    if not least <= value <= most:
        raise _wrong(ValueError, name, value, accepted)
    return float(value)


def check_threshold(value: Any) -> float:
    accepted = f"seconds from {THRESHOLD_MIN} to {THRESHOLD_MAX:.0f}"
    return _check_range("threshold", value, THRESHOLD_MIN, THRESHOLD_MAX, accepted)


def _check_hang_after(value: Any) -> float | None:
    if value is None:
        return None
    if not _is_number(value) or not 0 <= value <= SECONDS_MAX:
        raise _wrong(ValueError, "hang_after", value, f"seconds from 0 to {SECONDS_MAX:.0f}, or None")
    return float(value)


def _check_log_every(value: Any) -> float:
    return _check_seconds("log_every", value)


def _check_profile_hz(value: Any) -> float:
    accepted = f"samples a second of busy time from {PROFILE_HZ_MIN} to {PROFILE_HZ_MAX:.0f}, or 0 for none"
    least = 0 if _is_number(value) and value == 0 else PROFILE_HZ_MIN
    return _check_range("profile_hz", value, least, PROFILE_HZ_MAX, accepted)


def check_timeout(value: Any) -> float:
    return _check_seconds("timeout", value)


def check_budget(value: Any) -> float:
    return _check_seconds("budget", value)


def _check_seconds(name: str, value: Any) -> float:
    return _check_range(name, value, 0, SECONDS_MAX, f"seconds from 0 to {SECONDS_MAX:.0f}")


def check_every(value: Any) -> float:
    """Of an exporter: how often it is called."""
    return _check_range(
        "every", value, EVERY_MIN, SECONDS_MAX, f"seconds from {EVERY_MIN} to {SECONDS_MAX:.0f}"
    )


def _check_word(name: str, words: tuple[str, ...], value: Any) -> Any:
    if not isinstance(value, str) or value not in words:
        raise _wrong(ValueError, name, value, f"one of {', '.join(map(repr, words))}")
    return value


def check_callback(name: str, value: Any, takes: str = "Stall") -> Callable[[Any], object]:
    if not callable(value):
        raise _wrong(TypeError, name, value, f"a callable that takes a {takes}")
    return cast(Callable[[Any], object], value)


def _check_log(value: Any) -> Logger | None:
    if value is True:
        return logging.getLogger("loopwatch")
    if value is False:
        return None
    if not isinstance(value, logging.Logger | logging.LoggerAdapter):
        raise _wrong(TypeError, "log", value, "True, False, a logging.Logger or a LoggerAdapter")
    return value


def _check_dump_to(value: Any) -> DumpTo:
    if value is None or value is False:
        return cast(DumpTo, value)
    if isinstance(value, bool) or not isinstance(value, int | str | bytes | os.PathLike):
        raise _wrong(
            TypeError, "dump_to", value, "a path, a descriptor, None (standard error) or False (nowhere)"
        )
    if isinstance(value, int):
        try:
            os.fstat(value)
        except (OSError, OverflowError) as problem:
            number = getattr(problem, "errno", None)
            raise OSError(number, f"dump_to must be an open descriptor, not {value}: {problem}") from None
    else:
        _check_path("dump_to", value)
    return value


def _check_path(name: str, value: Any) -> None:
    if "\0" in os.fsdecode(value):  # what os.open would say of it is a ValueError
        raise OSError(errno.EINVAL, f"{name} must be a path without a null character, not {value!r}")


def _check_status(value: Any) -> Status:
    if not isinstance(value, bool | str | bytes | os.PathLike):
        raise _wrong(TypeError, "status", value, "a path, True (the default place) or False (no status page)")
    if not isinstance(value, bool):
        _check_path("status", value)
    return cast(Status, value)


def _listed(name: str, value: Any, accepted: str) -> tuple[Any, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _wrong(TypeError, name, value, accepted)
    return tuple(value)


def check_own(value: Any) -> tuple[str, ...]:
    accepted = "an iterable of module or path prefixes"
    prefixes = _listed("own", value, accepted)
    for prefix in prefixes:
        if not isinstance(prefix, str | os.PathLike) or not isinstance(os.fspath(prefix), str):
            raise _wrong(TypeError, "own", value, accepted)
    # A path object always means a path, also where it has one part only and could be read as a module.
    return tuple(p if isinstance(p, str) else str(Path(p).absolute()) for p in prefixes)


def _check_ignore(value: Any) -> tuple[Ignore, ...]:
    accepted = 'an iterable of "module:qualname" patterns and callables that take a Stall'
    entries = _listed("ignore", value, accepted)
    if not all(isinstance(entry, str) or callable(entry) for entry in entries):
        raise _wrong(TypeError, "ignore", value, accepted)
    return entries


def _check_redact(value: Any) -> Redact | None:
    if value is not None and not callable(value):
        raise _wrong(TypeError, "redact", value, "a callable that takes and returns a str, or None")
    return cast("Redact | None", value)


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "threshold": check_threshold,
    "on_stall": lambda value: None if value is None else check_callback("on_stall", value),
    "log": _check_log,
    "hang_after": _check_hang_after,
    "pulse": lambda value: _check_word("pulse", PULSES, value),
    "capture": lambda value: _check_word("capture", CAPTURES, value),
    "dump_to": _check_dump_to,
    "own": check_own,
    "ignore": _check_ignore,
    "redact": _check_redact,
    "log_every": _check_log_every,
    "profile_hz": _check_profile_hz,
    "status": _check_status,
}


def check_names(caller: str, options: Mapping[str, object]) -> None:
    unknown = options.keys() - _CHECKS.keys()
    if unknown:
        raise TypeError(f"{caller}() got an unexpected keyword argument {min(unknown)!r}")


def make_settings(caller: str, options: dict[str, Any]) -> Settings:
    """Check the options given to `caller`; the environment fills in what was not given."""
    check_names(caller, options)
    values: dict[str, Any] = {"log": _check_log(True)}
    variables: dict[str, str] = {}
    for name, (variable, value) in _env.defaults().items():
        if name not in options or isinstance(options[name], Default):
            values[name] = _from_environment(name, variable, value)
            variables[name] = variable
    for name, value in options.items():
        if not isinstance(value, Default):
            values[name] = _CHECKS[name](value)
    return Settings(**values, variables=variables, dump=DumpFile(values.get("dump_to")))


def _from_environment(name: str, variable: str, value: object) -> Any:
    try:
        return _CHECKS[name](value)
    except (OSError, TypeError, ValueError) as problem:
        raise ValueError(f"environment variable {variable}: {problem}") from None
