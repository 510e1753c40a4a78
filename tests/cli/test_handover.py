"""What the other process can put into the directory that it was given."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopwatch import _page
from loopwatch.cli import _remote
from loopwatch.cli._handover import Handover, remove_leftovers, user_of


@pytest.fixture
def handover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Handover]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    it = Handover(os.getpid())
    yield it
    if not it.closed:
        it.close(keep=False)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text('{"answer": {"secret": 1}}')
    path.chmod(0o600)
    return path


def test_the_way_it_is_meant(handover: Handover) -> None:
    handover.write("text")
    handover.give(*user_of(os.getpid()))
    assert handover.script.read_text() == "text"
    assert handover.script.stat().st_mode & 0o777 == 0o644
    assert handover.directory.stat().st_mode & 0o777 == 0o700
    assert handover.seen_by(os.getpid())
    assert handover.answer() is None
    (handover.directory / "answer").write_text('{"answer": {}}')
    assert handover.answer() == {"answer": {}}
    handover.close(keep=False)
    assert not handover.directory.exists()


def test_a_script_that_somebody_has_planted_is_not_written_to(handover: Handover, victim: Path) -> None:
    before = (victim.read_text(), victim.stat().st_mode)
    handover.script.symlink_to(victim)
    with pytest.raises(FileExistsError):
        handover.write("text")
    assert (victim.read_text(), victim.stat().st_mode) == before


PLANTED: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda answer, victim: answer.symlink_to(victim),
    "a pipe": lambda answer, _: os.mkfifo(answer),
    "a directory": lambda answer, _: answer.mkdir(),
    "too much": lambda answer, _: answer.write_text(json.dumps({"answer": "x" * (1 << 17)})),
    "no JSON": lambda answer, _: answer.write_text("{"),
    "no UTF-8": lambda answer, _: answer.write_bytes(b'{"\xff": 1}'),
    "no object": lambda answer, _: answer.write_text("[]"),
    "too deep": lambda answer, _: answer.write_text("[" * 60_000),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_no_answer_is_refused(handover: Handover, victim: Path, planted: str) -> None:
    PLANTED[planted](handover.directory / "answer", victim)
    with pytest.raises(ValueError, match="its answer"):
        handover.answer()
    if (handover.directory / "answer").is_dir():
        (handover.directory / "answer").rmdir()


def test_a_link_in_place_of_the_directory_is_not_followed(handover: Handover, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("script.py", "answer"):
        (theirs / name).write_text('{"answer": {}}')
    handover.directory.rename(tmp_path / "moved")
    handover.directory.symlink_to(theirs)
    assert handover.answer() is None
    handover.close(keep=False)
    assert len(list(theirs.iterdir())) == 2
    (tmp_path / "moved").rmdir()
    handover.directory.unlink()


@pytest.mark.parametrize(
    "answer", [{}, {"answer": []}, {"answer": {"left": "1"}}, {"answer": {"left": True}}]
)
def test_an_answer_of_another_shape(answer: dict[str, object]) -> None:
    with pytest.raises(_remote.RemoteError, match="not one of this loopwatch"):
        _remote._result(1, answer, {"left": int})


def test_no_text_of_it_reaches_the_terminal_raw() -> None:
    evil = {"problem": "\x1b[2J", "text": "\x1b]0;owned\x07"}
    with pytest.raises(_remote.RemoteError) as caught:
        _remote._result(1, evil, {})
    assert str(caught.value).isprintable()
    assert str(_remote.RemoteError("\x1b[2J")).isprintable()


# --- what is left behind ---


def leave(tmp_path: Path, pid: int, start: int, asker: int) -> Path:
    directory = tmp_path / f"loopwatch-attach-{pid}-{start}-{asker}-abc"
    directory.mkdir(0o700)
    (directory / "script.py").write_text("pass")
    return directory


def test_the_leftovers_of_dead_processes_are_removed(handover: Handover, tmp_path: Path) -> None:
    handover.write("of one that runs")
    dead = leave(tmp_path, 999999999, 1, os.getpid())
    reused = leave(tmp_path, os.getpid(), 1, os.getpid())
    other = tmp_path / "loopwatch-attach-notes"
    other.mkdir()
    remove_leftovers()
    assert not dead.exists()
    assert not reused.exists()
    assert handover.script.exists()
    assert other.exists()


def test_older_scripts_of_one_that_has_answered_are_removed(handover: Handover, tmp_path: Path) -> None:
    start = _page.process_start(os.getpid())
    assert start is not None
    given_up = leave(tmp_path, os.getpid(), start, 999999999)
    remove_leftovers(os.getpid() + 1)
    assert given_up.exists()
    remove_leftovers(os.getpid())
    assert not given_up.exists()
    assert handover.directory.exists(), "somebody waits for it"


def test_leftovers_are_not_sought_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "script.py").write_text("precious")
    (tmp_path / "loopwatch-attach-999999999-1-1-x").symlink_to(theirs)
    remove_leftovers()
    assert (theirs / "script.py").read_text() == "precious"
