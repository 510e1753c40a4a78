"""Each parameter with what it must refuse: the contract's exception, and nothing left on the loop."""

from __future__ import annotations

import asyncio
import decimal
import errno
import math
from pathlib import Path
from typing import Any

import pytest
from programs import run_program
from scenario import left_on, no_thread_of_ours, quiet

import loopwatch

NAN = math.nan

BAD: list[tuple[str, Any, type[Exception]]] = [
    ("threshold", NAN, ValueError),
    ("threshold", 0, ValueError),
    ("threshold", 0.0009, ValueError),
    ("threshold", -1.0, ValueError),
    ("threshold", 3600.1, ValueError),
    ("threshold", math.inf, ValueError),
    ("threshold", 10**400, ValueError),
    ("threshold", True, TypeError),
    ("threshold", "0.1", TypeError),
    ("threshold", None, TypeError),
    ("threshold", decimal.Decimal("0.1"), TypeError),
    ("threshold", [0.1], TypeError),
    ("on_stall", 1, TypeError),
    ("on_stall", "print", TypeError),
    ("log", 1, TypeError),
    ("log", None, TypeError),
    ("log", "loopwatch", TypeError),
    ("hang_after", NAN, ValueError),
    ("hang_after", -0.1, ValueError),
    ("hang_after", math.inf, ValueError),
    ("hang_after", True, ValueError),
    ("hang_after", "1", ValueError),
    ("pulse", "", ValueError),
    ("pulse", "TURN", ValueError),
    ("pulse", "wrapped", ValueError),
    ("pulse", None, ValueError),
    ("pulse", 1, ValueError),
    ("pulse", "uv", ValueError),
    ("capture", "fast", ValueError),
    ("capture", True, ValueError),
    ("capture", None, ValueError),
    ("dump_to", True, TypeError),
    ("dump_to", 1.5, TypeError),
    ("dump_to", 10**9, OSError),
    ("own", "package", TypeError),
    ("own", [1], TypeError),
    ("own", 5, TypeError),
    ("own", None, TypeError),
    ("ignore", "package:*", TypeError),
    ("ignore", [1], TypeError),
    ("ignore", 5, TypeError),
    ("redact", "x", TypeError),
    ("redact", 1, TypeError),
]
NAMED = [f"{name}={str(value)[:12]}" for name, value, _ in BAD]


@pytest.mark.parametrize(("name", "value", "error"), BAD, ids=NAMED)
def test_install_refuses(name: str, value: Any, error: type[Exception]) -> None:
    loop = asyncio.SelectorEventLoop()
    try:
        with pytest.raises(error) as caught:
            loopwatch.install(loop, **{name: value})
        assert type(caught.value) is error
        assert name in str(caught.value)
        assert left_on(loop) == []
        assert no_thread_of_ours()
        with loopwatch.install(loop, **quiet()) as watch:
            loop.run_until_complete(asyncio.sleep(0))
        assert watch.stats()["turns"], "the refusal changed nothing"
    finally:
        loop.close()


@pytest.mark.parametrize(("name", "value", "error"), BAD[::4], ids=NAMED[::4])
def test_run_and_runner_refuse_before_they_run(name: str, value: Any, error: type[Exception]) -> None:
    ran = False

    async def main() -> None:
        nonlocal ran
        ran = True

    coroutine = main()
    with pytest.raises(error):
        loopwatch.run(coroutine, **{name: value})
    coroutine.close()
    with pytest.raises(error), loopwatch.Runner(**{name: value}) as runner:
        runner.get_loop()
    assert not ran
    assert asyncio._get_running_loop() is None


@pytest.mark.parametrize("loop", ["loop", 1, object(), asyncio.SelectorEventLoop, asyncio])
def test_not_a_loop(loop: Any) -> None:
    with pytest.raises(TypeError, match="AbstractEventLoop"):
        loopwatch.install(loop)


def test_unknown_parameter() -> None:
    with pytest.raises(TypeError, match="treshold"):
        loopwatch.install(treshold=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [NAN, 0, -1, 4000, True, "1", None])
def test_threshold_set_later(value: Any) -> None:
    loop = asyncio.SelectorEventLoop()
    with loopwatch.install(loop, **quiet(threshold=0.5)) as watch:
        with pytest.raises((TypeError, ValueError), match="threshold"):
            watch.threshold = value
        assert watch.threshold == 0.5
    loop.close()


@pytest.mark.parametrize("value", [1, "print", None])
def test_stall_callback_that_cannot_be_called(value: Any) -> None:
    loop = asyncio.SelectorEventLoop()
    with loopwatch.install(loop, **quiet()) as watch, pytest.raises(TypeError):
        watch.add_stall_callback(value)
    loop.close()


# --- the environment ---

