"""Sentry: one event for each new fingerprint, by a client with a transport that keeps what it is given."""

from __future__ import annotations

import json

import pytest
from records import APP, LIBRARY, stall

sentry_sdk = pytest.importorskip("sentry_sdk")

from sentry_sdk.integrations import logging as sentry_logging  # noqa: E402
from sentry_sdk.transport import Transport  # noqa: E402

from loopwatch import sentry  # noqa: E402
from loopwatch._outlets import outlets  # noqa: E402
from loopwatch._stall import Evidence, Frame, ThreadInfo, Verdict  # noqa: E402

HERE = (Frame(__file__, 20, "load"),)
SECRET = "password = 'hunter2'"


class Kept(Transport):
    def __init__(self):
        super().__init__()
        self.events = []

    def capture_envelope(self, envelope):
        self.events += [item.payload.json for item in envelope.items if item.type == "event"]


@pytest.fixture
def transport():
    return Kept()


@pytest.fixture
def client(transport):
    client = sentry_sdk.Client("http://key@localhost/1", transport=transport, default_integrations=False)
    yield client
    client.close()


@pytest.fixture
def install(client):
    made = []

    def install(**options):
        made.append(sentry.install(client, **options))
        return made[-1]

    yield install
    for exporter in made:
        exporter.close()


def test_an_event_for_each_new_fingerprint(install, transport):
    install()
    for number, fingerprint in enumerate(["a", "b", "a", "a", "c"], 1):
        outlets.tell(stall(id=number, fingerprint=fingerprint))
    assert [event["fingerprint"] for event in transport.events] == [["loopwatch", name] for name in "abc"]


def test_what_is_in_an_event(install, transport):
    install()
    full = stall(
        breakdown={Verdict.GIL: 0.25, Verdict.PYTHON: 0.05},
        evidence=Evidence(cpu_time=0.05, gil_wait=0.25, callbacks=2),
        holder=ThreadInfo("worker", 5, HERE),
        labels={"route": "GET /items/{id}"},
        hint="Do less.",
    )
    outlets.tell(full)
    (event,) = transport.events
    json.dumps(event)
    assert (event["level"], event["platform"], event["logger"]) == ("warning", "python", "loopwatch")
    (exception,) = event["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("Stall: gil", full.summary)
    seen = [
        (frame["function"], frame["lineno"], frame["in_app"]) for frame in exception["stacktrace"]["frames"]
    ]
    assert seen == [("main", 10, True), ("load", 20, True), ("send", 5, False)]
    assert exception["stacktrace"]["frames"][-1]["abs_path"] == LIBRARY
    contexts = event["contexts"]
    assert contexts["loopwatch breakdown"] == {"gil": 0.25, "python": 0.05}
    assert contexts["loopwatch evidence"] == {"cpu_time": 0.05, "gil_wait": 0.25, "callbacks": 2}
    assert contexts["loopwatch"]["hint"] == "Do less."
    assert contexts["loopwatch"]["task"] == {"name": "checkout", "coroutine": "main"}
    (holder,) = event["threads"]["values"]
    assert holder["name"].startswith("worker")
    assert holder["stacktrace"]["frames"][0]["in_app"] is True
    assert event["tags"] == {
        "loopwatch.verdict": "gil",
        "loopwatch.thread": "MainThread",
        "loopwatch.route": "GET /items/{id}",
    }
    assert event["transaction"].endswith(":load")


@pytest.mark.parametrize("asked", [False, True])
def test_source_lines_are_sent_only_where_asked_for(install, transport, asked):
    install(include_source_context=asked)
    outlets.tell(stall(frames=HERE, culprit=HERE[0], source={(__file__, 20): SECRET}))
    text = json.dumps(transport.events)
    assert ("hunter2" in text) == asked
    # The SDK could read the file itself: it exists.
    frame = transport.events[0]["exception"]["values"][0]["stacktrace"]["frames"][0]
    assert ("context_line" in frame) == asked
    assert not {"vars", "pre_context", "post_context"} & frame.keys()


def test_own_code_is_in_app(install, transport):
    install(own=["/srv/venv"])
    outlets.tell(stall(frames=(Frame(LIBRARY, 5, "send"), Frame("/srv/site-packages/x.py", 1, "x"))))
    frames = transport.events[0]["exception"]["values"][0]["stacktrace"]["frames"]
    assert [frame["in_app"] for frame in frames] == [True, False]


def test_a_hang_is_sent_once_also_where_its_cause_changes(install, transport):
    install()
    outlets.tell(stall(id=1, ongoing=True, fingerprint="lock"))
    outlets.tell(stall(id=1, ongoing=True, fingerprint="gil", duration=3.0))
    outlets.tell(stall(id=1, fingerprint="python", duration=4.0))
    assert [event["level"] for event in transport.events] == ["error"]
    outlets.tell(stall(id=2, fingerprint="fresh"))
    assert len(transport.events) == 2


def test_a_deep_stack_is_cut_in_the_middle(install, transport):
    install()
    outlets.tell(stall(frames=tuple(Frame(APP, number + 1, "recurse") for number in range(1000))))
    lines = [
        frame["lineno"] for frame in transport.events[0]["exception"]["values"][0]["stacktrace"]["frames"]
    ]
    assert lines == [*range(1, 51), *range(801, 1001)]


def test_a_trace_that_the_labels_name(install, transport):
    install()
    trace = {"trace_id": "ab" * 16, "span_id": "cd" * 8}
    outlets.tell(stall(labels=trace))
    context = transport.events[0]["contexts"]["trace"]
    assert {name: context[name] for name in trace} == trace


def test_seen_fingerprints_are_bounded(install, transport, monkeypatch):
    monkeypatch.setattr(sentry, "SEEN_MAX", 3)
    exporter = install()
    for number, fingerprint in enumerate("abcda", 1):
        outlets.tell(stall(id=number, ongoing=True, fingerprint=fingerprint))
    assert [event["fingerprint"][1] for event in transport.events] == ["a", "b", "c", "d", "a"]
    assert len(exporter._seen) == len(exporter._reported) == 3


def test_before_init_nothing_is_sent_and_nothing_forgotten(transport):
    scope = sentry_sdk.Scope.get_global_scope()
    known = scope.client
    exporter = sentry.install()
    try:
        scope.set_client(None)
        outlets.tell(stall(fingerprint="a"))
        scope.set_client(
            sentry_sdk.Client("http://key@localhost/1", transport=transport, default_integrations=False)
        )
        outlets.tell(stall(fingerprint="a"))
        assert len(transport.events) == 1
    finally:
        exporter.close()
        scope.set_client(known)


def test_the_log_record_of_a_hang_makes_no_second_event(install):
    exporter = install()
    assert "loopwatch" in sentry_logging._IGNORED_LOGGERS
    exporter.close()
    exporter.close()
    assert "loopwatch" not in sentry_logging._IGNORED_LOGGERS
    outlets.tell(stall())


def test_a_transport_that_fails_is_counted(install, transport):
    install()
    before = outlets.failures["sentry"]
    transport.capture_envelope = lambda _: 1 / 0
    outlets.tell(stall(fingerprint="x"))
    assert outlets.failures["sentry"] == before + 1


def test_own_is_checked():
    with pytest.raises(TypeError, match="own must be"):
        sentry.install(own=[3])
