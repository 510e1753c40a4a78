"""A report in a real Chromium, for the tests of the page: fixtures, and what a test can ask of a page.

Skipped where Debian's package `chromium` or the Python package `playwright` is not installed; with
LOOPWATCH_CHROMIUM=required that is a failure. LOOPWATCH_SCREENSHOTS names a directory for pictures to look at.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from reported import lines as lines_of
from reported import loop_line, varied

from loopwatch import report

REQUIRED = os.environ.get("LOOPWATCH_CHROMIUM") == "required"
SCREENSHOTS = os.environ.get("LOOPWATCH_SCREENSHOTS")
PATIENCE = 30.0


def missing(what: str) -> None:
    pytest.fail(f"{what} is not installed") if REQUIRED else pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("chromium")
    for library in ("bokeh", "playwright"):
        if find_spec(library) is None:
            missing(library)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@dataclass
class Opened:
    page: Any
    said: list[str] = field(default_factory=list)
    """Errors, warnings and requests."""

    def ready(self) -> float:
        """Seconds from the begin of loading until everything is drawn."""
        deadline = time.monotonic() + PATIENCE
        while (ready := self.page.get_attribute("html", "data-ready")) is None:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)
        return int(ready) / 1000

    def text(self, selector: str) -> str:
        return self.page.text_content(selector)

    def rows(self, table: str) -> list[str]:
        return self.page.locator(f"#{table} tbody tr").all_text_contents()

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return found

    def picture(self, name: str) -> None:
        if SCREENSHOTS:
            time.sleep(0.3)  # what is drawn in the next frame
            self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    contexts, all_opened = [], []

    def open_report(*sources: Any, **options: Any) -> Opened:
        path = tmp_path / "report.html"
        report.write(path, *sources)
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}} | options)
        contexts.append(context)
        opened = Opened(context.new_page())
        all_opened.append(opened)
        opened.page.on("console", lambda message: _note(opened, message))
        opened.page.on("pageerror", lambda problem: opened.said.append(f"error: {problem}"))
        opened.page.on("request", lambda request: _note_request(opened, request.url, path))
        opened.page.goto(path.as_uri())
        opened.ready()
        return opened

    yield open_report
    for each in all_opened:
        assert each.said == []  # at the end, so that it holds for all that was done on the page
    for context in contexts:
        context.close()


def _note(opened: Opened, message: Any) -> None:
    if message.type not in ("log", "info", "debug"):
        opened.said.append(f"{message.type}: {message.text}")


def _note_request(opened: Opened, url: str, path: Path) -> None:
    if url != path.as_uri() and not url.startswith("data:"):
        opened.said.append(f"request: {url}")


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    def written(*parts: bytes) -> Path:
        path = tmp_path / "app.jsonl"
        path.write_bytes(b"".join(parts))
        return path

    return written


@pytest.fixture
def some(opened: Callable[..., Opened], jsonl: Callable[..., Path]) -> Opened:
    return opened(jsonl(lines_of(varied(60)), loop_line(600)))
