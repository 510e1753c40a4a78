"""Requests in real loops: what is counted, of whom, and that nobody notices."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from asgi_app import CPU, Routed, run, spend, wait
from asgi_client import ask, converse, scope_of
from kinds import kind_fixture
from scenario import new_loop, quiet
from stalling import counts as burn

import loopwatch
from loopwatch.asgi import LoopwatchMiddleware, counted

kind = kind_fixture("turn", "uv")


async def later() -> None:
    await asyncio.sleep(0.001)
    burn(CPU)


async def fail() -> None:
    raise LookupError("mine")


# --- what is counted ---


def test_count_cpu_and_busy_time(kind: str) -> None:
    app = LoopwatchMiddleware(Routed(spend=spend, later=later))

    async def main() -> None:
        for number in range(3):
            await ask(app, f"/spend/{number}")
        await ask(app, "/later/1", "POST")
        await ask(app, "/nowhere/1")
        await ask(app, "/nowhere/1", "BREW")

    began = time.process_time()
    routes = run(kind, main).routes
    assert {name: route.count for name, route in routes.items()} == {
        "GET /spend/{id}": 3,
        "POST /later/{id}": 1,
        "GET <unmatched>": 1,
        "<method> <unmatched>": 1,
    }
    spent = routes["GET /spend/{id}"]
    assert spent.route == "GET /spend/{id}"
    assert 3 * CPU <= spent.cpu <= time.process_time() - began
    assert spent.busy >= 3 * CPU
    assert spent.cpu_per_request == spent.cpu / 3
    assert spent.ceiling == pytest.approx(3 / spent.cpu)
    assert routes["POST /later/{id}"].cpu >= CPU
    assert routes["GET <unmatched>"].cpu < CPU


def test_waiting_and_threads_are_no_time_of_the_loop(kind: str) -> None:
    async def thread() -> None:
        await asyncio.to_thread(burn, 10 * CPU)

    app = LoopwatchMiddleware(Routed(wait=wait, thread=thread))

    async def main() -> None:
        await asyncio.gather(ask(app, "/wait/1"), ask(app, "/thread/1"))

    routes = run(kind, main).routes
    assert routes["GET /wait/{id}"].cpu < 0.3
    assert routes["GET /thread/{id}"].cpu < 10 * CPU


def test_websockets(kind: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["loopwatch.route"] = "/feed"
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            burn(CPU)
            await send({"type": "websocket.send", "text": message["text"].upper()})

    async def main() -> None:
        assert await converse(LoopwatchMiddleware(app), "/feed", "a", "b") == ["A", "B"]

    routes = run(kind, main).routes
    assert list(routes) == ["WS /feed"]
    assert routes["WS /feed"].cpu >= 2 * CPU


def test_one_that_goes_on_is_there_before_it_ends(kind: str) -> None:
    seen: list[loopwatch.RouteStats] = []

    async def step() -> None:
        for _ in range(5):
            burn(CPU)
            await asyncio.sleep(0.001)
        seen.append(watch.routes["GET /step/{id}"])

    loop = new_loop(kind)
    with loopwatch.install(loop, **quiet()) as watch:
        loop.run_until_complete(ask(LoopwatchMiddleware(Routed(step=step)), "/step/1"))
    loop.close()
    assert seen[0].count == 0
    assert seen[0].cpu >= 4 * CPU


def test_an_exception_and_a_cancellation_end_a_request(kind: str) -> None:
    app = LoopwatchMiddleware(Routed(fail=fail, wait=wait))

    async def main() -> None:
        with pytest.raises(LookupError, match="mine") as caught:
            await ask(app, "/fail/1")
        assert [entry.name for entry in caught.traceback][-4:] == ["ask", "__call__", "__call__", "fail"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ask(app, "/wait/1")

    routes = run(kind, main).routes
    assert {name: route.count for name, route in routes.items()} == {
        "GET /fail/{id}": 1,
        "GET /wait/{id}": 1,
    }


def test_child_tasks_count_where_they_are_told_to(kind: str) -> None:
    async def work(result: int) -> int:
        await asyncio.sleep(0.001)
        burn(CPU)
        return result

    async def split() -> None:
        assert await asyncio.gather(counted(work(1)), counted(counted(work(2)))) == [1, 2]

    async def named() -> None:
        task = asyncio.create_task(counted(work(4)))
        assert "work" in repr(task)
        await task

    async def lost() -> None:
        await asyncio.gather(work(1), work(2))

    app = LoopwatchMiddleware(Routed(split=split, lost=lost, named=named))

    async def main() -> None:
        await ask(app, "/split/1")
        await ask(app, "/lost/1")
        await ask(app, "/named/1")
        assert await counted(work(3)) == 3

    routes = run(kind, main).routes
    assert routes["GET /split/{id}"].cpu >= 2 * CPU
    assert routes["GET /lost/{id}"].cpu < 2 * CPU


def test_a_middleware_inside_another_counts_once() -> None:
    app = LoopwatchMiddleware(LoopwatchMiddleware(Routed(spend=spend)))

    async def main() -> None:
        await ask(app, "/spend/1")

    began = time.process_time()
    routes = run("turn", main).routes
    assert routes["GET /spend/{id}"].count == 1
    assert routes["GET /spend/{id}"].cpu <= time.process_time() - began


def test_a_request_inside_a_request_is_one_of_its_own() -> None:
    async def outer() -> None:
        await ask(app, "/spend/1")

    app = LoopwatchMiddleware(Routed(spend=spend, outer=outer))

    async def main() -> None:
        await ask(app, "/outer/1")

    routes = run("turn", main).routes
    assert routes["GET /spend/{id}"].count == routes["GET /outer/{id}"].count == 1
    assert routes["GET /outer/{id}"].cpu >= routes["GET /spend/{id}"].cpu >= CPU


def test_any_awaitable_will_do() -> None:
    class Answer:
        def __init__(self, *_: Any) -> None:
            pass

        def __await__(self) -> Any:
            yield from asyncio.sleep(0.001).__await__()
            burn(CPU)

    async def main() -> None:
        await LoopwatchMiddleware(Answer)(scope_of("/"), None, None)  # type: ignore[arg-type]

    assert run("turn", main).routes["GET <unmatched>"].cpu >= CPU


# --- who is counted ---


def test_nothing_is_counted_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    routed = Routed(spend=spend)
    app = LoopwatchMiddleware(routed)

    async def main() -> None:
        await ask(app, "/spend/1")
        assert "loopwatch.request" not in routed.scopes[-1]

    asyncio.run(main())
    monkeypatch.setenv("LOOPWATCH", "0")
    loop = new_loop()
    watch = loopwatch.install(loop)
    loop.run_until_complete(main())
    loop.close()
    assert watch.routes == {}


def test_lifespan_is_handed_on_as_it_is() -> None:
    routed = Routed()
    scope = {"type": "lifespan"}

    async def main() -> None:
        await LoopwatchMiddleware(routed)(scope, None, None)  # type: ignore[arg-type]

    assert run("turn", main).routes == {}
    assert routed.scopes == [scope]
    assert routed.scopes[0] is scope


def test_one_middleware_on_two_loops() -> None:
    app = LoopwatchMiddleware(Routed(spend=spend))
    watches = []

    def serve() -> None:
        async def main() -> None:
            for _ in range(5):
                await ask(app, "/spend/1")
                await asyncio.sleep(0)

        watches.append(run("turn", main))

    threads = [threading.Thread(target=serve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for watch in watches:
        assert {name: route.count for name, route in watch.routes.items()} == {"GET /spend/{id}": 5}
        assert watch.routes["GET /spend/{id}"].cpu >= 5 * CPU


def test_installed_and_uninstalled_in_the_middle_of_a_request() -> None:
    watches = []

    async def begin() -> None:
        watches.append(loopwatch.install(**quiet()))
        await asyncio.sleep(0)

    async def end() -> None:
        began = time.thread_time()
        loopwatch.uninstall()
        burn(CPU)
        first_step.append(time.thread_time() - began)
        await asyncio.sleep(0)
        watches.append(loopwatch.install(**quiet()))
        burn(5 * CPU)
        await asyncio.sleep(0)

    first_step: list[float] = []
    app = LoopwatchMiddleware(Routed(begin=begin, end=end, spend=spend))

    async def main() -> None:
        for name in ("begin", "spend", "end", "spend"):
            await ask(app, f"/{name}/1")

    asyncio.run(main())
    counts = [{name: route.count for name, route in watch.routes.items()} for watch in watches]
    assert counts == [{"GET /spend/{id}": 1, "GET /end/{id}": 1}, {"GET /spend/{id}": 1}]
    # Counted is the step in which the watch ended, and none of the later ones.
    assert watches[0].routes["GET /end/{id}"].cpu <= first_step[0] + 2 * CPU
    for watch in watches:
        watch.uninstall()
