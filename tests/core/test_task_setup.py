"""The setup that finds where tasks keep things, each time in a process of its own."""

import errno
import os
import subprocess
import sys
import textwrap

import pytest

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(
    not hasattr(_testcore, "map_hole"), reason="the portable build has no guarded reads"
)


def run(program: str, *options: str, **variables: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-W", "error", *options, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("options", [(), ("-X", "dev")], ids=["plain", "dev"])
def test_leaves_nothing_behind(options: tuple[str, ...]) -> None:
    run(
        """
        import asyncio, gc, sysconfig, threading
        from loopwatch import _testcore

        def state():
            names = ("_scheduled_tasks", "_all_tasks", "_eager_tasks")
            sets = [getattr(asyncio.tasks, name, ()) for name in names]
            return [len(s) for s in sets], threading.active_count(), gc.isenabled()

        gc.collect()
        tasks = sum(isinstance(o, asyncio.Task) for o in gc.get_objects())
        before = state()
        assert _testcore.task_setup_again() == (0, None)
        assert state() == before
        garbage = gc.collect()  # free-threaded builds leave functions and code to the collector
        assert not garbage or sysconfig.get_config_var("Py_GIL_DISABLED")
        assert sum(isinstance(o, asyncio.Task) for o in gc.get_objects()) == tasks
        assert asyncio._get_running_loop() is None

        async def main():
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert asyncio.current_task().get_name() == "Task-1"

        asyncio.run(main())
        """,
        *options,
    )


def test_set_up_inside_a_running_task() -> None:
    """What is current stays current, and the collector off where it was off."""
    run(
        """
        import asyncio, gc
        from loopwatch import _testcore

        async def main():
            gc.disable()
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert _testcore.task_setup_again() == (0, None)
            assert (asyncio.get_running_loop(), asyncio.current_task()) == (loop, task)
            assert not gc.isenabled()
            seen = _testcore.task_of(_testcore.tstate_here())
            assert (seen["loop"], seen["task"]) == (id(loop), id(task))
            assert asyncio.all_tasks() == {task}
            await asyncio.sleep(0)
            assert asyncio.current_task() is task

        asyncio.run(main(), debug=True)
        """
    )


def test_without_c_tasks_there_is_a_reason() -> None:
    run(
        """
        import sys
        sys.modules["_asyncio"] = None
        from loopwatch import _testcore
        result, reason = _testcore.task_setup_again()
        assert result and "C" in reason, reason
        assert _testcore.task_setup() == (result, reason)
        seen = _testcore.task_of(_testcore.tstate_here())
        assert (seen["loop_known"], seen["known"], seen["task"]) == (False, False, 0)
        """
    )


def test_where_reads_are_forbidden() -> None:
    """/proc/self/mem is enough; without it the reason says that nothing is."""
    program = f"""
        from loopwatch import _testcore
        denied = {{denied}}
        _testcore.deny_syscalls(denied, {errno.EPERM})
        result, reason = _testcore.task_setup_again()
        assert (reason is None) == (len(denied) == 1), reason
        assert reason is None or "read" in reason
    """
    run(program.format(denied=["process_vm_readv"]))
    run(program.format(denied=["process_vm_readv", "pread64"]))


def test_in_a_forked_child() -> None:
    """asyncio forgets a running loop in a child on every version, each in its own way."""
    run(
        """
        import asyncio, os
        from loopwatch import _testcore
        assert _testcore.task_setup_again() == (0, None)

        async def main():
            child = os.fork()
            if not child:
                seen = _testcore.task_of(_testcore.tstate_here())
                inside = asyncio._get_running_loop()
                os._exit(seen["loop"] != (id(inside) if inside else 0))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert _testcore.task_of(_testcore.tstate_here())["loop"] == id(asyncio.get_running_loop())

        asyncio.run(main())
        """
    )
