"""What to do, entry by entry: each rule has a stall that it, and no earlier one, speaks for."""

import sysconfig

import pytest
from records import APP, stall

from loopwatch._clues import Platform
from loopwatch._hints import RULES, hint
from loopwatch._stall import Evidence, Frame, TaskInfo, Verdict

STDLIB = sysconfig.get_path("stdlib")
CULPRIT = Frame(APP, 20, "load")
MACHINERY = Frame("<frozen importlib._bootstrap>", 1360, "_find_and_load")
GIL, NO_GIL, OLD = Platform(True, True), Platform(False, True), Platform(True, False)


def library(path, qualname):
    """A frame of the standard library, or of an installed package where the path begins with "+"."""
    root = "/x/site-packages/" if path.startswith("+") else f"{STDLIB}/"
    return Frame(root + path.removeprefix("+"), 1, qualname)


def case(verdict, *below, call="", task=True, platform=GIL, **known):
    """A stall of 300 ms of `verdict`, what is below its culprit, and what the innermost frame executes."""
    made = stall(
        breakdown={verdict: 0.3},
        frames=(Frame(APP, 10, "main"), CULPRIT, *below),
        task=TaskInfo("checkout", "main") if task else None,
        evidence=Evidence(**known),
    )
    return hint(made, call, platform)


CONDITION = library("threading.py", "Condition.wait")
CASES = {
    "suspended": case(Verdict.SUSPENDED),
    "throttled": case(Verdict.NOT_SCHEDULED, throttled_time=0.2, run_queue_wait=0.05, major_faults=0),
    "paged out": case(Verdict.NOT_SCHEDULED, run_queue_wait=0.01, major_faults=40),
    "starved": case(Verdict.NOT_SCHEDULED, run_queue_wait=0.28, major_faults=1, throttled_time=0.0),
    "collection in a thread": case(Verdict.GIL, gc_time=0.2),
    "C call in a thread": case(Verdict.GIL, library("json/__init__.py", "dumps"), gc_time=0.01),
    "work in a thread": case(Verdict.GIL, call="n += 1"),
    "collection asked for": case(Verdict.GC, call="gc.collect()"),
    "collection": case(Verdict.GC, call="rows.append([n])"),
    "many callbacks": case(Verdict.MANY_CALLBACKS, callbacks=3000),
    "import": case(Verdict.PYTHON, MACHINERY, library("+heavy/__init__.py", "<module>")),
    "TLS context": case(Verdict.NATIVE, library("ssl.py", "create_default_context")),
    "model": case(Verdict.NATIVE, library("+transformers/models/auto.py", "AutoModel.from_pretrained")),
    "queue": case(Verdict.LOCK, library("queue.py", "Queue.get"), CONDITION),
    "future": case(Verdict.LOCK, library("concurrent/futures/_base.py", "Future.result"), CONDITION),
    "thread's end": case(Verdict.LOCK, library("threading.py", "Thread.join")),
    "event or condition": case(Verdict.LOCK, library("threading.py", "Event.wait"), CONDITION),
    "lock": case(Verdict.LOCK, call="LOCK"),
    "process": case(
        Verdict.BLOCKING_CALL, library("subprocess.py", "run"), library("selectors.py", "PollSelector.select")
    ),
    "log": case(Verdict.BLOCKING_CALL, library("logging/__init__.py", "StreamHandler.emit"), syscall="write"),
    "name look-up": case(Verdict.BLOCKING_CALL, library("socket.py", "getaddrinfo"), syscall="poll"),
    "blocking client": case(
        Verdict.BLOCKING_CALL,
        library("+requests/sessions.py", "Session.get"),
        library("http/client.py", "HTTPConnection.getresponse"),
        syscall="recvfrom",
        target="tcp 10.0.0.1:443",
    ),
    "sleep": case(Verdict.BLOCKING_CALL, call="time.sleep(0.4)", syscall="clock_nanosleep"),
    "question to a terminal": case(Verdict.BLOCKING_CALL, call="input('name? ')", syscall="read"),
    "socket": case(Verdict.BLOCKING_CALL, syscall="recvfrom"),
    "peer": case(Verdict.BLOCKING_CALL, syscall="poll", target="tcp 127.0.0.1:5432"),
    "pipe": case(Verdict.BLOCKING_CALL, syscall="read", target="pipe"),
    "file": case(Verdict.BLOCKING_CALL, syscall="fsync", target="/var/lib/app.db"),
    "call": case(Verdict.BLOCKING_CALL, call="driver.usleep(2_400_000)", syscall="clock_nanosleep"),
    "work, without a GIL": case(Verdict.PYTHON, call="n += 1", platform=NO_GIL),
    "answer serialised by the framework": case(
        Verdict.PYTHON, library("+fastapi/encoders.py", "jsonable_encoder")
    ),
    "C code that keeps the GIL": case(Verdict.NATIVE, call="PATTERN.match(text)"),
    "C code that drops the GIL": case(Verdict.NATIVE, call="hashlib.sha256(data)"),
    "other C code": case(Verdict.NATIVE, call="sorted(rows)"),
    "Python code": case(Verdict.PYTHON, call="n += 1"),
    "unseen": case(Verdict.UNKNOWN),
}


