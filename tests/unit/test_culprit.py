"""Whom the weights point at."""

import subprocess
import sys
from pathlib import Path

import pytest
from records import APP, BASE_EVENTS, LIBRARY, sample

from loopwatch import _paths
from loopwatch._culprit import Import, blamed_frame, find_import, find_sites, fingerprint, heaviest_stack
from loopwatch._stall import Frame, Verdict

STDLIB = Path(sys.modules["asyncio"].__file__).parent
MAIN = Frame("/srv/app/main.py", 3, "<module>")
RUNNER = Frame("/usr/lib/python3.12/asyncio/runners.py", 118, "Runner.run")
ONCE = Frame(BASE_EVENTS, 1986, "BaseEventLoop._run_once")
HANDLE = Frame(str(STDLIB / "events.py"), 88, "Handle._run")
LOAD = Frame(APP, 20, "load")
SEND = Frame(LIBRARY, 5, "send")


def test_the_innermost_own_frame():
    assert blamed_frame((MAIN, RUNNER, ONCE, HANDLE, Frame(APP, 9, "main"), LOAD, SEND)) == LOAD


def test_who_started_the_loop_is_not_to_blame():
    assert blamed_frame((MAIN, RUNNER, ONCE, HANDLE, SEND)) == SEND


def test_a_loop_in_c_shows_its_runner_only():
    assert blamed_frame((MAIN, RUNNER, SEND)) == SEND


def test_the_loop_itself():
    assert blamed_frame((MAIN, RUNNER, ONCE)) == ONCE


def test_a_loop_inside_a_callback():
    nested = (MAIN, ONCE, LOAD, RUNNER, ONCE, Frame(APP, 30, "inner"))
    assert blamed_frame(nested) == Frame(APP, 30, "inner")


def test_no_frames():
    assert blamed_frame(()) is None
    assert find_sites([sample(1.0)]) == ()


def test_own_prefixes():
    stack = (MAIN, ONCE, LOAD, SEND)
    assert blamed_frame(stack, ("driver",)) == LOAD  # not below any entry of sys.path: no module name
    assert blamed_frame(stack, (str(Path(LIBRARY).parent),)) == SEND
    assert blamed_frame(stack, (str(Path(LIBRARY).parent)[:-1],)) == LOAD, "half a name is no prefix"


def test_own_module_prefix(monkeypatch):
    monkeypatch.syspath_prepend("/srv/venv/lib/python3.12/site-packages")
    stack = (MAIN, ONCE, LOAD, SEND)
    assert blamed_frame(stack, ("driver",)) == SEND
    assert blamed_frame(stack, ("driver.client",)) == SEND
    assert blamed_frame(stack, ("driv",)) == LOAD


def test_function_first_then_line():
    """Four lines of `parse` outweigh the single line of `load`, and the heaviest of the four is shown."""
    parse = [Frame(APP, line, "parse") for line in (40, 41, 42, 43)]
    samples = [sample(0.3, LOAD)] + [sample(w, f) for w, f in zip((0.1, 0.2, 0.05, 0.05), parse, strict=True)]
    first, second = find_sites(samples)
    assert first.frame == parse[1]
    assert first.seconds == pytest.approx(0.4)
    assert first.members == (1, 2, 3, 4)
    assert (second.frame, second.members) == (LOAD, (0,))


def test_one_line_with_two_expressions_counts_as_one_line():
    left, right = Frame(APP, 40, "parse", 40, 0, 5), Frame(APP, 40, "parse", 40, 6, 9)
    other = Frame(APP, 41, "parse", 41, 0, 5)
    (site,) = find_sites([sample(0.1, left), sample(0.15, right), sample(0.2, other)])
    assert site.frame == right


def test_the_stack_that_weighs_most_and_has_the_culprit():
    deep, flat = (MAIN, LOAD, SEND), (MAIN, LOAD)
    samples = [sample(0.1, *deep), sample(0.15, *flat), sample(0.1, *deep), sample(0.16, MAIN)]
    assert heaviest_stack(samples, find_sites(samples)[0]).frames == deep
    assert heaviest_stack([sample(1.0)], None) is None


# --- whose code it is ---


