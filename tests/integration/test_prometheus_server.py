"""A real Prometheus scrapes a real service; promtool checks what is exported and the rules; pre-fork servers.

Skipped where the programs `prometheus` and `promtool` are not on PATH; with LOOPWATCH_PROMETHEUS=required that is a
failure, and so is a missing library.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from programs import environment

T = TypeVar("T")

TOP = Path(__file__).parents[2]
RULES = TOP / "dashboards/alerts.yml"
REQUIRED = os.environ.get("LOOPWATCH_PROMETHEUS") == "required"
PATIENCE = 60.0
LIBRARIES = ("prometheus_client", "starlette", "uvicorn")


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not on PATH"
        pytest.fail(message) if REQUIRED else pytest.skip(message)
    return found


def library(name: str) -> Any:
    if REQUIRED:
        return __import__(name)
    return pytest.importorskip(name)


@pytest.fixture(autouse=True)
def _programs() -> None:
    program("promtool")
    for name in LIBRARIES:
        library(name)


# --- running things ---


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def eventually(look: Callable[[], T | None], what: str) -> T:
    """What `look` finds, once it is something: on a busy machine that takes a while."""
    deadline = time.monotonic() + PATIENCE
    problem: BaseException | None = None
    while time.monotonic() < deadline:
        try:
            if found := look():
                return found
        except (OSError, AssertionError, LookupError) as one:
            problem = one
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {PATIENCE:.0f} s") from problem


@contextlib.contextmanager
def running(*line: str | Path, log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in line], env=environment(env), stdout=output, stderr=output, cwd=log.parent
        )
    try:
        yield process
    except BaseException:
        print(log.read_text(encoding="utf-8", errors="replace")[-8000:])
        raise
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def exposed(port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(get(f"http://127.0.0.1:{port}/metrics"))
        for sample in family.samples
    }


def values(samples: dict[Any, float], name: str, **labels: str) -> list[float]:
    wanted = set(labels.items())
    return [value for (found, has), value in samples.items() if found == name and wanted <= has]


@contextlib.contextmanager
def uvicorn(tmp_path: Path, *options: str, **env: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    line = [
        sys.executable,
        "-m",
        "uvicorn",
        "service:app",
        "--port",
        str(port),
        "--loop",
        "asyncio",
        *options,
    ]
    with running(*line, log=tmp_path / "service.log", **env) as process:
        eventually(lambda: get(f"http://127.0.0.1:{port}/items/1"), "the service answers")
        yield process, port


# --- promtool ---


def promtool(*args: str | Path, stdin: str | None = None) -> str:
    ended = subprocess.run(
        [program("promtool"), *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_the_rules_are_valid_and_their_tests_pass() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", RULES.with_name("alerts_test.yml"))


def test_a_rule_that_is_wrong_fails_its_test(tmp_path: Path) -> None:
    """So that the tests are known to test."""
    rules = RULES.read_text(encoding="utf-8")
    assert "> 0.7" in rules
    (tmp_path / "alerts.yml").write_text(rules.replace("> 0.7", "> 0.8"), encoding="utf-8")
    shutil.copy(RULES.with_name("alerts_test.yml"), tmp_path)
    with pytest.raises(AssertionError, match="LoopwatchUtilization"):
        promtool("test", "rules", tmp_path / "alerts_test.yml")


def test_metrics_pass_promtools_lint(tmp_path: Path) -> None:
    with uvicorn(tmp_path) as (_, port):
        text = get(f"http://127.0.0.1:{port}/metrics")
    ours = re.findall(r"^(?:# (?:HELP|TYPE) )?loopwatch_.*$", text, re.MULTILINE)
    assert len(ours) > 50
    assert promtool("check", "metrics", stdin="\n".join(ours) + "\n").strip() == ""


# --- Prometheus ---

CONFIGURATION = """
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: ["{rules}"]
scrape_configs:
  - job_name: service
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""


class Prometheus:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, **query: str) -> Any:
        answer = json.loads(
            get(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}")
        )
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        try:
            result = self.ask("query", query=expression)["result"]
        except urllib.error.HTTPError as problem:
            pytest.fail(f"{expression}: {problem.read().decode()}")
        return [(row["metric"], float(row["value"][1])) for row in result]


@contextlib.contextmanager
def prometheus(tmp_path: Path, service: int) -> Iterator[Prometheus]:
    port = free_port()
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(rules=RULES, port=service), encoding="utf-8")
    with running(
        program("prometheus"),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        log=tmp_path / "prometheus.log",
    ):
        yield Prometheus(port)


def expressions() -> list[str]:
    """Those of the dashboard, as Grafana would ask them."""
    dashboard = json.loads((TOP / "dashboards/loopwatch.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [re.sub(r"\$(job|instance|loop)\b", ".+", one).replace("$__rate_interval", "30s") for one in found]


def test_prometheus_scrapes_a_service(tmp_path: Path) -> None:
    slow = 5
    with uvicorn(tmp_path) as (_, service), prometheus(tmp_path, service) as server:
        for _ in range(slow):
            get(f"http://127.0.0.1:{service}/slow")
        get(f"http://127.0.0.1:{service}/items/7")
        eventually(lambda: server.query("up == 1"), "Prometheus reaches the service")

        # Values: turns of at least 0.25 s are the slow requests, however busy the machine was with others.
        long = eventually(
            lambda: server.query(
                'loopwatch_turn_seconds_count - ignoring(le) loopwatch_turn_seconds_bucket{le="0.1"} >= 5'
            ),
            "the slow turns are in the histogram",
        )
        ((labels, count),) = long
        assert labels["loop"] == "MainThread"
        now = exposed(service)
        assert slow <= count <= values(now, "loopwatch_turn_seconds_count")[0]
        ((_, busy),) = server.query("loopwatch_busy_seconds_total")
        assert slow * 0.25 <= busy <= values(now, "loopwatch_busy_seconds_total")[0]

        # Rules: loaded, and evaluated without an error.
        def evaluated() -> bool:
            rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
            assert len(rules) == 6
            assert all(rule["health"] == "ok" for rule in rules), rules
            return True

        eventually(evaluated, "the rules are evaluated")

        # The dashboard: each query is understood; those of what this build exports have an answer.
        names = {name for name, _ in now}
        for expression in expressions():
            answer = functools.partial(server.query, expression)
            asked = set(re.findall(r"\bloopwatch_[a-z_]+", expression))
            if asked <= names and not expression.endswith("> 0"):
                eventually(answer, expression)
            else:
                answer()


# --- pre-fork servers ---

GUNICORN = """
from prometheus_client import multiprocess

def child_exit(server, worker):
    multiprocess.mark_process_dead(worker.pid)
"""


@contextlib.contextmanager
def gunicorn(tmp_path: Path, *options: str, **env: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    library("gunicorn")
    port = free_port()
    configuration = tmp_path / "gunicorn.conf.py"
    configuration.write_text(GUNICORN, encoding="utf-8")
    line = [sys.executable, "-m", "gunicorn", "service:app", "-k", "asgi", "-b", f"127.0.0.1:{port}"]
    with running(*line, "-c", configuration, *options, log=tmp_path / "service.log", **env) as process:
        eventually(lambda: get(f"http://127.0.0.1:{port}/items/1"), "the service answers")
        yield process, port


def workers_of(port: int) -> set[str]:
    """By the gauges: a worker that watches a loop has its threshold there."""
    found = exposed(port)
    return {
        dict(labels)["pid"]
        for (name, labels), value in found.items()
        if name == "loopwatch_threshold_seconds" and value > 0
    }


@pytest.mark.parametrize(
    ("server", "options"),
    [(uvicorn, ["--workers", "2"]), (gunicorn, ["-w", "2"]), (gunicorn, ["-w", "2", "--preload"])],
    ids=["uvicorn", "gunicorn", "gunicorn-preload"],
)
def test_two_workers_and_a_reload(tmp_path: Path, server: Any, options: list[str]) -> None:
    files = tmp_path / "files"
    files.mkdir()
    with server(tmp_path, *options, PROMETHEUS_MULTIPROC_DIR=str(files)) as (process, port):
        before = eventually(
            lambda: two if len(two := workers_of(port)) == 2 else None, "both workers have series"
        )
        get(f"http://127.0.0.1:{port}/slow")
        total = eventually(
            lambda: next((v for v in values(exposed(port), "loopwatch_turns_total") if v > 3), None), "turns"
        )
        process.send_signal(signal.SIGHUP)
        after = eventually(
            lambda: two if len(two := workers_of(port)) == 2 and not two & before else None,
            "two other workers have series",
        )
        assert process.poll() is None
        ((total_after),) = values(exposed(port), "loopwatch_turns_total")
        assert total_after >= total, "a counter goes on where a worker is replaced"
        assert before.isdisjoint(after)
    log = (tmp_path / "service.log").read_text(encoding="utf-8")
    assert "Traceback" not in log, log