def test_every_rule_has_a_case():
    assert [rule.name for rule in RULES] == list(CASES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_rule_speaks(rule):
    begin, _, rest = rule.advice.partition("{")
    assert CASES[rule.name].startswith(begin)
    assert CASES[rule.name].endswith(rest.rpartition("}")[2])
    same = {other.name for other in RULES if other.advice == rule.advice}
    assert same <= {rule.name, "socket", "peer"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_one_sentence_with_a_reason(rule):
    for text in (CASES[rule.name], rule.why):
        assert text.endswith(".")
        assert "{" not in text
        assert ". " not in text


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_a_hint_whatever_else_is_known(verdict):
    assert hint(stall(breakdown={verdict: 0.3}))
    assert hint(stall(breakdown={verdict: 0.3}, culprit=None, frames=(), task=None, duration=0.0))


# --- the words that differ ---


def test_pools_by_version():
    assert "a process or interpreter pool" in CASES["Python code"]
    assert "a process pool" in case(Verdict.PYTHON, call="n += 1", platform=OLD)


@pytest.mark.parametrize("call", ["json.dumps(rows)", "n += 1", "hashlib.sha256(data)"])
@pytest.mark.parametrize("verdict", [Verdict.PYTHON, Verdict.NATIVE])
def test_without_a_gil_a_thread_is_right_for_any_work(verdict, call):
    assert "asyncio.to_thread" in case(verdict, call=call, platform=NO_GIL)


def test_a_callback_cannot_await_its_sleep():
    assert "await asyncio.sleep(...)" in CASES["sleep"]
    assert "loop.call_later(...)" in case(Verdict.BLOCKING_CALL, call="sleep(0.4)", task=False)


def test_the_client_is_the_one_the_program_chose():
    assert "httpx.AsyncClient or aiohttp" in CASES["blocking client"]
    boto = (library("+botocore/client.py", "call"), library("+urllib3/connectionpool.py", "urlopen"))
    assert "aiobotocore" in case(Verdict.BLOCKING_CALL, *boto)


def test_how_many_callbacks():
    assert "3000" in CASES["many callbacks"]
    assert "many callbacks" in case(Verdict.MANY_CALLBACKS)


@pytest.mark.parametrize("call", ["sleepy(1)", "driver.usleep(9)", "self.sleep(1)", "asyncio.sleep(1)"])
def test_what_is_no_sleep(call):
    assert case(Verdict.BLOCKING_CALL, call=call) == CASES["call"]


def test_own_code_with_a_librarys_name_is_no_library():
    assert case(Verdict.BLOCKING_CALL, Frame("/srv/app/requests/sessions.py", 1, "get")) == CASES["call"]


def test_what_is_above_the_culprit_does_not_speak():
    frames = (library("logging/__init__.py", "Handler.emit"), CULPRIT)
    assert hint(stall(breakdown={Verdict.LOCK: 0.3}, frames=frames), "", GIL) == CASES["lock"]
