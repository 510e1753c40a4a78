"""The report in a real Chromium (reportpage.py): everything in it can be clicked, typed and seen."""

from __future__ import annotations

import math

import pytest
from reported import lines as lines_of
from reported import varied
from reportpage import Opened

from loopwatch._stall import Frame, ThreadInfo, Verdict

# --- looking at a stall ---


def test_a_click_on_a_stall_of_the_timeline_shows_it(opened):
    page = opened(varied(1, duration=0.3, breakdown={Verdict.LOCK: 0.3}))
    page.page.focus("#timeline")
    page.page.keyboard.press("Escape")
    assert "Choose a stall" in page.text("#details")
    share = page.page.evaluate(
        "(report.stalls[0].at - timeline.range.start) / (timeline.range.end - timeline.range.start)"
    )
    box = page.page.locator("#chart-stalls").bounding_box()
    left, right, border = 64, 28, 4  # of the plot in its place, as charts.js has it
    x = box["x"] + left + (box["width"] - left - right) * share
    # The scale is logarithmic, from 0.7 of the shortest stall to 12 times that.
    y = box["y"] + border + (box["height"] - 2 * border) * (1 - math.log(1 / 0.7) / math.log(12))
    page.page.mouse.click(x, y)
    page.until(lambda: "was blocked for 300 ms" in page.text("#details"))
    page.page.mouse.move(x + 1, y)
    page.until(lambda: page.page.locator("#tip").is_visible())
    assert "300 ms lock" in page.text("#tip")


def test_a_click_in_the_list_shows_sentence_breakdown_stack_and_source(some):
    rows = some.page.locator("#stalls tbody tr")
    rows.nth(3).click()
    details = some.text("#details")
    assert some.page.locator("#stalls tr[aria-selected=true]").count() == 1
    for said in (
        "The event loop was blocked for",
        "Use await asyncio.sleep(...).",
        "100 %",
        "return load(everything)",
        "orders.py",
        "1 frame that started and run the loop",
        "tcp 10.0.0.4:5432",
        "checkout",
    ):
        assert said in details, said
    some.picture("light")


def test_who_held_the_gil(some):
    some.page.locator("#causes button", has_text="gil").click()
    some.page.locator("#stalls tbody tr").first.click()
    assert "The GIL was held by thread 'pool_0' (most recent call last)" in some.text("#details")


def test_a_stack_of_who_held_the_gil_is_there_once(opened):
    frames = (Frame("/srv/app.py", 3, "build_report"),)
    holder = ThreadInfo("pool_0", 12, frames)
    page = opened(varied(1, frames=frames, culprit=frames[0], holder=holder, samples=()))
    assert "Stack of thread 'pool_0', which held the GIL" in page.text("#details")
    assert page.page.locator("#details ol.stack").count() == 1


def test_the_timeline_by_keyboard(some):
    page = some.page
    page.focus("#timeline")
    page.keyboard.press("Home")
    first = some.text("#details .sentence")
    page.keyboard.press("ArrowRight")
    second = some.text("#details .sentence")
    page.keyboard.press("End")
    last = some.text("#details .sentence")
    assert len({first, second, last}) == 3
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    assert some.text("#details .sentence") == last
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "details"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "timeline"
    page.keyboard.press("Escape")
    assert "Choose a stall" in some.text("#details")


def shown(some: Opened) -> float:
    """Milliseconds of the timeline."""
    return float(some.page.evaluate("timeline.range.end - timeline.range.start"))


def test_zoom_by_keys_buttons_wheel_and_drag(some):
    page = some.page
    whole = shown(some)
    page.focus("#timeline")
    page.keyboard.press("+")
    assert shown(some) == pytest.approx(whole / 2)
    page.keyboard.press("0")
    assert shown(some) == pytest.approx(whole)
    page.click("#zoom-in")
    page.click("#later")
    assert shown(some) == pytest.approx(whole / 2)
    page.click("#zoom-all")
    box = page.locator("#chart-busy").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 20)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    some.until(lambda: shown(some) < whole * 0.9)
    page.click("#zoom-all")
    page.mouse.move(box["x"] + 300, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 20, steps=5)
    page.mouse.up()
    some.until(lambda: shown(some) < whole * 0.4)


