"""The page as text: data that cannot end its element, a policy that lets run what is in it and nothing else."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re

import pytest
from reported import HOSTILE, loop_line, varied
from reported import lines as lines_of

from loopwatch import report
from loopwatch.report import html
from loopwatch.report.payload import ALL_BINS_MAX, BINS_MAX, payload

REQUIRED = os.environ.get("LOOPWATCH_CHROMIUM") == "required"
needs_bokeh = pytest.mark.skipif(
    importlib.util.find_spec("bokeh") is None and not REQUIRED, reason="bokeh is not installed"
)


def made(stalls=3, **changes):
    records = lines_of(varied(stalls, **changes)) + loop_line()
    return report.load(json.loads(line) for line in records.splitlines())


def test_data_is_ascii_without_a_character_that_could_end_its_element():
    data = {"name": HOSTILE, HOSTILE: "<!-- <script> & \u2029"}
    text = html.as_data(data)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == data


@needs_bokeh
def test_every_script_is_named_by_the_policy_and_nothing_else_may_load():
    page = html.text(made(name=HOSTILE))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == "'none'"
    assert parts["img-src"] == "data:"
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == len(html.LIBRARY) + len(html.SCRIPTS)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert parts["script-src"] == " ".join(f"'sha256-{each}'" for each in hashes)
    assert page.count("<script") == page.count("</script") == len(scripts) + 1  # and the data
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "{{" not in markup
    assert not re.search(r'\b(?:src|href)="(?!#)', markup)


@needs_bokeh
def test_the_licence_of_the_library_stays_in_the_file():
    page = html.text(report.Report())
    assert "Copyright (c) Anaconda, Inc., and Bokeh Contributors" in page
    assert "Redistribution and use in source and binary forms" in page


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(html.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"pip install 'loopwatch\[html\]'"):
        html.text(report.Report())


def test_a_script_cannot_end_its_element():
    assert "</script" not in html._harmless("a = '</script>'; b = '</SCRIPT'").lower()
    assert html._harmless("a\r\nb\rc") == "a\nb\nc"


def test_every_text_is_printable_and_every_index_is_there():
    data = payload(made(40, name=HOSTILE, thread=HOSTILE))
    for stall in data["stalls"]:
        assert stall["task"][0].isprintable()
        assert stall["sentence"].isprintable()
        assert all(0 <= index < len(data["frames"]) for index in data["stacks"][stall["stack"]])
        assert len(data["stacks"][stall["stack"]]) > stall["outer"] == 1
    assert {site["fingerprint"] for site in data["sites"]} == {
        stall["fingerprint"] for stall in data["stalls"]
    }
    assert [stall["at"] for stall in data["stalls"]] == sorted(stall["at"] for stall in data["stalls"])


def test_a_long_lane_has_bins_of_several_seconds():
    seconds = BINS_MAX * 2 + 1
    (lane,) = payload(report.load(json.loads(loop_line(seconds))))["lanes"]
    bins = lane["bins"]
    assert len(bins["at"]) == len(bins["busy"]) == -(-seconds // 3)
    assert set(bins["seconds"][:-1]) == {3}
    assert set(bins["busy"]) == {0.25}


def test_lanes_share_what_a_page_can_hold():
    lanes = ALL_BINS_MAX // BINS_MAX * 2
    records = [json.loads(loop_line(BINS_MAX, pid=pid)) for pid in range(lanes)]
    data = payload(report.load(records))
    assert sum(len(lane["bins"]["at"]) for lane in data["lanes"]) <= ALL_BINS_MAX


def test_each_node_of_the_flame_graph_comes_after_its_parent():
    rows = payload(made(50))["flame"]
    assert rows[0][0] is None
    assert rows[0][3] == -1
    for index, (_, seconds, _, parent) in enumerate(rows[1:], 1):
        assert 0 <= parent < index
        assert seconds <= rows[parent][1] + 1e-5
