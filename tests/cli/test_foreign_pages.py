"""A page is another process's word: what it says is neither believed nor sent to the terminal as it is."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pages import FACTS, body, write_page

from loopwatch import _page
from loopwatch.cli import _lines, _page_check, _page_source, _pages

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\n"


def paths(thing: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(thing, dict | list):
        items = thing.items() if isinstance(thing, dict) else enumerate(thing)
        for key, value in items:
            yield from paths(value, (*at, key))


def changed(thing: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    new = copy.deepcopy(thing)
    inner = new
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return new


def shown(path: Path) -> str:
    page = _page_check.read(path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert _lines.follow(page, 0.01) == 0
    return "\n".join([*_pages.report(page), out.getvalue()])


def harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def test_the_page_that_is_changed_below_is_sound(tmp_path: Path) -> None:
    text = shown(write_page(tmp_path / "page", body()))
    assert "python in spin (app.py:3), task 'Task-1'" in text
    assert "in all 10 turns" in text


@pytest.mark.parametrize("where", [at for at in paths(body()) if isinstance(at, tuple)], ids=str)
def test_no_text_of_it_reaches_the_terminal_raw(tmp_path: Path, where: tuple[Any, ...]) -> None:
    path = write_page(tmp_path / "page", changed(body(), where, EVIL))
    with contextlib.suppress(_page.PageError):
        assert harmless(shown(path))


def test_nor_the_names_of_causes(tmp_path: Path) -> None:
    path = write_page(tmp_path / "page", changed(body(), ("current", 0, "causes"), {EVIL: 1}))
    assert "owned" in shown(path)
    assert harmless(shown(path))


@pytest.mark.parametrize("name", FACTS)
def test_nor_its_head(tmp_path: Path, name: str) -> None:
    path = write_page(tmp_path / "page", body(), FACTS | {name: [EVIL] if name == "argv" else EVIL})
    with contextlib.suppress(_page.PageError):
        assert harmless(shown(path))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 1 << 63)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text("akey", max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.sampled_from(list(paths(body()))), ANYTHING)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_any_other_shape_is_refused_or_shown(tmp_path: Path, where: tuple[Any, ...], value: Any) -> None:
    path = write_page(tmp_path / "page", changed(body(), where, value))
    with contextlib.suppress(_page.PageError):
        assert harmless(shown(path))


@pytest.mark.parametrize("facts", [[], 7, {}, FACTS | {"pid": "1"}, FACTS | {"argv": [1]}])
def test_a_head_of_another_shape_is_refused(tmp_path: Path, facts: Any) -> None:
    with pytest.raises(_page.PageError):
        _page_check.read(write_page(tmp_path / "page", body(), facts))


def test_a_heartbeat_tells_no_turns_and_no_share(tmp_path: Path) -> None:
    said = changed(body(), ("loops", 0, "pulse"), "heartbeat")
    assert "busy -, worst turn" in shown(write_page(tmp_path / "page", said))
    assert "in all - turns" in shown(write_page(tmp_path / "page", said))
    for name in ("turns", "idle", "gil_wait"):
        del said["loops"][0][name], said["loops"][0]["recent"][name]
    assert "busy -, worst turn" in shown(write_page(tmp_path / "page", said))


# --- source ---


def stack_of(tmp_path: Path, file: Path | str) -> str:
    said = changed(body(), ("current", 0, "stack"), f'  File "{file}", line 1, in spin')
    return shown(write_page(tmp_path / "page", said, FACTS | {"created": time.time_ns()}))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text("secret = 1\n")
    os.utime(path, (1e9, 1e9))
    return path


def test_a_line_of_a_source_is_shown(tmp_path: Path, source: Path) -> None:
    assert "secret = 1" in stack_of(tmp_path, source)


def test_not_of_a_file_that_has_changed_since(tmp_path: Path, source: Path) -> None:
    os.utime(source, (time.time() + 60,) * 2)
    assert "secret" not in stack_of(tmp_path, source)


def test_not_of_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in (tmp_path / "fifo", "/dev/zero", tmp_path, "app.py"):
        stack_of(tmp_path, name)  # and it does not hang


def test_not_of_a_file_that_the_page_s_owner_may_not_read(source: Path) -> None:
    source.chmod(0o640)
    status = source.stat()
    assert _page_source._is_source(status, os.geteuid())
    assert not _page_source._is_source(status, os.geteuid() + 1)
    source.chmod(0o644)
    assert _page_source._is_source(source.stat(), os.geteuid() + 1)
