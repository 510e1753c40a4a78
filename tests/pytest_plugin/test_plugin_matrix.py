"""Whoever runs a test's loop: what blocks it fails that test, and no other."""

from __future__ import annotations

import pytest
from suites import Suite

pytest.importorskip("pytest_asyncio")
pytest.importorskip("anyio")


def blocked_and_clean(suite: Suite, source: str, *options: str) -> None:
    """Tests whose name has "blocks" fail, the others pass."""
    suite.write(source)
    ran = suite.watched(*options)
    assert ran.outcomes, ran.text
    expected = {name: "FAILED" if "blocks" in name else "PASSED" for name in ran.outcomes}
    assert ran.outcomes == expected, ran.text
    assert any("blocks" in name for name in ran.outcomes)
    assert any("blocks" not in name for name in ran.outcomes)


def test_pytest_asyncio_in_all_scopes(suite: Suite) -> None:
    tests = "".join(
        f"""
        @pytest.mark.asyncio(loop_scope="{scope}")
        class Test{scope.title()}:
            async def test_{scope}_clean(self):
                await asyncio.sleep(0.01)
            async def test_{scope}_blocks(self):
                await asyncio.sleep(0.01)
                block()
            async def test_{scope}_clean_again(self):
                await asyncio.sleep(0.01)
        """
        for scope in ("function", "class", "module", "package", "session")
    )
    blocked_and_clean(suite, tests)


def test_anyio(suite: Suite) -> None:
    source = """
    import anyio
    pytestmark = pytest.mark.anyio

    @pytest.fixture(scope="module")
    def anyio_backend():
        return "asyncio"

    async def test_clean():
        await anyio.sleep(0.01)

    async def test_blocks():
        await anyio.sleep(0.01)
        block()

    async def test_clean_again():
        await anyio.sleep(0.01)
    """
    suite.write(source)
    ran = suite.watched("-p", "no:asyncio")
    assert ran.outcomes == {"test_clean": "PASSED", "test_blocks": "FAILED", "test_clean_again": "PASSED"}


def test_without_a_plugin_for_async_tests(suite: Suite) -> None:
    """unittest, loops that a test runs itself, in this thread and in others."""
    blocked_and_clean(
        suite,
        """
        class TestCase(unittest.IsolatedAsyncioTestCase):
            async def asyncSetUp(self):
                await asyncio.sleep(0)
            async def test_case_clean(self):
                await asyncio.sleep(0.01)
            async def test_case_blocks(self):
                block()

        async def sleep(blocks):
            await asyncio.sleep(0.01)
            if blocks:
                block()

        def test_run_clean():
            asyncio.run(sleep(False))
        def test_run_blocks():
            asyncio.run(sleep(True))
        def test_sync_may_sleep():
            block()
        def test_runner_blocks():
            with asyncio.Runner() as runner:
                runner.run(sleep(False))
                block()
                runner.run(sleep(True))
        def test_thread_blocks():
            thread = threading.Thread(target=asyncio.run, args=(sleep(True),))
            thread.start()
            thread.join()
        def test_debug_mode_blocks():
            asyncio.run(sleep(True), debug=True)
        def test_debug_mode_clean():
            asyncio.run(sleep(False), debug=True)
        """,
    )


def test_uvloop(suite: Suite) -> None:
    pytest.importorskip("uvloop")
    blocked_and_clean(
        suite,
        """
        import uvloop

        @pytest.fixture(scope="session")
        def event_loop_policy():
            return uvloop.EventLoopPolicy()

        async def test_policy_blocks():
            assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
            block()
        async def test_policy_clean():
            await asyncio.sleep(0.01)
        def test_run_blocks():
            async def main():
                block()
            uvloop.run(main())
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


def test_a_loop_in_a_thread_that_outlives_its_test(suite: Suite) -> None:
    """What goes on when its test ends is that test's, and only its."""
    blocked_and_clean(
        suite,
        """
        loop = asyncio.new_event_loop()

        @pytest.fixture(scope="session", autouse=True)
        def service():
            thread = threading.Thread(target=loop.run_forever, name="service")
            thread.start()
            yield
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

        def test_clean():
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), loop).result()
        def test_blocks():
            loop.call_soon_threadsafe(block, 1.0)
            time.sleep(0.4)
        def test_clean_again():
            time.sleep(0.8)
        """,
    )


@pytest.mark.parametrize("options", [("-n", "2"), ("-n", "2", "--dist", "loadfile")])
def test_xdist(suite: Suite, options: tuple[str, ...]) -> None:
    pytest.importorskip("xdist")
    for i in range(2):
        suite.write(
            f"""
            async def test_clean_{i}():
                await asyncio.sleep(0.01)
            async def test_blocks_{i}():
                block()
            """,
            f"test_{i}.py",
        )
    ran = suite.watched(*options)
    assert ran.outcomes == {
        "test_clean_0": "PASSED",
        "test_blocks_0": "FAILED",
        "test_clean_1": "PASSED",
        "test_blocks_1": "FAILED",
    }, ran.text
    summary = ran.text.partition("where event loops were blocked")[2]
    table = summary.partition("short test summary")[0]  # it has whole messages where the variable CI is set
    assert "test_0.py:6 block" in table, "from both workers, or from one where that ran both"
    assert table.count("blocking-call") == 2, "one line for each file's block()"
