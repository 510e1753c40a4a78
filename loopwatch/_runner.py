"""run() and Runner: asyncio's, watched from before the first task to after the last callback of closing."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from loopwatch._install import put
from loopwatch._options import Options, check_names, make_settings
from loopwatch._watch import Watch

T = TypeVar("T")

if TYPE_CHECKING:

    class _StockRunner:
        """asyncio.Runner, which typeshed calls final and whose _lazy_init it leaves out."""

        def __init__(
            self, *, debug: bool | None, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None
        ) -> None: ...
        def __enter__(self) -> Self: ...
        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
            /,
        ) -> None: ...
        def close(self) -> None: ...
        def get_loop(self) -> asyncio.AbstractEventLoop: ...
        def run(self, coro: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None) -> T: ...
        def _lazy_init(self) -> None: ...

else:
    _StockRunner = asyncio.Runner


class Runner(_StockRunner):
    """asyncio.Runner, whose loop is watched from before its first task until after the last callback of closing.

    `debug` and `loop_factory` are those of asyncio.Runner, the other options those of install(), without `loop`. A
    wrong option is an error here; one that this loop cannot do, such as a `pulse`, is one when the loop is made.
    """

    def __init__(
        self,
        *,
        debug: bool | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._settings = make_settings("Runner", dict(options))
        self._watch: Watch | None = None
        self._has_loop = False
        super().__init__(debug=debug, loop_factory=loop_factory)

    @property
    def watch(self) -> Watch | None:
        """The watch of the runner's loop; None before the loop is made."""
        return self._watch

    def _lazy_init(self) -> None:
        """asyncio.Runner makes its loop here, at its first use."""
        super()._lazy_init()
        if not self._has_loop:
            self._has_loop = True
            try:
                self._watch = put(self.get_loop(), self._settings)
            except BaseException:
                super().close()
                raise

    def close(self) -> None:
        """As asyncio.Runner does; then wait, 2 seconds at most, until the stalls are delivered."""
        try:
            super().close()
        finally:
            if self._watch is not None:
                self._watch.uninstall()


def run(
    main: Coroutine[Any, Any, T],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **options: Unpack[Options],
) -> T:
    """asyncio.run, watched from before the first task until after the last callback of closing.

    `debug` and `loop_factory` are those of asyncio.run, the other options those of install(), without `loop`. The
    answer is that of `main`, and what it raises comes out. Waits at its end, 2 seconds at most, until the stalls are
    delivered. RuntimeError where a loop runs in this thread.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("loopwatch.run() cannot be called from a running event loop")
    check_names("run", dict(options))
    with Runner(debug=debug, loop_factory=loop_factory, **options) as runner:
        return runner.run(main)
