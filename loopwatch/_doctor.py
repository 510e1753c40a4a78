"""doctor(): what works here, and why the rest does not."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopwatch import _core, _env
from loopwatch._registry import registry


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that loopwatch can do here, or why it cannot."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What doctor() found; print it to read it."""

    checks: tuple[Check, ...]
    facts: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether everything works."""
        return all(check.ok for check in self.checks)

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [
            f"{'ok' if check.ok else 'no':3} {check.name:{width}}  {check.detail}" for check in self.checks
        ]
        lines += [f"    {name}: {value}" for name, value in self.facts.items()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in self.checks],
            "facts": dict(self.facts),
        }


def doctor() -> Report:
    """Say what loopwatch can see in this process, and why not the rest: print() what it returns. Starts nothing, raises
    nothing where something does not work, and may be called from any thread.

    The watchdog opens its sources when it starts, so they are known only while a loop is watched.
    """
    native = _core.facts()
    sources: Mapping[str, Any] = native.get("evidence", {})
    facts = {
        "loopwatch": _core.VERSION,
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "gil": "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off",
        "platform": platform.platform(),
        "watchdog": native["watchdog"],
    }
    if native["watchdog"]:
        facts |= {name: value for name, value in native.items() if name != "evidence"}
        evidence = _evidence(sources, native.get("descriptor_table_failed_call"))
    else:
        evidence = [Check("evidence", True, "not looked at: known only while a loop is watched")]
    return Report((_switch(), _environment(), _build(), _capture(), *evidence, _uv(), _watches()), facts)


def _switch() -> Check:
    try:
        on = _env.enabled()
    except ValueError as problem:
        return Check("switched on", False, str(problem))
    return Check("switched on", on, "loopwatch watches" if on else "LOOPWATCH=0 is set: nothing is watched")


def _environment() -> Check:
    try:
        names = [variable for variable, _ in _env.defaults().values()]
    except ValueError as problem:
        return Check("defaults", False, str(problem))
    return Check("defaults", True, f"from {', '.join(names)}" if names else "no LOOPWATCH_ variable is set")


def _build() -> Check:
    if _core.PORTABLE:
        return Check(
            "full build", False, "built with LOOPWATCH_PORTABLE=1: no raw capture, no uv pulse, no evidence"
        )
    return Check("full build", True, "with raw capture, uv pulse and evidence")


def _capture() -> Check:
    reason = _core.frames_reason()
    return Check("raw capture", reason is None, reason or "frames are read without the GIL")


_SOURCES = {
    "schedstat": (
        "run queue",
        "the wait for a CPU is told by /proc/self/task/*/schedstat",
        "/proc/self/task/*/schedstat cannot be read: hidden, or a kernel without CONFIG_SCHED_INFO",
    ),
    "syscall": (
        "system call",
        "what a thread waits in is told by /proc/self/task/*/syscall",
        "/proc/self/task/*/syscall cannot be read: hidden, or a kernel without CONFIG_HAVE_ARCH_TRACEHOOK",
    ),
    "stat": (
        "thread state",
        "state and page faults are told by /proc/self/task/*/stat",
        "/proc/self/task/*/stat cannot be read",
    ),
    "throttled": (
        "throttling",
        "throttled time is told by the cgroup's cpu.stat",
        "no cgroup of this process has a throttled time to read",
    ),
    "gc": ("gc clock", "collections are timed by gc.callbacks", "collections are not timed in this build"),
}
"""By key of facts()["evidence"]: the check's name, what works, why it does not."""


def _evidence(sources: Mapping[str, Any], failed_call: str | None) -> list[Check]:
    """One for each source that the native half speaks of."""
    checks = [
        Check(name, bool(sources[key]), works if sources[key] else lacks)
        for key, (name, works, lacks) in _SOURCES.items()
        if key in sources
    ]
    if "gil" in sources:
        reason = sources["gil"]
        checks.append(Check("GIL holder", reason is None, reason or "the thread that holds the GIL is seen"))
    if sources:
        refused = failed_call if failed_call and failed_call.startswith("pidfd") else None
        works = "what a descriptor stands for is asked of a duplicate"
        lacks = f"{refused} is refused: what a descriptor stands for is read from /proc"
        checks.append(Check("pidfd", refused is None, lacks if refused else works))
    return checks


def _uv() -> Check:
    uvloop = sys.modules.get("uvloop")
    if uvloop is None:
        return Check("uvloop", True, "not imported")
    return Check("uvloop", not _core.PORTABLE, f"version {getattr(uvloop, '__version__', 'unknown')}")


def _watches() -> Check:
    watches = registry().watches()
    shown = "; ".join(f"{watch.loop!r}: pulse {watch.pulse}, capture {watch.capture}" for watch in watches)
    return Check("watches", True, f"{len(watches)} active{': ' + shown if shown else ''}")
