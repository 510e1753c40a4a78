"""Code in another process that runs, through sys.remote_exec (Python 3.14 on), and its answer.

A script is left in a directory (_handover.py), and the target's main thread runs it the next time that it runs Python.
All that it does there is to start a thread: to import loopwatch takes a while, which no loop shall wait for. Not one of
threading, whose start() waits until it runs, and takes a lock that the main thread may hold where it was interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from loopwatch import _page
from loopwatch._text import printable
from loopwatch.cli import _pythons
from loopwatch.cli._handover import Handover, remove_leftovers, user_of
from loopwatch.cli._say import say

_REMOTE_EXEC: Final = (3, 14)
_LOOK_SECONDS: Final = 0.02
_QUIET_SECONDS: Final = 1.0

_SCRIPT: Final = """\
def _loopwatch_script():
    import _thread

    def work():
        import posix
        directory, asker, call, arguments = {values!r}
        try:
            import json, threading
            threading.current_thread().name = "loopwatch-attach"
            from loopwatch.cli import _attached
            answer = json.dumps({{"answer": getattr(_attached, call)(**arguments)}})
        except BaseException as problem:  # also where the program has left little to import
            kind = "import" if isinstance(problem, ImportError) else type(problem).__name__
            text = "".join(c if c.isprintable() and c not in '"\\\\' else "?" for c in str(problem))
            answer = '{{"problem": "%s", "text": "%s"}}' % (kind, text)
        try:
            with open(directory + "/new", "w", encoding="utf-8", errors="replace") as file:
                file.write(answer)
            posix.rename(directory + "/new", directory + "/answer")
            posix.kill(asker, 0)
        except ProcessLookupError:
            import shutil
            shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass

    _thread.start_new_thread(work, ())

_loopwatch_script()
del _loopwatch_script
"""


class RemoteError(Exception):
    """Why it could not be done, for whoever asked. Much of it is what the other process says of itself."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


def call(
    pid: int, function: str, wait: float, expected: Mapping[str, type], **arguments: Any
) -> dict[str, Any]:
    """The answer of loopwatch.cli._attached's function, which has what is `expected`."""
    _check(pid, function)
    remove_leftovers()
    handover = Handover(pid)
    keep = False
    try:
        values = (str(handover.directory), os.getpid(), function, arguments)
        handover.write(_SCRIPT.format(values=values))
        handover.give(*_user(pid))
        if not handover.seen_by(pid):
            raise RemoteError(
                f"process {pid} cannot see {handover.script}: it has other files (a container, a chroot, a /tmp of its "
                "own). Run loopwatch attach in there, or set TMPDIR to a directory that both see"
            )
        _execute(pid, handover.script)
        keep = True  # it removes the directory itself, where nobody waits for it any more
        answer = _await(pid, handover, wait)
        keep = False
        remove_leftovers(pid)
    except RemoteError as problem:
        keep = isinstance(problem, PendingError)
        raise
    finally:
        handover.close(keep=keep)
    return _result(pid, answer, expected)


# --- before ---


def _check(pid: int, function: str) -> None:
    if _page.process_start(pid) is None:
        raise RemoteError(f"there is no process {pid}")
    here, there = sys.version_info[:2], _pythons.version(pid)
    if here >= _REMOTE_EXEC and there in (here, None):
        return  # a Python of another name may be one all the same
    if there is None:
        raise RemoteError(f"process {pid} {_pythons.described(pid)}")
    needed = "both sides must be the same Python, of 3.14 or newer"
    this = f"this is {here[0]}.{here[1]} ({sys.executable})"
    if there >= _REMOTE_EXEC:
        advice = f"{_pythons.interpreter(pid)} -m loopwatch {function} {pid}"
    else:
        advice = "a program of an older one is started by loopwatch run instead"
    raise RemoteError(f"{needed}: process {pid} {_pythons.described(pid)}, and {this}: {advice}")


def _user(pid: int) -> tuple[int, int]:
    try:
        return user_of(pid)
    except OSError as problem:
        raise RemoteError(f"process {pid} has ended") from problem


# --- the call ---


def _execute(pid: int, script: Path) -> None:
    remote_exec: Any = getattr(sys, "remote_exec")  # noqa: B009, the stubs know it from 3.14 on only
    try:
        remote_exec(pid, str(script))
    except PermissionError as problem:
        raise RemoteError(_permission(pid, problem)) from problem
    except ProcessLookupError as problem:
        raise RemoteError(f"process {pid} has ended") from problem
    except (OSError, RuntimeError) as problem:
        text = str(problem)
        if "not enabled" in text:
            raise RemoteError(
                f"process {pid} was started with remote debugging switched off "
                "(PYTHON_DISABLE_REMOTE_DEBUG, -X disable-remote-debug, or so built)"
            ) from problem
        raise RemoteError(
            f"process {pid} {_pythons.described(pid)}, and cannot be reached: {text}"
        ) from problem


def _permission(pid: int, problem: PermissionError) -> str:
    reason = f"not permitted to reach into process {pid} ({problem.strerror or problem})"
    with contextlib.suppress(OSError):
        if user_of(pid)[0] != os.geteuid():
            return f"{reason}: it is another user's; be that user, or root"
    with contextlib.suppress(OSError, ValueError):
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
        if scope:
            return f"{reason}: kernel.yama.ptrace_scope is {scope}; be root, or set it to 0"
    return f"{reason}: it takes what a debugger needs (in a container the capability SYS_PTRACE)"


class PendingError(RemoteError):
    """It may still come."""


def _await(pid: int, handover: Handover, wait: float) -> dict[str, Any]:
    begin = time.monotonic()
    told = False
    while True:
        try:
            if (answer := handover.answer()) is not None:
                return answer
        except ValueError as problem:
            raise RemoteError(f"process {pid}: {problem}") from problem
        waited = time.monotonic() - begin
        if _page.process_start(pid) is None:
            raise RemoteError(f"process {pid} has ended")
        if waited >= wait:
            raise PendingError(
                f"process {pid} has not run Python on its main thread for {wait:g} s, or may not read "
                f"{handover.script}; it will act as soon as it does"
            )
        if waited >= _QUIET_SECONDS and not told:
            told = True
            say(f"waiting for the main thread of process {pid} to run Python")
        time.sleep(_LOOK_SECONDS)


def _result(pid: int, answer: Mapping[str, Any], expected: Mapping[str, type]) -> dict[str, Any]:
    if "problem" in answer:
        raise RemoteError(_why(pid, str(answer["problem"]), str(answer.get("text", ""))))
    result = answer.get("answer")
    if not isinstance(result, dict) or any(
        type(result.get(name)) is not kind for name, kind in expected.items()
    ):
        raise RemoteError(
            f"process {pid}: its answer is not one of this loopwatch; it may have another version"
        )
    return result


def _why(pid: int, problem: str, text: str) -> str:
    if problem == "import":
        return (
            f"loopwatch cannot be imported in process {pid} ({text}): install it there, as "
            f"{_pythons.interpreter(pid)} -m pip install loopwatch"
        )
    if problem == "RuntimeError":
        return f"process {pid}: {text}"
    return f"process {pid}: {problem}: {text}"
