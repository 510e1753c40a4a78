"""The Prometheus exporter in pre-fork mode: workers that share files."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest
from exporting import needs, run

WORKERS = """
import warnings
import prometheus_client
from prometheus_client import multiprocess
from prometheus_client.parser import text_string_to_metric_families
warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
warnings.simplefilter("ignore", ResourceWarning)  # prometheus_client's files are open until the end

def scraped():
    registry = prometheus_client.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    text = prometheus_client.generate_latest(registry).decode()
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("loopwatch")
    }

from loopwatch import prometheus

def work(turns, answer):
    async def main():
        with loopwatch.install(**quiet()) as watch:
            for _ in range(turns):
                await asyncio.sleep(0)
            time.sleep(0.15)
            await asyncio.sleep(0.5)
            kept.append(watch)
            during = scraped()
            mine = [key for key in during if str(os.getpid()) in key and key[0] == "loopwatch_threshold_seconds"]
            assert [during[key] for key in mine] == [watch.threshold], mine
    kept = []
    asyncio.run(main())
    lag = kept[0].lag
    os.write(answer, json.dumps({"turns": lag.turns, "busy": lag.busy}).encode() + b"\\n")

def fork(turns):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(turns, writing)
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    return pid, reading

def wait(pid, reading):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with os.fdopen(reading) as file:
        return json.loads(file.read())
"""


@needs("prometheus_client")
@pytest.mark.parametrize("preloaded", [True, False], ids=["before the fork", "in each worker"])
def test_workers_share_files(tmp_path: Path, preloaded: bool) -> None:
    """Counters are summed, exactly, also over a worker that was replaced; gauges are of each worker that lives."""
    collector = "prometheus.collector(every=0.1)"
    here, there = (collector, "pass") if preloaded else ("pass", collector)
    facts = run(
        dedent(WORKERS)
        + dedent(f"""
        {here}
        plain_work = work
        def work(turns, answer):
            {there}
            plain_work(turns, answer)
        workers = [fork(500), fork(800)]
        told = [wait(*worker) for worker in workers]
        for pid, _ in workers:
            multiprocess.mark_process_dead(pid)
        workers.append(fork(300))
        told.append(wait(*workers[-1]))
        found = scraped()
        by_pid = [key for key in found if str(workers[0][0]) in key]
        last = [value for key, value in found.items() if str(workers[-1][0]) in key and "MainThread" in key]
        say(turns=found["loopwatch_turns_total", "MainThread"], told=told, by_pid=by_pid, last=last,
            busy=found["loopwatch_busy_seconds_total", "MainThread"],
            count=found["loopwatch_turn_seconds_count", "MainThread"],
            seconds=found["loopwatch_turn_seconds_sum", "MainThread"],
            long=found["loopwatch_turn_seconds_bucket", "+Inf", "MainThread"]
                - found["loopwatch_turn_seconds_bucket", "0.1", "MainThread"],
            failures=outlets.failures["prometheus"])
        """),
        env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
    )
    told = facts["told"]
    assert facts["turns"] == facts["count"] == sum(row["turns"] for row in told) > 1600  # type: ignore[attr-defined]
    assert facts["busy"] == pytest.approx(sum(row["busy"] for row in told))  # type: ignore[attr-defined]
    assert facts["seconds"] == pytest.approx(facts["busy"])
    assert facts["long"] >= 3  # type: ignore[operator]
    assert facts["by_pid"] == [], "the server said that it is dead"
    assert facts["last"], "this one was not declared dead"
    assert set(facts["last"]) == {0.0}, "but watches nothing any more"  # type: ignore[arg-type]
    assert facts["failures"] == 0


@needs("prometheus_client")
def test_closing_in_multiprocess_mode_leaves_the_registry_as_it_was(tmp_path: Path) -> None:
    facts = run(
        """
        import warnings
        import prometheus_client
        from loopwatch import prometheus
        warnings.simplefilter("ignore", ResourceWarning)  # its files are open until the end
        for _ in range(2):
            collector = prometheus.collector()
            assert prometheus.collector() is collector
            collector.close()
            collector.close()
        names = [name for name in prometheus_client.REGISTRY._names_to_collectors if name.startswith("loopwatch")]
        say(names=names, left=len(outlets._open))
        """,
        env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
    )
    assert facts == {"names": [], "left": 0}


def test_the_environment_is_not_that_of_a_pre_fork_server() -> None:
    """Tests in this process rely on it."""
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ
