"""The report in a real Chromium (reportpage.py): it opens quickly and quietly, is readable in any window, and inert."""

from __future__ import annotations

from typing import Any

import pytest
from reported import HOSTILE, loop_line, varied
from reported import lines as lines_of

from loopwatch._stall import Frame, Verdict

# --- opening ---


def test_2000_stalls_open_quickly(opened, jsonl):
    """2 s on a machine that has nothing else to do; here with room for one that is shared."""
    source = jsonl(lines_of(varied(2000, seconds=3600.0)), loop_line(3600), loop_line(3600, thread="other"))
    times = [opened(source).ready() for _ in range(3)]
    print(f"2000 stalls open in {min(times):.2f} s")
    assert min(times) < 8.0


@pytest.mark.parametrize("count", [0, 1, 60])
@pytest.mark.parametrize("with_loop", [True, False], ids=["loop", "stalls-only"])
def test_any_report_opens(opened, jsonl, count, with_loop):
    page = opened(jsonl(lines_of(varied(count)), loop_line() if with_loop else b""))
    assert page.text("#stalls-count").startswith(f"{count} stall")
    assert len(page.rows("stalls")) == count
    if count == 0:
        assert "No stalls" in page.text("#stalls")
        assert "there was no stall" in page.text("#details")
    page.picture(f"{count}-{with_loop}")


def test_of_unknown_stalls_nobody_is_to_blame(opened):
    page = opened(
        varied(8, breakdown={Verdict.UNKNOWN: 0.3}, duration=0.3, culprit=None, frames=(), samples=())
    )
    assert "nobody to blame" in page.text("#sites")
    assert "No frame could be read" in page.text("#details")
    page.picture("unknown")


def test_broken_lines_are_named(opened, jsonl):
    page = opened(jsonl(b"nonsense\n", lines_of(varied(1))))
    assert page.text("#problems summary") == "1 line of the sources left out"
    assert "app.jsonl:1: not JSON" in page.text("#problems li")


def test_of_a_hundred_loops_those_that_stalled_most_have_a_strip(opened, jsonl):
    loops = [loop_line(60, pid=pid) + lines_of(varied(pid % 5), pid=pid) for pid in range(1, 101)]
    page = opened(jsonl(*loops))
    assert page.page.locator(".lane-name").count() == 12
    assert "12 loops with the most stalled time, of 100" in page.text("#busy-note")
    page.page.select_option("#lane", label="MainThread (100)")
    assert page.page.locator(".lane-name").all_text_contents() == ["MainThread (100)"]
    assert page.text("#busy-note") == ""


def test_the_deepest_stack_there_can_be(opened):
    frames = tuple(Frame("/srv/app.py", number, f"level_{number}") for number in range(1024))
    page = opened(varied(1, frames=frames, samples=(), culprit=frames[-1]))
    assert page.page.locator(".node").count() == 1025
    assert page.page.locator("#details .culprit").text_content().startswith("level_1023")


# --- how it looks ---


def colours(page: Any) -> tuple[str, str]:
    return tuple(
        page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor")
    )


def test_dark_and_light_follow_the_system_until_switched(opened):
    page = opened(varied(20), color_scheme="dark")
    dark = colours(page.page)
    page.picture("dark")
    page.page.click("#theme")
    light = colours(page.page)
    assert light != dark
    page.page.emulate_media(color_scheme="light")
    assert colours(page.page) == light
    page.page.click("#theme")
    assert colours(page.page) == dark


def luminance(colour: str) -> float:
    """As WCAG has it, of `rgb(r, g, b)`."""
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_stand_out(opened, scheme):
    page = opened(varied(3), color_scheme=scheme).page
    card = luminance(page.evaluate("charts.colour('card')"))
    for name, least in {
        "text": 7.0,
        "quiet": 4.5,
        "accent": 4.5,
        **dict.fromkeys(map(str, Verdict), 3.0),
    }.items():
        one, other = sorted((luminance(page.evaluate(f"charts.colour('{name}')")), card))
        assert (other + 0.05) / (one + 0.05) >= least, name


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_window_scrolls_in_one_direction_only(opened, jsonl, width):
    page = opened(jsonl(lines_of(varied(60)), loop_line()), viewport={"width": width, "height": 800})
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    page.picture(f"narrow-{width}")


def test_everything_that_can_be_focused_has_a_name(some):
    nameless = some.page.evaluate(
        "[...document.querySelectorAll('button, input, select, [tabindex=\"0\"]')].filter((element) => "
        "!(element.textContent.trim() || element.getAttribute('aria-label') || element.labels?.length)).length"
    )
    assert nameless == 0


# --- hostile text ---


def test_hostile_text_is_inert(opened):
    named = Frame(f"/srv/{HOSTILE}.py", 3, HOSTILE)
    changes = {
        "name": HOSTILE,
        "thread": HOSTILE,
        "culprit": named,
        "frames": (named,),
        "labels": {HOSTILE: HOSTILE},
        "steps": {HOSTILE: 0.1},
        "source": {(named.filename, 3): HOSTILE},
        "hint": HOSTILE,
        "fingerprint": HOSTILE,
    }
    page = opened(varied(12, **changes))
    title = page.page.title()
    for row in range(3):
        page.page.locator("#stalls tbody tr").nth(row).click()
    page.page.fill("#search", "img")
    page.page.hover("#chart-stalls")
    assert page.page.title() == title == "loopwatch report"
    assert page.page.locator("img").count() == 0
    assert "<img src=x onerror" in page.text("#details")  # it is there, as text
    assert "<img src=x onerror" in page.text(".lane-name")
    page.picture("hostile")
