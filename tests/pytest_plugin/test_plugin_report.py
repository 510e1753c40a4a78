"""What a failure looks like, whom it is charged to, and the summary."""

from __future__ import annotations

import re

import pytest
from suites import Suite

pytest.importorskip("pytest_asyncio")

TWO_FUNCTIONS = """
def fetch():
    x = 1
    block()
    return x

async def test_blocks():
    await asyncio.sleep(0.01)
    fetch()
"""


def test_a_failure_is_a_traceback_with_the_culprit_last(suite: Suite) -> None:
    suite.write(TWO_FUNCTIONS)
    text = suite.watched().text
    marked = re.findall(r"^>   (.*)$", text, re.MULTILINE)
    assert [line.strip() for line in marked] == ["fetch()", "block()", "time.sleep(seconds)"]
    error = re.search(r"^E   LoopBlocked: (.*)$", text, re.MULTILINE)
    assert error is not None
    assert "blocking-call" in error[1]
    assert "limit 100 ms" in error[1]
    assert re.search(r"^test_it.py:6: LoopBlocked$", text, re.MULTILINE)
    assert "FAILED test_it.py::test_blocks - LoopBlocked: event loop blocked for" in text
    assert "await asyncio.sleep" in text, "what to do about it"
    assert "_pytest" not in text


@pytest.mark.parametrize("style", ["short", "line", "native", "no"])
def test_other_styles_of_tracebacks(suite: Suite, style: str) -> None:
    suite.write(TWO_FUNCTIONS)
    ran = suite.watched(f"--tb={style}")
    assert ran.outcomes == {"test_blocks": "FAILED"}
    assert "INTERNALERROR" not in ran.text
    if style != "no":
        assert "LoopBlocked: event loop blocked" in ran.text
    if style in ("short", "native"):
        assert ran.text.index("in fetch") < ran.text.index("in block")


def failure(text: str) -> str:
    """What is said of the one test that failed."""
    return text.partition("= FAILURES =")[2].partition("= loopwatch:")[0]


@pytest.mark.parametrize("style", ["auto", "short", "native"])
def test_library_code_is_shown_by_its_lines(suite: Suite, style: str) -> None:
    """Here another thread holds the GIL, and nothing on its stack is the program's."""
    suite.write(
        """
        import json
        BIG = [{"number": i, "names": [str(i)] * 5} for i in range(300_000)]

        async def test_dumps():
            dumping = asyncio.create_task(asyncio.to_thread(json.dumps, BIG))
            while not dumping.done():
                await asyncio.sleep(0.001)
        """
    )
    text = failure(suite.watched(f"--tb={style}").text)
    assert "(gil)" in text
    assert "'asyncio_0' held the GIL" in text
    assert "in test_it.py::test_dumps" in text
    assert "JSONEncoder.encode" in text
    assert "_bootstrap" not in text, "nor what started the thread"
    assert '"""' not in text
    assert len(text.splitlines()) < 40, "with the docstrings of the library's functions more than 100"


def test_many_callbacks_of_c_functions(suite: Suite) -> None:
    """On the stack is the loop alone; the test is named, and the library's file as it is imported."""
    suite.write(
        """
        numbers = []

        async def test_many():
            loop = asyncio.get_running_loop()
            for i in range(200_000):
                loop.call_soon(numbers.append, i)
            await asyncio.sleep(0)
        """
    )
    ran = suite.watched("--loopwatch-threshold=20ms")
    assert "(many-callbacks)" in ran.text
    assert "in test_it.py::test_many" in ran.text
    assert re.search(r"many-callbacks  asyncio/\w+\.py:\d+ ", ran.text)


def test_repeats_are_counted(suite: Suite) -> None:
    suite.write(
        """
        def recur(depth):
            return recur(depth - 1) if depth else block(0.15)

        async def test_again_and_again():
            for _ in range(6):
                block(0.15)
                await asyncio.sleep(0)
            recur(50)
        """
    )
    text = failure(suite.watched().text)
    more = [
        int(count) for count in re.findall(r"^E     and (\d+) more in the same place, ", text, re.MULTILINE)
    ]
    assert len(more) == 1
    assert 4 <= more[0] <= 6, "all, but for what a busy machine hid"
    assert len(text.splitlines()) < 100