@pytest.mark.parametrize(
    ("filename", "own"),
    [
        (APP, True),
        (LIBRARY, False),
        ("/usr/lib/python3/dist-packages/apt/cache.py", False),
        ("/srv/my-site-packages/app.py", True),
        (str(STDLIB / "events.py"), False),
        (str(STDLIB.resolve() / "events.py"), False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", True),
        ("<ipython-input-3-abc>", True),
        (_paths.__file__, False),
    ],
)
def test_own(filename, own):
    assert _paths.is_own(filename) is own


def test_relative_path_and_module(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/srv", "/srv/app", "", *sys.path])
    assert _paths.relative_path(APP) == "shop/orders.py"
    assert _paths.module_name(APP) == "shop.orders"
    assert _paths.module_name("/srv/app/shop/__init__.py") == "shop"
    assert _paths.relative_path("/elsewhere/x/job.py") == "job.py"
    assert _paths.module_name("<frozen zipimport>") == "zipimport"
    assert _paths.relative_path(str(Path.cwd() / "here.py")) == "here.py"


@pytest.mark.parametrize(
    ("filename", "module"),
    [
        (APP, ""),
        (LIBRARY, "driver.client"),
        ("/usr/lib/python3/dist-packages/apt/__init__.py", "apt"),
        (str(STDLIB / "events.py"), "asyncio.events"),
        (str(STDLIB.parent / "json" / "__init__.py"), "json"),
        ("<frozen importlib._bootstrap>", "importlib._bootstrap"),
        ("<string>", ""),
    ],
)
def test_library_module(filename, module):
    assert _paths.library_module(filename) == module


# --- imports ---

MACHINERY = Frame("<frozen importlib._bootstrap>", 1360, "_find_and_load")
HEAVY = Frame("/x/site-packages/heavy/__init__.py", 3, "<module>")


def test_the_outermost_import_of_the_turn():
    first, second = Frame("/srv/a.py", 1, "<module>"), Frame("/srv/b.py", 1, "<module>")
    found = find_import((MAIN, ONCE, LOAD, MACHINERY, MACHINERY, first, MACHINERY, second))
    assert found == Import(2, "a")


def test_an_import_that_is_still_looking_has_no_name():
    assert find_import((ONCE, LOAD, MACHINERY)) == Import(1, "")
    inner = Frame("<frozen importlib._bootstrap_external>", 1, "get_data")
    assert find_import((ONCE, LOAD, MACHINERY, inner, Frame("/x/hook.py", 1, "find_spec"))).module == ""


def test_no_import():
    assert find_import(()) is None
    assert find_import((ONCE, LOAD, SEND)) is None
    assert find_import((MAIN, MACHINERY, MAIN, ONCE, LOAD)) is None, "not of this turn"
    assert find_import((ONCE, MACHINERY)) is None, "nobody asked for it"


def test_who_imports_is_blamed():
    body = Frame(APP, 1, "<module>")
    assert blamed_frame((MAIN, ONCE, LOAD, MACHINERY, HEAVY)) == LOAD
    assert blamed_frame((MAIN, ONCE, LOAD, SEND, MACHINERY, HEAVY, MACHINERY, body)) == LOAD
    assert blamed_frame((MAIN, ONCE, SEND, MACHINERY, HEAVY, MACHINERY, body)) == body
    assert blamed_frame((MAIN, ONCE, SEND, MACHINERY, HEAVY)) == HEAVY


def test_a_coroutine_without_own_frames():
    outer, inner = Frame(LIBRARY, 1, "Cycle.run"), Frame(LIBRARY, 9, "Cycle.run")
    assert blamed_frame((MAIN, ONCE, outer, SEND, inner, SEND), (), "Cycle.run") == outer
    assert blamed_frame((MAIN, ONCE, outer, SEND), (), "other") == SEND
    assert blamed_frame((MAIN, ONCE, outer, LOAD, SEND), (), "Cycle.run") == LOAD
    assert blamed_frame((outer, ONCE, SEND), (), "Cycle.run") == SEND, "not of this turn"


# --- fingerprint ---

PROGRAM = """
import sys
sys.path.insert(0, {entry!r})
from loopwatch._culprit import fingerprint
from loopwatch._stall import Frame, Verdict
print(fingerprint(Verdict.GIL, Frame({entry!r} + "/shop/orders.py", {lineno}, "load")))
"""


def test_fingerprint_without_a_culprit_is_the_verdicts():
    assert fingerprint(Verdict.SUSPENDED, None) == fingerprint(Verdict.SUSPENDED, None)
    assert fingerprint(Verdict.SUSPENDED, None) != fingerprint(Verdict.NOT_SCHEDULED, None)


def test_fingerprint_is_the_same_elsewhere_and_after_lines_moved(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/srv/app", *sys.path])
    here = fingerprint(Verdict.GIL, LOAD)
    assert here != fingerprint(Verdict.GC, LOAD)
    assert here != fingerprint(Verdict.GIL, Frame(APP, 20, "store"))
    assert here == fingerprint(Verdict.GIL, Frame(APP, 2000, "load"))
    assert fingerprint(Verdict.UNKNOWN, None) == fingerprint(Verdict.UNKNOWN, None)
    root = str(Path(_paths.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(entry="/opt/other", lineno=77)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == here
