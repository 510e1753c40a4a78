"""A program in a child process that the world takes for this one: it has the terminal, it gets the signals, and this
process ends as it does."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Mapping
from typing import Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_NOT_FOUND: Final = 127  # as the shells have it
_NOT_EXECUTABLE: Final = 126
_ITS_OWN: Final = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP
}  # fmt: skip
_FROM_KERNEL: Final = 0x80
"""si_code of what a terminal sends, which goes to the whole group, the program too."""


def run(command: list[str], environment: Mapping[str, str]) -> int:
    """The wait status of the program, which has ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    handled = signal.valid_signals() - _ITS_OWN
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = os.getpid()
    child = os.fork()
    if not child:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # whoever kills us means the program
        if os.getppid() != parent:
            os._exit(1)
        _become(command, environment, before)
    try:
        return _wait(child, handled)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_as(status: int) -> int:
    """The exit status; where the program died of a signal, so does this process."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
    os.kill(os.getpid(), -code)
    return 128 - code


def _become(command: list[str], environment: Mapping[str, str], mask: set[signal.Signals | int]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execve(command[0], command, environment)
    except OSError as problem:
        os.write(2, f"loopwatch run: {command[0]}: {problem.strerror}\n".encode())
        os._exit(_NOT_FOUND if isinstance(problem, FileNotFoundError) else _NOT_EXECUTABLE)


def _wait(child: int, handled: set[signal.Signals]) -> int:
    while True:
        told = signal.sigwaitinfo(handled)
        if told.si_signo != signal.SIGCHLD:
            if told.si_code != _FROM_KERNEL:
                os.kill(child, told.si_signo)
            continue
        pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if pid and not os.WIFSTOPPED(status):
            return status
        if pid and _has_terminal():  # the shell waits for us, and lets us go on together with the program
            os.kill(os.getpid(), signal.SIGSTOP)


def _has_terminal() -> bool:
    """Without one nobody stops the whole group: who stops the program lets it go on alone as well."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
