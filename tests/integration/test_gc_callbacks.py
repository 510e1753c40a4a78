"""The stamp in gc.callbacks: there while something is watched, and only then."""

from __future__ import annotations

import asyncio
import gc

from scenario import new_loop, quiet

import loopwatch


def stamps() -> int:
    return sum(getattr(callback, "__name__", "") == "gc_stamp" for callback in gc.callbacks)


def test_it_is_there_from_the_first_install_to_the_last_uninstall() -> None:
    before = list(gc.callbacks)
    one, two = new_loop(), new_loop()
    for _ in range(2):
        loopwatch.install(one, **quiet())
        assert stamps() == 1
        loopwatch.install(two, **quiet())
        assert stamps() == 1
        loopwatch.uninstall(one)
        assert stamps() == 1
        loopwatch.uninstall(two)
        assert gc.callbacks == before
    one.close()
    two.close()


def test_a_program_may_clear_the_callbacks() -> None:
    saved = list(gc.callbacks)

    async def main() -> None:
        gc.callbacks.clear()
        gc.collect()

    with loopwatch.Runner(**quiet()) as runner:
        runner.run(main())
    assert gc.callbacks == []
    gc.callbacks[:] = saved


def test_callbacks_of_the_program_stay_as_they_are() -> None:
    seen: list[str] = []

    def own(phase: str, _info: dict[str, int]) -> None:
        seen.append(phase)

    async def main() -> None:
        gc.callbacks.append(own)
        gc.collect()
        await asyncio.sleep(0)

    with loopwatch.Runner(**quiet()) as runner:
        runner.run(main())
    assert gc.callbacks[-1] is own
    gc.callbacks.remove(own)
    assert seen[:2] == ["start", "stop"]
