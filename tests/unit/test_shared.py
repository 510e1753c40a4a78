"""Copies of what other threads change meanwhile."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Iterator

from loopwatch._shared import copy_shared


class Changing:
    """Is changed in the first tries."""

    def __init__(self, tries: float) -> None:
        self.tries = tries

    def __iter__(self) -> Iterator[int]:
        yield 1
        if self.tries > 0:
            self.tries -= 1
            raise RuntimeError("deque mutated during iteration")
        yield 2


def test_it_is_tried_again_but_not_for_ever() -> None:
    assert copy_shared(Changing(0)) == [1, 2]
    assert copy_shared(Changing(3)) == [1, 2]
    assert copy_shared(Changing(float("inf"))) == []


def test_a_deque_to_which_another_thread_adds() -> None:
    numbers = collections.deque(range(256), maxlen=256)
    over = threading.Event()

    def adds() -> None:
        n = 256
        while not over.is_set():
            numbers.append(n)
            n += 1
            time.sleep(0.0001)  # who adds without end lets nobody make a copy

    thread = threading.Thread(target=adds)
    thread.start()
    try:
        copies = [copy_shared(numbers) for _ in range(500)]
    finally:
        over.set()
        thread.join()
    assert all(copy == list(range(copy[0], copy[0] + 256)) for copy in copies if copy)
    assert any(copies)
