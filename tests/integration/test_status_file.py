"""The file of a status page: where it is and when, whose it may be, and how it is read."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import next_fact, run_program, started, wait_until
from statuspages import service

import loopwatch
from loopwatch import _page
from loopwatch._status import status_page


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "page"
    assert not list(tmp_path.glob(".page*")), "a half-made page was left"


# --- the file ---


def test_it_is_private(page: Path) -> None:
    mask = os.umask(0)
    try:
        with started(service("await asyncio.sleep(20)"), page) as program:
            next_fact(program)
            assert page.stat().st_mode & 0o777 == 0o600
            assert page.stat().st_size == _page.SIZE
    finally:
        os.umask(mask)


@pytest.fixture
def loop() -> Iterator[Any]:
    import asyncio

    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def watch(loop: Any, where: Any) -> loopwatch.Watch:
    return loopwatch.install(loop, log=False, dump_to=False, status=where)


def test_the_default_place(loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with watch(loop, True):
        assert status_page.path == tmp_path / "loopwatch" / f"{os.getpid()}.page" == _page.find(os.getpid())
        assert status_page.path.parent.stat().st_mode & 0o777 == 0o700
    assert status_page.path is None
    assert list((tmp_path / "loopwatch").iterdir()) == []
    with pytest.raises(FileNotFoundError, match="no status page"):
        _page.find(os.getpid())


def test_old_pages_of_killed_processes_are_swept_up(
    loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    directory = tmp_path / "loopwatch"
    directory.mkdir(mode=0o700)
    facts = {"pid": os.getpid(), "start": 1, "argv": []}  # another process had the number
    for name, age in (("1.page", 8 * 86400), ("2.page", 3600), ("other", 8 * 86400)):
        (directory / name).write_bytes(_page.make_head(facts).ljust(_page.SIZE, b"\0"))
        os.utime(directory / name, (time.time() - age,) * 2)
    with watch(loop, True):
        left = {path.name for path in directory.iterdir()}
    assert left == {"2.page", "other", f"{os.getpid()}.page"}


def test_a_directory_that_others_may_write_is_refused(
    loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "loopwatch").mkdir(mode=0o777)
    (tmp_path / "loopwatch").chmod(0o777)
    with pytest.raises(PermissionError, match="0700"):
        watch(loop, True)


def test_a_link_is_refused(loop: Any, tmp_path: Path, page: Path) -> None:
    (tmp_path / "target").write_text("precious")
    page.symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError, match="status"):
        watch(loop, page)
    assert (tmp_path / "target").read_text() == "precious"


def test_another_file_is_not_replaced_but_an_old_page_is(loop: Any, page: Path) -> None:
    page.write_text("precious")
    with pytest.raises(FileExistsError, match="status"):
        watch(loop, page)
    assert page.read_text() == "precious"
    page.write_bytes(_page.MAGIC + b"of an older version")
    with watch(loop, page):
        assert _page.read(page).pid == os.getpid()


def test_the_page_of_a_process_that_runs_is_not_replaced(loop: Any, page: Path) -> None:
    with started(service("await asyncio.sleep(20)"), page) as program:
        next_fact(program)
        with pytest.raises(FileExistsError, match=f"status.*that of process {program.pid}"):
            watch(loop, page)
        assert _page.read(page).pid == program.pid
        program.kill()
        program.wait()
        with watch(loop, page):
            assert _page.read(page).pid == os.getpid()


@pytest.mark.parametrize("of_another", ["file", "directory"])
def test_a_page_that_somebody_else_put_there_is_not_found(
    of_another: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / "loopwatch" / f"{os.getpid()}.page"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(_page.make_head({"pid": os.getpid(), "argv": []}).ljust(_page.SIZE, b"\0"))
    assert _page.find(os.getpid()) == path
    os.chown(path if of_another == "file" else path.parent, 12345, -1)
    with pytest.raises(FileNotFoundError, match="no status page"):
        _page.find(os.getpid())


def test_a_place_that_is_not_there(loop: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        watch(loop, tmp_path / "no" / "page")
    assert not loopwatch._registry.registry().watches()


def test_two_loops_share_a_page(loop: Any, page: Path, tmp_path: Path) -> None:
    import asyncio

    other, third = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        first = watch(loop, page)
        with watch(other, True):  # wherever it is
            assert status_page.path == page
            with pytest.raises(OSError, match="one place"):
                watch(third, tmp_path / "elsewhere")
            first.uninstall()
            wait_until(lambda: len(_page.read(page).body.get("loops", ())) == 1)
        assert not page.exists()
    finally:
        other.close()
        third.close()


def test_a_page_that_was_removed_by_somebody_is_not_missed(loop: Any, page: Path) -> None:
    with watch(loop, page):
        page.unlink()
        page.write_text("of somebody else")
    assert page.read_text() == "of somebody else"


def test_a_truncated_page_harms_nobody(page: Path) -> None:
    body = "os.truncate(sys.argv[1], 0); block(0.2); await asyncio.sleep(0.5); say(done=True)"
    assert run_program(service(body), page).check()["done"]


def test_no_descriptor_is_left(loop: Any, page: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with watch(loop, page):
        pass
    before = descriptors()
    for _ in range(5):
        with watch(loop, page):
            assert descriptors() <= before + 4, "those of the core that every watch has"
    assert descriptors() == before


# --- reading ---


def test_what_is_no_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("hello")
    with pytest.raises(_page.PageError, match="not a status page"):
        _page.read(path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(_page.PageError, match="regular"):
        _page.read(tmp_path / "fifo")


@pytest.mark.parametrize("text", [b"7", b"[]", b"null", b"[" * 3000])
def test_a_head_that_is_none_is_refused(tmp_path: Path, text: bytes) -> None:
    """Its checksum says no more than that it is what somebody wrote."""
    path = tmp_path / "page"
    sizes = (_page.HEAD_BYTES, _page.HALF_BYTES)
    start = _page._HEAD.pack(_page.MAGIC, _page.VERSION, *sizes, len(text), zlib.crc32(text)) + text
    path.write_bytes(start.ljust(_page.SIZE, b"\0"))
    with pytest.raises(_page.PageError, match="broken head"):
        _page.read(path)


def test_an_unknown_version_is_refused(loop: Any, page: Path) -> None:
    with watch(loop, page):
        wait_until(lambda: _page.read(page).body)
        data = bytearray(page.read_bytes())
    data[8] += 1
    page.write_bytes(data)
    with pytest.raises(_page.PageError, match=f"version {_page.VERSION + 1}"):
        _page.read(page)


def test_a_broken_half_does_not_matter(loop: Any, page: Path) -> None:
    with watch(loop, page):
        wait_until(lambda: _page.read(page).body)
        data = bytearray(page.read_bytes())
    sequences = [int.from_bytes(data[at : at + 8], "little") for at in (4096, 4096 + _page.HALF_BYTES)]
    newer = 4096 + _page.HALF_BYTES * (sequences[1] > sequences[0])
    data[newer + 20] ^= 1
    page.write_bytes(data)
    if min(sequences):
        assert _page.read(page).body
    else:
        with pytest.raises(_page.PageError, match="neither"):
            _page.read(page)
