"""on_stall and what it may do; the log and its records; flush()."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from scenario import block, blocked_once, culprits, new_loop, no_thread_of_ours, quiet

import loopwatch


def run_blocked(times: int = 1, **options: Any) -> loopwatch.Watch:
    async def main() -> loopwatch.Watch:
        watch = loopwatch.install(**quiet(**options))
        for _ in range(times):
            await blocked_once(0.15)
        return watch

    return asyncio.run(main())


# --- on_stall ---


def test_called_on_a_thread_of_its_own() -> None:
    threads: list[str] = []
    run_blocked(on_stall=lambda _: threads.append(threading.current_thread().name))
    assert threads == ["loopwatch-reporter"]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_raises(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """Logged once for its type, counted, and nothing else changes."""
    later: list[loopwatch.Stall] = []

    def on_stall(_stall: loopwatch.Stall) -> None:
        raise error("not again")

    async def main() -> loopwatch.Watch:
        watch = loopwatch.install(threshold=0.05, dump_to=False, on_stall=on_stall)
        watch.add_stall_callback(later.append)
        for _ in range(3):
            await blocked_once(0.15)
        return watch

    watch = asyncio.run(main())
    assert watch.stats()["callback_errors"] == 3
    assert (
        len([record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]) == 1
    )
    assert len(later) == len(watch.stalls) == 3


def test_two_types_are_logged_twice(caplog: pytest.LogCaptureFixture) -> None:
    errors = [ValueError("a"), TypeError("b"), ValueError("c")]

    def on_stall(_stall: loopwatch.Stall) -> None:
        raise errors.pop()

    run_blocked(3, on_stall=on_stall, log=True)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError, TypeError]


def test_blocks_for_long() -> None:
    """The loop goes on, stalls go on being seen, and uninstall waits for 2 s at most."""
    free = threading.Event()
    turns = 0

    async def main() -> tuple[loopwatch.Watch, float]:
        nonlocal turns
        watch = loopwatch.install(**quiet(on_stall=lambda _: free.wait(20)))
        await blocked_once(0.15)
        deadline = time.monotonic() + 0.2
        while time.monotonic() < deadline:
            await asyncio.sleep(0)
            turns += 1
        await blocked_once(0.15)
        begin = time.monotonic()
        await asyncio.to_thread(watch.uninstall)
        return watch, time.monotonic() - begin

    watch, seconds = asyncio.run(main())
    assert turns > 100
    assert watch.stats()["stalls"] == 2
    assert 1.5 < seconds < 4
    free.set()
    assert no_thread_of_ours()


def test_installs_another_watch_and_uninstalls_it() -> None:
    inner: list[loopwatch.Watch] = []

    def on_stall(_stall: loopwatch.Stall) -> None:
        loop = new_loop()
        inner.append(loopwatch.install(loop, **quiet()))
        loopwatch.uninstall(loop)
        loop.close()

    watch = run_blocked(2, on_stall=on_stall)
    assert watch.stats()["callback_errors"] == 0
    assert len(inner) == 2
    assert not any(watch.installed for watch in inner)


def test_runs_a_loop_of_its_own() -> None:
    """A watched loop on the reporter's thread: what it sees there is delivered later."""
    seen: list[str] = []

    def on_stall(stall: loopwatch.Stall) -> None:
        seen.extend(culprits([stall]))
        if len(seen) == 1:
            asyncio.run(asyncio.sleep(0.01))

    run_blocked(2, on_stall=on_stall)
    assert seen == ["block", "block"]


def test_added_and_removed() -> None:
    first: list[loopwatch.Stall] = []
    second: list[loopwatch.Stall] = []

    async def main() -> list[int]:
        watch = loopwatch.install(**quiet())
        watch.add_stall_callback(first.append)
        watch.add_stall_callback(second.append)
        watch.add_stall_callback(second.append)
        await blocked_once(0.15)
        await asyncio.to_thread(watch.flush)
        removed = [watch.remove_stall_callback(call) for call in (second.append, second.append, print)]
        await blocked_once(0.15)
        return removed

    assert asyncio.run(main()) == [2, 0, 0]
    assert (len(first), len(second)) == (2, 2)


# --- the log ---


class Keep(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Any:
    keep = Keep()
    logger = logging.getLogger("loopwatch")
    logger.addHandler(keep)
    yield keep.records
    logger.removeHandler(keep)


def test_record(kept: list[logging.LogRecord]) -> None:
    watch = run_blocked(log=True)
    (record,) = kept
    (stall,) = watch.stalls
    assert record.stall is stall  # type: ignore[attr-defined]
    assert (record.name, record.levelno) == ("loopwatch", logging.WARNING)
    assert record.getMessage() == stall.summary
    assert "block" in record.getMessage()
    assert record.stack_info == stall.format()
    assert record.threadName == "loopwatch-reporter"


def test_error_while_it_goes_on(kept: list[logging.LogRecord]) -> None:
    async def main() -> None:
        loopwatch.install(threshold=0.05, hang_after=0.1, dump_to=False)
        await blocked_once(0.3)

    asyncio.run(main())
    assert [(r.levelno, r.stall.ongoing) for r in kept] == [(logging.ERROR, True), (logging.WARNING, False)]  # type: ignore[attr-defined]
    assert kept[0].stall.id == kept[1].stall.id  # type: ignore[attr-defined]
    assert kept[0].stall.duration < kept[1].stall.duration  # type: ignore[attr-defined]


def test_false_is_none(kept: list[logging.LogRecord]) -> None:
    assert len(run_blocked(log=False).stalls) == 1
    assert kept == []


def test_a_logger_of_the_programs(kept: list[logging.LogRecord]) -> None:
    keep = Keep()
    logger = logging.getLogger("theirs")
    logger.addHandler(keep)
    run_blocked(log=logger)
    logger.removeHandler(keep)
    assert [record.name for record in keep.records] == ["theirs"]
    assert kept == []


def test_an_adapter(kept: list[logging.LogRecord]) -> None:
    class Prefix(logging.LoggerAdapter):  # type: ignore[type-arg]
        def process(self, msg: Any, _kwargs: Any) -> Any:
            return f"[{self.extra['site']}] {msg}", {"extra": self.extra}  # type: ignore[index]

    run_blocked(log=Prefix(logging.getLogger("loopwatch"), {"site": "here"}))
    (record,) = kept
    assert record.getMessage().startswith("[here] ")
    assert record.site == "here"  # type: ignore[attr-defined]
    assert record.stall.culprit.qualname == "block"  # type: ignore[attr-defined]


def test_one_record_for_many_of_a_kind_and_one_for_the_rest(kept: list[logging.LogRecord]) -> None:
    seen: list[loopwatch.Stall] = []
    watch = run_blocked(4, log=True, on_stall=seen.append)
    assert len(kept) == 2
    assert kept[1].getMessage().startswith("3 more stalls in block (scenario.py) in the last ")
    assert len(seen) == 4, "the limit is for the log only"
    assert watch.stats()["stalls_suppressed"] == 3


def test_handler_that_raises() -> None:
    class Broken(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            raise OSError("disk gone")

    broken = Broken()
    logger = logging.getLogger("broken")
    logger.addHandler(broken)
    watch = run_blocked(2, log=logger, log_every=0.0)
    logger.removeHandler(broken)
    assert len(watch.stalls) == 2
    assert watch.stats()["log_errors"] == 2


# --- flush ---


def test_flush_waits_for_what_has_ended() -> None:
    seen: list[loopwatch.Stall] = []

    def slow(stall: loopwatch.Stall) -> None:
        time.sleep(0.2)
        seen.append(stall)

    loop = new_loop()
    watch = loopwatch.install(loop, **quiet(on_stall=slow))
    loop.run_until_complete(blocked_once(0.15))
    assert watch.flush() is True
    assert len(seen) == 1
    assert watch.flush() is True, "nothing to wait for"
    watch.uninstall()
    assert watch.flush() is True
    loop.close()


def test_flush_gives_up_in_time() -> None:
    free = threading.Event()
    loop = new_loop()
    watch = loopwatch.install(loop, **quiet(on_stall=lambda _: free.wait(20)))
    loop.run_until_complete(blocked_once(0.15))
    begin = time.monotonic()
    assert watch.flush(0.1) is False
    assert watch.flush(timeout=0) is False
    assert time.monotonic() - begin < 1
    free.set()
    assert watch.flush() is True
    loop.close()


def test_flush_on_the_loops_own_thread() -> None:
    async def main() -> None:
        watch = loopwatch.install(**quiet())
        with pytest.raises(RuntimeError, match="own thread"):
            watch.flush()
        assert await asyncio.to_thread(watch.flush) is True

    asyncio.run(main())


def test_flush_in_a_stall_callback() -> None:
    problems: list[str] = []

    def on_stall(_stall: loopwatch.Stall) -> None:
        try:
            watch.flush()
        except RuntimeError as problem:
            problems.append(str(problem))

    loop = new_loop()
    watch = loopwatch.install(loop, **quiet(on_stall=on_stall))
    loop.run_until_complete(blocked_once(0.15))
    loop.close()
    assert len(problems) == 1


@pytest.mark.parametrize("timeout", ["1", None, True, float("nan"), -1.0])
def test_flush_with_bad_timeouts(timeout: Any) -> None:
    loop = new_loop()
    watch = loopwatch.install(loop, **quiet())
    with pytest.raises((TypeError, ValueError)):
        watch.flush(timeout)
    loop.close()


# --- ignore and redact ---


@pytest.mark.parametrize(
    "entry", ["scenario:block", "*:block", "scenario", "scen*:bl?ck", lambda stall: stall.duration > 0.05]
)
def test_ignored_stalls_are_counted(entry: str | Callable[[loopwatch.Stall], bool]) -> None:
    seen: list[loopwatch.Stall] = []
    watch = run_blocked(ignore=[entry], on_stall=seen.append)
    assert seen == []
    assert (watch.stats()["stalls"], watch.stats()["stalls_ignored"]) == (1, 1)


def test_ignore_that_matches_nothing() -> None:
    watch = run_blocked(ignore=["other:block", "scenario:other", lambda _: False])
    assert (len(watch.stalls), watch.stats()["stalls_ignored"]) == (1, 0)


def test_redact_that_raises_hides_and_is_counted() -> None:
    def redact(text: str) -> str:
        raise LookupError(text)

    async def main() -> loopwatch.Watch:
        watch = loopwatch.install(**quiet(redact=redact))
        task = asyncio.create_task(secret(), name="secret-name")
        await task
        return watch

    async def secret() -> None:
        await asyncio.sleep(0.02)
        block(0.15)

    watch = asyncio.run(main())
    (stall,) = watch.stalls
    assert "secret-name" not in stall.format()
    assert watch.stats()["callback_errors"] >= 1