def test_other_places_are_shown_too(suite: Suite) -> None:
    suite.write(
        """
        def other():
            time.sleep(0.4)

        async def test_twice():
            block(0.2)
            await asyncio.sleep(0)
            other()
        """
    )
    text = failure(suite.watched().text)
    assert text.count("LoopBlocked: event loop blocked") == 2
    assert "The event loop was blocked in another place too:" in text
    assert "more in the same place" not in text


def test_fixtures_are_charged(suite: Suite) -> None:
    suite.write(
        """
        import pytest_asyncio

        @pytest_asyncio.fixture
        async def quick():
            yield 1

        @pytest_asyncio.fixture
        async def slow_setup(quick):
            block()
            yield quick

        @pytest_asyncio.fixture
        async def slow_teardown(quick):
            yield quick
            block()

        async def test_setup(slow_setup):
            pass
        async def test_teardown(slow_teardown):
            pass
        """
    )
    text = suite.watched().text
    assert "ERROR at setup of test_setup" in text
    assert "setup of fixture 'slow_setup'" in text
    assert "ERROR at teardown of test_teardown" in text
    assert "teardown of fixture 'slow_teardown'" in text
    assert "fixture 'quick'" not in text
    assert "1 passed, 2 errors" in text


def test_a_shared_fixture_is_not_held_to_the_limit_of_one_test(suite: Suite) -> None:
    suite.write(
        """
        import pytest_asyncio

        @pytest_asyncio.fixture(scope="session", loop_scope="session")
        async def shared():
            block(0.15)
            yield 1

        @pytest.mark.loopwatch(threshold="50ms")
        def test_first(shared):
            pass
        """
    )
    assert suite.watched("--loopwatch-threshold=2s").outcomes == {"test_first": "PASSED"}


def test_a_test_that_fails_anyway_says_both(suite: Suite) -> None:
    suite.write(
        """
        async def test_it():
            block()
            assert "this" == "that"
        """
    )
    text = suite.watched().text
    assert "AssertionError" in text
    assert "Captured loopwatch call" in text
    assert "event loop blocked for" in text


def test_expected_failures(suite: Suite) -> None:
    suite.write(
        """
        @pytest.mark.xfail(strict=True)
        async def test_blocks():
            block()
        """
    )
    assert suite.watched().outcomes == {"test_blocks": "XFAIL"}


def test_warn(suite: Suite) -> None:
    suite.write(TWO_FUNCTIONS)
    ran = suite.watched("--loopwatch-mode=warn")
    assert ran.outcomes == {"test_blocks": "PASSED"}
    assert "test_it.py:6: LoopwatchWarning: test_it.py::test_blocks: event loop blocked" in ran.text


def test_warnings_that_are_errors(suite: Suite) -> None:
    """They show the culprit, as a failure does, and take no other failure's place."""
    suite.write(TWO_FUNCTIONS + "\nasync def test_fails():\n    fetch()\n    assert 'this' == 'that'\n")
    ran = suite.watched("--loopwatch-mode=warn", "-W", "error")
    assert ran.outcomes == {"test_blocks": "FAILED", "test_fails": "FAILED"}
    blocks, _, fails = ran.text.partition("_ test_fails _")
    marked = re.findall(r"^>   (.*)$", blocks, re.MULTILINE)
    assert [line.strip() for line in marked] == ["fetch()", "block()", "time.sleep(seconds)"]
    assert "E   LoopwatchWarning: event loop blocked for" in blocks
    assert "loopwatch/pytest" not in ran.text
    assert "AssertionError" in fails
    assert "Captured loopwatch call" in fails


def test_report(suite: Suite) -> None:
    suite.write(
        TWO_FUNCTIONS
        + "\nasync def test_more():\n    block(0.2)\n    await asyncio.sleep(0)\n    block(0.2)\n"
    )
    ran = suite.watched("--loopwatch-mode=report")
    assert ran.outcomes == {"test_blocks": "PASSED", "test_more": "PASSED"}
    summary = ran.text.partition("where event loops were blocked")[2]
    line = next(line for line in summary.splitlines() if "test_it.py:6 block" in line)
    assert line.split()[4:6] == ["3", "blocking-call"]
    assert "[test_it.py::test_blocks]" in line, "the worst"


def test_quiet_when_nothing_was_blocked(suite: Suite) -> None:
    suite.write("async def test_clean():\n    await asyncio.sleep(0)\n")
    ran = suite.watched()
    assert ran.returncode == 0
    assert "where event loops were blocked" not in ran.text
