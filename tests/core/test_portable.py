"""The portable build: no guarded reads, a shared descriptor table, and both say so."""

import ctypes
import errno
import os

import pytest

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(hasattr(_testcore, "map_hole"), reason="not the portable build")


def test_reads_nothing() -> None:
    buffer = ctypes.create_string_buffer(8)
    for backend in range(-1, 5):
        facts = _testcore.reader_facts(backend, True, -1)
        assert (facts["backend"], facts["errors"]) == ("none", (-1,) * 5)
        assert _testcore.read_batch(backend, -1, [(ctypes.addressof(buffer), 8)]) == []


def test_shares_the_descriptor_table() -> None:
    worker = _testcore.worker_new()
    facts = _testcore.worker_facts(worker)
    assert (facts["own"], facts["error"]) == (False, errno.ENOSYS)
    read_end, write_end = os.pipe()
    assert _testcore.worker_write(worker, write_end, b"a dup") == 0
    assert os.read(read_end, 100) == b"a dup"
    os.close(read_end)
    os.close(write_end)


def test_tasks_are_not_read_and_there_is_a_reason() -> None:
    result, reason = _testcore.task_setup()
    assert result
    assert "read" in reason
    seen = _testcore.task_of(_testcore.tstate_here())
    assert (seen["loop_known"], seen["known"], seen["task"]) == (False, False, 0)
