"""A report as one HTML file that needs nothing else: no network, no other file.

Everything that a program can choose (names of tasks, paths, source) is data: JSON in a script element that is
never run, escaped so that no text can end the element, and put on the page as text by the scripts in page/. The
policy of the page lets run exactly these scripts, by their hashes, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any, Final

from loopwatch.report.model import Report
from loopwatch.report.payload import payload

LIBRARY: Final = ("bokeh.min.js", "bokeh-api.min.js")
SCRIPTS: Final = (
    "base.js",
    "state.js",
    "charts.js",
    "timeline.js",
    "tables.js",
    "stalls.js",
    "details.js",
    "sites.js",
    "flame.js",
    "lag.js",
    "main.js",
)
"""In this order: each knows those before it."""

_ESCAPED: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def text(report: Report) -> str:
    """ImportError where BokehJS is not installed."""
    library = [_harmless(file.read_text(encoding="utf-8")) for file in library_files()]
    scripts = [*library, *map(_asset, SCRIPTS)]
    parts = {
        "policy": _policy(scripts),
        "style": _asset("style.css"),
        "data": as_data(payload(report)),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def as_data(value: Any) -> str:
    """JSON in ASCII that may stand in a script element: nothing in it can end the element or begin a comment."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_ESCAPED)


def _policy(scripts: list[str]) -> str:
    """BokehJS makes style elements and icons of its own, so inline styles and data: images are allowed; neither can
    reach a network."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _asset(name: str) -> str:
    return resources.files("loopwatch.report").joinpath("page", name).read_text(encoding="utf-8")


def library_files() -> list[Path]:
    """BokehJS as the package bokeh brings it; the package itself, which takes long, is not imported. ImportError where
    it is not installed."""
    found = importlib.util.find_spec("bokeh")
    if found is None or found.origin is None:
        raise ImportError("an HTML report needs BokehJS: pip install 'loopwatch[html]'", name="bokeh")
    directory = Path(found.origin).parent / "server" / "static" / "js"
    return [directory / name for name in LIBRARY]


def _harmless(script: str) -> str:
    """A browser would end the element at such a text, also inside a string. Carriage returns would be read as line
    feeds, so that the hash were another."""
    return (
        re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE)
        .replace("\r\n", "\n")
        .replace("\r", "\n")
    )