INSTALL = """
    import asyncio, sys
    import loopwatch
    from scenario import say
    async def main():
        try:
            watch = loopwatch.install()
        except Exception as problem:
            say(error=type(problem).__name__, text=str(problem))
        else:
            say(threshold=watch.threshold, pulse=watch.pulse, capture=watch.capture)
            watch.uninstall()
    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LOOPWATCH_THRESHOLD", "fast"),
        ("LOOPWATCH_THRESHOLD", "nan"),
        ("LOOPWATCH_THRESHOLD", "0"),
        ("LOOPWATCH_HANG_AFTER", "-1"),
        ("LOOPWATCH_PULSE", "drum"),
        ("LOOPWATCH_CAPTURE", "camera"),
        ("LOOPWATCH_LOG", "maybe"),
        ("LOOPWATCH", "perhaps"),
    ],
)
def test_bad_variable_is_named(variable: str, value: str) -> None:
    facts = run_program(INSTALL, env={variable: value}).check()
    assert facts["error"] == "ValueError"
    assert variable in facts["text"]
    assert value in facts["text"]


def test_variables_set_defaults() -> None:
    variables = {"LOOPWATCH_THRESHOLD": "0.25", "LOOPWATCH_PULSE": "heartbeat", "LOOPWATCH_CAPTURE": "off"}
    assert run_program(INSTALL, env=variables).check() == {
        "threshold": 0.25,
        "pulse": "heartbeat",
        "capture": "off",
    }


def test_an_argument_wins_over_the_variable() -> None:
    source = INSTALL.replace("loopwatch.install()", "loopwatch.install(threshold=0.5)")
    assert run_program(source, env={"LOOPWATCH_THRESHOLD": "0.25"}).check()["threshold"] == 0.5


def test_a_path_in_the_variable(tmp_path: Any) -> None:
    run_program(INSTALL, env={"LOOPWATCH_DUMP_TO": str(tmp_path / "dump")}).check()
    assert (tmp_path / "dump").read_text() == ""


OFF = """
    import asyncio, threading
    import loopwatch
    from scenario import blocked_once, left_on, new_loop, quiet, say, our_threads

    seen = []
    loop = new_loop()
    watch = loopwatch.install(loop, threshold=0.05, on_stall=seen.append)
    assert left_on(loop) == [] and our_threads() == []
    assert loopwatch.install(loop) is not watch  # nothing is watched, so nothing is watched twice
    loop.run_until_complete(blocked_once())

    async def inside():
        with watch.exempt("why"), loopwatch.step("part"):
            pass
    loop.run_until_complete(inside())
    watch.add_stall_callback(print)
    assert watch.remove_stall_callback(print) == 1
    watch.threshold = 0.25
    lag = watch.lag
    say(threshold=watch.threshold, pulse=watch.pulse, capture=watch.capture, stalls=len(watch.stalls),
        current=watch.current, flush=watch.flush(), turns=lag.turns, stats=sum(watch.stats().values()),
        difference=(lag - watch.lag).turns, text=repr(watch))
    watch.uninstall()
    loopwatch.uninstall(loop)
    loop.close()
    with loopwatch.Runner(on_stall=seen.append, threshold=0.05) as runner:
        runner.run(blocked_once())
        with runner.watch:
            pass
    assert loopwatch.run(asyncio.sleep(0, 5)) == 5
    say(seen=len(seen))
"""


def test_switched_off_everything_works_and_nothing_is_watched() -> None:
    facts = run_program(OFF, env={"LOOPWATCH": "0"}).check()
    assert facts.pop("text").startswith("<Watch of")
    assert facts.pop("pulse") in ("auto", "turn")
    assert facts == {
        "threshold": 0.25, "capture": "off", "stalls": 0, "current": None, "flush": True, "turns": 0,
        "stats": 0, "difference": 0, "seen": 0,
    }  # fmt: skip


def test_switched_off_bad_input_is_still_refused() -> None:
    """What is wrong in production is wrong on the developer's machine too."""
    source = INSTALL.replace("loopwatch.install()", "loopwatch.install(threshold='x')")
    assert run_program(source, env={"LOOPWATCH": "0"}).check()["error"] == "TypeError"


@pytest.mark.parametrize("option", ["dump_to", "status"])
@pytest.mark.parametrize(
    ("path", "error"),
    [("nothing/here", FileNotFoundError), ("file/here", NotADirectoryError)],
)
def test_a_path_that_cannot_be_opened_is_named_by_its_option(
    tmp_path: Path, option: str, path: str, error: type[OSError]
) -> None:
    (tmp_path / "file").touch()
    loop = asyncio.SelectorEventLoop()
    try:
        with pytest.raises(error, match=option) as caught:
            loopwatch.install(loop, **{**quiet(), option: tmp_path / path})
        assert caught.value.errno in (errno.ENOENT, errno.ENOTDIR)
        assert str(caught.value.filename).startswith(str(tmp_path / path).rpartition("/")[0])
        assert left_on(loop) == []
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("option", "text"), [("pulse", "uv"), ("dump_to", "/nonexistent/dump"), ("dump_to", "/")]
)
def test_a_variable_that_turns_out_wrong_for_this_loop_is_named(
    monkeypatch: pytest.MonkeyPatch, option: str, text: str
) -> None:
    variable = f"LOOPWATCH_{option.upper()}"
    monkeypatch.setenv(variable, text)
    loop = asyncio.SelectorEventLoop()
    try:
        with pytest.raises(ValueError, match=variable):
            loopwatch.install(loop)
        assert left_on(loop) == []
        assert no_thread_of_ours()
        loopwatch.install(loop, **{**quiet(), "pulse": "turn", "dump_to": False}).uninstall()
    finally:
        loop.close()
