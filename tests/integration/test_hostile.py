"""Places in which the system refuses something: the stall is seen all the same, with its frames."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from programs import next_fact, run_program, started

import loopwatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are Linux's")

RAW = loopwatch._core.frames_reason() is None
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root")

WATCH = """
    import errno, os, sys
    from scenario import forbid, say, watch_a_block
    {prepare}
    watch_a_block()
    {afterwards}
"""


def seen_with(prepare: str, *, afterwards: str = "", **options: Any) -> dict[str, Any]:
    facts = run_program(WATCH.format(prepare=prepare, afterwards=afterwards), **options).check()
    assert facts["culprits"] == ["block"]
    assert 0.15 < facts["durations"][0] < 1.5
    return facts


# --- seccomp ---

FORBIDDEN = [  # each call of the preferred way, and what is left then, down to nothing
    ("process_vm_readv",),
    ("memfd_create",),
    ("close_range",),
    ("pidfd_getfd",),
    ("process_vm_readv", "pwritev", "pwritev2"),
    ("process_vm_readv", "memfd_create", "pidfd_open"),
    ("process_vm_readv", "memfd_create", "pwritev", "pwritev2", "close_range", "pidfd_open", "pidfd_getfd"),
]


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
@pytest.mark.parametrize("names", FORBIDDEN, ids="+".join)
def test_system_call_forbidden_before_the_install(names: tuple[str, ...], error: str) -> None:
    seen_with(f"forbid(*{names}, error=errno.{error})")


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS", "EACCES"])
def test_system_calls_forbidden_while_watched(error: str) -> None:
    """A sandbox that the program enters late. It holds for threads that are started later, so for
    the watchdog of the second install."""
    source = f"""
        import asyncio, errno
        import loopwatch
        from scenario import blocked_once, culprits, forbid, new_loop, quiet, say
        first, second = new_loop(), new_loop()
        seen = []
        loopwatch.install(first, **quiet(on_stall=seen.append))
        first.run_until_complete(blocked_once())
        forbid("process_vm_readv", "memfd_create", "pwritev", "pwritev2", "pidfd_open", "pidfd_getfd",
               error=errno.{error})
        first.run_until_complete(blocked_once())
        first.close()
        with loopwatch.install(second, **quiet(on_stall=seen.append)):
            second.run_until_complete(blocked_once())
        second.close()
        say(culprits=culprits(seen))
    """
    assert run_program(source).check() == {"culprits": ["block"] * 3}


# --- descriptors ---


def test_program_that_closes_every_descriptor_that_it_does_not_own(tmp_path: Path) -> None:
    """And uses the numbers again: nothing of ours is written into its files, and watching goes on."""
    source = """
        import asyncio, os, sys
        import loopwatch
        from scenario import block, blocked_once, culprits, new_loop, quiet, say
        from pathlib import Path

        folder = Path(sys.argv[1])
        seen = []
        loop = new_loop()
        options = quiet(on_stall=seen.append, dump_to=folder / "dump", hang_after=0.1)
        watch = loopwatch.install(loop, **options)
        loop.run_until_complete(blocked_once())
        kept = loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()
        for descriptor in range(3, 4096):
            if descriptor not in kept:
                try:
                    os.close(descriptor)
                except OSError:
                    pass
        files = [os.open(folder / f"file{n}", os.O_CREAT | os.O_RDWR) for n in range(64)]
        for _ in range(2):
            loop.run_until_complete(blocked_once())
        watch.flush()
        say(culprits=culprits([stall for stall in seen if not stall.ongoing]),
            sizes=[os.fstat(descriptor).st_size for descriptor in files])
        loop.close()
    """
    facts = run_program(source, tmp_path).check()
    assert facts["culprits"] == ["block"] * 3
    assert facts["sizes"] == [0] * 64


def test_closerange_where_the_table_cannot_be_our_own(tmp_path: Path) -> None:
    """Descriptors of ours are among those that it closes: frames may be lost, foreign files not touched."""
    source = """
        import asyncio, errno, os, sys
        import loopwatch
        from scenario import block, blocked_once, culprits, forbid, new_loop, quiet, say
        from pathlib import Path

        forbid("close_range", "pidfd_getfd", error=errno.EPERM)
        folder = Path(sys.argv[1])
        seen = []
        loop = new_loop()
        watch = loopwatch.install(loop, **quiet(on_stall=seen.append))
        loop.run_until_complete(blocked_once())
        kept = loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()
        for descriptor in range(3, 4096):
            if descriptor not in kept:
                try:
                    os.close(descriptor)
                except OSError:
                    pass
        files = [os.open(folder / f"file{n}", os.O_CREAT | os.O_RDWR) for n in range(64)]
        loop.run_until_complete(blocked_once())
        watch.flush()
        say(seen=len(seen), first=culprits(seen[:1]), sizes=[os.fstat(file).st_size for file in files])
        loop.close()
    """
    facts = run_program(source, tmp_path).check()
    assert facts["seen"] == 2
    assert facts["first"] == ["block"]
    assert facts["sizes"] == [0] * 64


@pytest.mark.parametrize("missing", ["0", "0,1,2"])
def test_standard_descriptors_closed(missing: str, tmp_path: Path) -> None:
    source = f"""
        import os, sys
        for descriptor in ({missing},):
            os.close(descriptor)
        import loopwatch
        from scenario import blocked_once, culprits, quiet
        seen = []
        loopwatch.run(blocked_once(), **quiet(on_stall=seen.append, dump_to=None))
        with open(sys.argv[1], "w") as result:
            result.write(",".join(culprits(seen)))
        os._exit(0)
    """
    run_program(source, tmp_path / "result")
    assert (tmp_path / "result").read_text() == "block"


def test_no_descriptor_left() -> None:
    """RLIMIT_NOFILE is reached: what cannot be opened is done without."""
    seen_with(
        "import resource, loopwatch, asyncio; limit = len(os.listdir('/proc/self/fd')) + 6; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))"
    )


# --- /proc and rights ---


def test_not_dumpable() -> None:
    """PR_SET_DUMPABLE 0, as a program does that holds keys: /proc/self/mem and more cannot be opened."""
    seen_with("import ctypes; assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0")


def test_not_dumpable_as_nobody() -> None:
    if not ROOT:
        pytest.skip("needs root, to become somebody else")
    seen_with(
        "import ctypes; os.setgid(65534); os.setuid(65534); assert not ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"
    )


@needs_root
def test_as_nobody() -> None:
    nobody = pwd.getpwnam("nobody")
    seen_with(f"os.setgroups([]); os.setgid({nobody.pw_gid}); os.setuid({nobody.pw_uid})")


@needs_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
@pytest.mark.parametrize("how", ["umount -l /proc", "mount -t tmpfs none /proc"])
def test_proc_is_not_mounted(how: str) -> None:
    wrapper = ["unshare", "--mount", "sh", "-c", f'{how} && exec "$@"', "sh"]
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{how} is not possible here")
    seen_with("assert not os.path.exists('/proc/self/status')", wrapper=wrapper)


def test_little_memory_for_stacks() -> None:
    """A limit on the address space: an install works, or is refused; neither ends the program."""
    source = """
        import asyncio, resource
        import loopwatch
        from scenario import new_loop, quiet, say
        from pathlib import Path
        loop = new_loop()
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (300 << 10), size + (300 << 10)))
        try:
            loopwatch.install(loop, **quiet()).uninstall()
        except (MemoryError, RuntimeError, OSError) as problem:
            say(refused=type(problem).__name__)
        loop.close()
        say(ended=True)
    """
    facts = run_program(source).check()
    assert facts["ended"]


# --- stops ---


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_stopped_and_continued(busy: bool) -> None:
    """It goes on, and is watched as before. What the stop itself is called is another matter."""
    source = f"""
        import asyncio, sys, time
        import loopwatch
        from scenario import block, culprits, quiet, say

        async def main():
            watch = loopwatch.install(**quiet(threshold=0.1, hang_after=None))
            await asyncio.sleep(0.05)
            say(ready=True)
            end = time.monotonic() + 1.2
            while time.monotonic() < end:
                await asyncio.sleep({0 if busy else 0.3})
            block(0.3)
            await asyncio.sleep(0.01)
            return watch

        say(culprits=culprits(asyncio.run(main()).stalls))
    """
    with started(source) as program:
        next_fact(program)
        program.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        program.send_signal(signal.SIGCONT)
        facts = next_fact(program)
        assert program.wait(10) == 0
    assert facts["culprits"][-1] == "block"
    assert len(facts["culprits"]) <= 2


# --- signals ---


def test_signals_run_on_the_programs_threads() -> None:
    """A storm of signals with a Python handler, none of which the watchdog takes."""
    source = """
        import asyncio, signal, threading
        import loopwatch
        from scenario import blocked_once, culprits, quiet, say
        handled = []
        signal.signal(signal.SIGALRM, lambda *_: handled.append(threading.get_ident()))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        seen = []
        async def main():
            await blocked_once()
            await blocked_once()
        loopwatch.run(main(), **quiet(on_stall=seen.append))
        signal.setitimer(signal.ITIMER_REAL, 0)
        say(culprits=culprits(seen), handled=len(handled), threads=len(set(handled)))
    """
    facts = run_program(source).check()
    assert facts["culprits"] == ["block", "block"]
    assert facts["handled"] > 100
    assert facts["threads"] == 1


# --- subinterpreters ---

INTERPRETERS = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"


def test_subinterpreter_is_refused_and_says_so() -> None:
    source = f"""
        import {INTERPRETERS} as interpreters
        import loopwatch
        from scenario import say, watch_a_block
        code = '''
        import sys
        try:
            import loopwatch, asyncio
            loop = asyncio.SelectorEventLoop()
            try:
                loopwatch.install(loop)
            finally:
                loop.close()
        except (RuntimeError, ImportError) as problem:
            import os, json
            said = dict(error=type(problem).__name__, text=str(problem))
            os.write(1, json.dumps(said).encode() + bytes([10]))
        '''
        import textwrap
        one = interpreters.create()
        interpreters.run_string(one, textwrap.dedent(code))
        interpreters.destroy(one)
        watch_a_block()
    """
    facts = run_program(source).check()
    assert "subinterpreter" in facts["text"]
    assert facts["error"] == "RuntimeError" or sys.version_info >= (3, 12)
    assert facts["culprits"] == ["block"], "the main interpreter is watched as ever"


def test_raw_capture_that_cannot_work_is_refused_with_its_reason() -> None:
    if RAW:
        pytest.skip("raw capture works here")
    source = """
        import asyncio, loopwatch
        from scenario import say
        loop = asyncio.SelectorEventLoop()
        try:
            loopwatch.install(loop, capture="raw")
        except RuntimeError as problem:
            say(text=str(problem))
        loop.close()
    """
    assert "raw" in run_program(source).check()["text"]