def test_the_list_by_keyboard(some):
    page = some.page
    page.focus("#stalls tbody tr")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    chosen = page.locator("#stalls tbody tr").nth(2)
    assert chosen.get_attribute("aria-selected") == "true"
    assert page.evaluate("document.activeElement.rowIndex") == 3


def test_tab_reaches_one_row_of_each_table(opened):
    page = opened(varied(130))
    for table in ("#stalls", "#sites"):
        assert page.page.locator(f"{table} tbody tr[tabindex='0']").count() == 1
    page.page.focus("#stalls tbody tr")
    page.page.keyboard.press("ArrowDown")
    stops = page.page.locator("#stalls tbody tr[tabindex='0']")
    assert stops.count() == 1
    assert stops.evaluate("element => element.rowIndex") == 2


def test_more_than_a_hundred_stalls_are_listed_on_demand(opened):
    page = opened(varied(130))
    assert len(page.rows("stalls")) == 100
    page.page.click("#stalls .more")
    assert len(page.rows("stalls")) == 130


# --- sorting, searching, choosing ---


def test_sites_sort_by_each_column(some):
    def column(number: int) -> list[str]:
        return some.page.locator(f"#sites tbody td:nth-child({number})").all_text_contents()

    assert some.page.get_attribute("#sites th:nth-child(5)", "aria-sort") == "descending"
    some.page.click("#sites th:nth-child(4) button")
    counts = list(map(int, column(4)))
    assert counts == sorted(counts, reverse=True)
    some.page.keyboard.press("Enter")  # the same head, which has kept the focus
    assert list(map(int, column(4))) == sorted(counts)
    some.page.click("#sites th:nth-child(1) button")
    assert column(1) == sorted(column(1))


def test_search_narrows_the_sites_and_fades_the_flame_graph(some):
    everything = len(some.rows("sites"))
    some.page.fill("#search", "ORDERS.py resize")
    found = some.rows("sites")
    assert 0 < len(found) < everything
    assert all("resize" in row for row in found)
    assert some.text("#sites-count") == f"{len(found)} of {everything} sites"
    labels = some.page.locator(".node:not(.other)").all_text_contents()
    assert set(labels) == {"resize"}
    some.page.fill("#search", "no such thing")
    assert "No site matches" in some.text("#sites")


def test_a_site_shows_its_stalls_and_again_all(some):
    row = some.page.locator("#sites tbody tr").first
    count = int(row.locator("td:nth-child(4)").text_content())
    row.click()
    assert len(some.rows("stalls")) == count
    assert some.text("#stalls-count") == f"{count} of 60 stalls"
    some.page.click("#clear")
    assert len(some.rows("stalls")) == 60


def test_causes_and_loops_can_be_chosen(opened, jsonl):
    page = opened(jsonl(lines_of(varied(30)), lines_of(varied(10, thread="other"), pid=2)))
    page.page.select_option("#lane", label="other (2)")
    assert len(page.rows("stalls")) == 10
    button = page.page.locator("#causes button", has_text="lock")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    rows = page.rows("stalls")
    assert rows == [row for row in rows if "lock" in row]
    button.click()
    assert len(page.rows("stalls")) == 10


def test_the_flame_graph_zooms_by_click_and_keys(some):
    page = some.page
    page.locator(".node").nth(1).click()
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert page.evaluate("document.activeElement.style.width") == "100%"
    assert some.text("#flame-info") == focused
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "3"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.textContent") == "all stalls"
    page.keyboard.press("Enter")
    assert page.locator("#flame-up").is_hidden()
