"""Exporters on loops that really stall, over a fork, in little memory, and where their libraries are missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from exporting import needs, run


@needs("sentry_sdk", "opentelemetry.sdk")
def test_every_exporter_gets_the_stall_on_the_reporters_thread() -> None:
    facts = run(
        """
        from loopwatch import jsonl, otel, sentry
        import sentry_sdk
        from sentry_sdk.transport import Transport
        from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
        from opentelemetry.sdk.metrics import MeterProvider

        threads, events, records = {}, [], []

        class Kept(Transport):
            def capture_envelope(self, envelope):
                threads["sentry"] = threading.current_thread().name
                events.extend(item.payload.json for item in envelope.items)

        class Processor(LogRecordProcessor):
            def on_emit(self, record):
                threads["otel"] = threading.current_thread().name
                records.append(record.log_record.body)
            emit = on_emit
            def shutdown(self): pass
            def force_flush(self, timeout_millis=0): return True

        class Text:
            lines = []
            def write(self, text):
                threads["jsonl"] = threading.current_thread().name
                self.lines.append(json.loads(text))
            def flush(self): pass

        client = sentry_sdk.Client("http://key@localhost/1", transport=Kept(), default_integrations=False)
        provider = LoggerProvider()
        provider.add_log_record_processor(Processor())
        exporters = [jsonl.JsonLines(Text()), sentry.install(client), otel.instrument(MeterProvider(), provider)]

        loop = new_loop()
        with loopwatch.install(loop, **quiet()) as watch:
            loop.run_until_complete(blocked_once())
            watch.flush()
            stall = watch.stalls[-1]
        loop.close()
        assert no_thread_of_ours()
        assert records == [stall.summary], records
        assert [line["stall"]["fingerprint"] for line in Text.lines if line["kind"] == "stall"] == [stall.fingerprint]
        assert [event["fingerprint"] for event in events] == [["loopwatch", stall.fingerprint]]
        for exporter in exporters:
            exporter.close()
        say(threads=threads, failures=dict(outlets.failures), left=len(outlets._open))
        """
    )
    assert facts["threads"] == dict.fromkeys(("sentry", "otel", "jsonl"), "loopwatch-reporter")
    assert facts["failures"] == {"jsonl": 0, "sentry": 0, "otel": 0}
    assert facts["left"] == 0


@pytest.mark.parametrize("kind", ["turn", "wrapped", "heartbeat"])
def test_a_watch_knows_its_thread(kind: str) -> None:
    facts = run(f"""
        from scenario import pulse_of
        loop = new_loop("{kind}")
        watch = loopwatch.install(loop, **quiet(pulse=pulse_of("{kind}")))
        before = watch.thread
        runner = threading.Thread(target=loop.run_until_complete, args=(asyncio.sleep(0.01),), name="wörker")
        runner.start()
        runner.join()
        after = watch.thread
        watch.uninstall()
        loop.close()
        say(threads=[before, after, watch.thread])
    """)
    assert facts["threads"] == [None, "wörker", "wörker"]


@needs("prometheus_client")
def test_a_scrape_says_what_the_watch_says() -> None:
    facts = run("""
        import prometheus_client
        from prometheus_client.parser import text_string_to_metric_families
        from loopwatch import prometheus

        def scraped():
            text = prometheus_client.generate_latest().decode()
            return {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }

        collector = prometheus.collector()

        async def main():
            await blocked_once()
            with loopwatch.install(**quiet()) as watch:
                await blocked_once()
                before, found, after = watch.lag, scraped(), watch.lag  # within one turn
                assert before == after
                assert found["loopwatch_turns_total", "MainThread"] == before.turns > 0
                assert found["loopwatch_busy_seconds_total", "MainThread"] == before.busy > 0.2
                assert found["loopwatch_idle_seconds_total", "MainThread"] == before.idle
                assert found["loopwatch_turn_seconds_count", "MainThread"] == before.turns
                assert found["loopwatch_turn_seconds_bucket", "0.1", "MainThread"] == before.turns - 1
                assert found["loopwatch_threshold_seconds", "MainThread"] == watch.threshold
                assert found["loopwatch_loops",] == 1
            found = scraped()
            assert found["loopwatch_loops",] == 0
            assert not any(name == "loopwatch_turns_total" for name, *_ in found)

        asyncio.run(main())
        collector.close()
        assert not any(name.startswith("loopwatch_") for name, *_ in scraped())
        say(passed=True)
    """)
    assert facts["passed"]


def test_an_exporter_of_the_parent_serves_the_child(tmp_path: Path) -> None:
    path = tmp_path / "stalls.jsonl"
    facts = run(
        """
        import warnings
        from loopwatch.jsonl import JsonLines
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
        lines = JsonLines(sys.argv[1], every=0.1)
        loop = new_loop()
        watch = loopwatch.install(loop, **quiet())
        loop.run_until_complete(blocked_once())
        watch.flush()
        pid = os.fork()
        if pid == 0:
            loop.run_until_complete(blocked_once())
            watch.flush()
            loop.run_until_complete(asyncio.sleep(0.3))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        watch.uninstall()
        loop.close()
        lines.close()
        say(parent=os.getpid(), child=pid)
        """,
        path,
    )
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kinds = {(row["pid"], row["kind"]) for row in rows}
    assert kinds >= {(facts["parent"], "stall"), (facts["child"], "stall"), (facts["child"], "metrics")}


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("prometheus", "prometheus_client", "prometheus"),
        ("otel", "opentelemetry", "otel"),
        ("sentry", "sentry_sdk", "sentry"),
    ],
)
def test_a_missing_library_names_the_extra(module: str, library: str, extra: str) -> None:
    facts = run(f"""
        sys.modules["{library}"] = None
        try:
            import loopwatch.{module}
        except ImportError as problem:
            say(problem=str(problem))
    """)
    assert f"pip install 'loopwatch[{extra}]'" in str(facts["problem"])


def test_without_exporters_nothing_of_them_is_imported() -> None:
    facts = run("""
        say(loaded=[name for name in ("_metrics", "_look", "_reading", "jsonl", "otel", "sentry", "prometheus")
                    if f"loopwatch.{name}" in sys.modules])
    """)
    assert facts["loaded"] == []


@needs("prometheus_client")
def test_switched_off_nothing_is_exported(tmp_path: Path) -> None:
    facts = run(
        """
        import prometheus_client
        from loopwatch import jsonl, prometheus
        collector, lines = prometheus.collector(), jsonl.JsonLines(sys.argv[1], every=0.1)
        loop = new_loop()
        with loopwatch.install(loop, **quiet()):
            loop.run_until_complete(blocked_once())
        loop.close()
        text = prometheus_client.generate_latest().decode()
        collector.close()
        lines.close()
        say(lines=[line for line in text.splitlines() if line.startswith("loopwatch_")])
        """,
        tmp_path / "off.jsonl",
        env={"LOOPWATCH": "0"},
    )
    assert (tmp_path / "off.jsonl").read_bytes() == b""
    assert "loopwatch_loops 0.0" in str(facts["lines"])
    assert "MainThread" not in str(facts["lines"])


# --- memory ---


@needs("sentry_sdk")
def test_a_hundred_thousand_of_everything_take_no_memory() -> None:
    """Distinct stalls, sites and routes, one after the other, through what exporters keep."""
    grown = run(
        """
        import dataclasses, pathlib
        import sentry_sdk
        from fakewatch import FakeProfile, FakeWatch, route
        from loopwatch import jsonl, sentry
        from loopwatch._metrics import LOOP_METRICS
        from loopwatch._reading import Reader
        from records import stall

        class Client:
            def is_active(self): return True
            def capture_event(self, event, scope): pass

        class Nowhere:
            def write(self, text): pass
            def flush(self): pass

        def resident():
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        plain = stall(frames=())
        watch = FakeWatch()
        reader = Reader("test", lambda: [watch])
        sites, routes = [metric for metric in LOOP_METRICS if metric.name in ("profile.site", "route.cpu")]
        exporters = [sentry.install(Client()), jsonl.JsonLines(Nowhere())]

        def feed(numbers):
            for number in numbers:
                told = dataclasses.replace(plain, id=number, fingerprint=f"{number:016x}", ongoing=number % 2 == 0)
                # All go through what is remembered of them; making each event would take most of a minute.
                exporters[0].stall(told) if number % 50 == 0 else exporters[0]._is_new(told)
                if number % 50 == 0:
                    watch.profile = FakeProfile({f"f{one}": 1.0 for one in range(number, number + 50)})
                    reader.of_loops(sites, reader.looks())
                if number % 200 == 0:
                    exporters[1].stall(told)
                    watch.routes = {f"GET /{one}": route() for one in range(number, number + 200)}
                    reader.of_loops(routes, reader.looks())

        feed(range(1, 2000))  # what is imported, and caches that fill
        before = resident()
        feed(range(2000, 102_000))
        grown = resident() - before
        for exporter in exporters:
            exporter.close()
        say(grown=grown)
    """,
        timeout=120,
    )["grown"]
    assert grown <= 8 << 20  # type: ignore[operator]
