"""What people read."""

import concurrent.futures._base
import queue
import re
import threading

import pytest
from records import APP, BASE_EVENTS, stall

from loopwatch._stall import Evidence, Frame, Sample, TaskInfo, ThreadInfo, Verdict
from loopwatch._text import seconds, stack_lines

MACHINERY = Frame("<frozen importlib._bootstrap>", 1360, "_find_and_load")


def caused(verdict, **changes):
    return stall(**{"breakdown": {verdict: 0.3}} | changes)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0 ms"),
        (0.0123, "12.3 ms"),
        (0.0999, "100 ms"),
        (0.34, "340 ms"),
        (0.9999, "1.00 s"),
        (61.5, "61.50 s"),
    ],
)
def test_seconds(value, text):
    assert seconds(value) == text


def test_summary_has_duration_verdict_culprit_task():
    assert stall().summary == "event loop blocked for 300 ms: unknown in load (orders.py:20), task 'checkout'"
    assert (
        stall(ongoing=True, task=None, culprit=None).summary
        == "event loop blocked for 300 ms so far: unknown"
    )


def test_summary_is_one_line():
    assert "\n" not in stall(culprit=Frame(APP, 1, "a\nb")).summary


def sentence(made):
    """Unwrapped."""
    return " ".join(made.format().partition("\n\n")[0].split())


def test_a_plain_sentence_comes_first():
    assert sentence(caused(Verdict.PYTHON)) == (
        "The event loop was blocked for 300 ms: load (orders.py line 20), in task 'checkout', was running"
        " Python code."
    )
    assert sentence(caused(Verdict.PYTHON, ongoing=True, thread="io", task=None)) == (
        "The event loop of thread 'io' has been blocked for 300 ms: load (orders.py line 20) is running"
        " Python code."
    )


WORKER = ThreadInfo("worker", 5, (Frame(APP, 90, "spin"),))
BODY = (Frame(APP, 10, "main"), Frame(APP, 20, "load"), MACHINERY, Frame("/x/heavy.py", 3, "<module>"))


@pytest.mark.parametrize(
    ("verdict", "changes", "said"),
    [
        (Verdict.NATIVE, {}, "load (orders.py line 20), in task 'checkout', was running C code."),
        (Verdict.LOCK, {}, "was waiting for a lock."),
        (Verdict.UNKNOWN, {"culprit": None}, "task 'checkout' was busy or waiting; which of the two"),
        (Verdict.UNKNOWN, {"culprit": None, "task": None}, "300 ms: it was busy or waiting; which"),
        (Verdict.BLOCKING_CALL, {}, "was waiting in a blocking call."),
        (
            Verdict.BLOCKING_CALL,
            {"evidence": Evidence(syscall="recvfrom", target="tcp 127.0.0.1:5432")},
            "was waiting for tcp 127.0.0.1:5432 (system call recvfrom).",
        ),
        (Verdict.BLOCKING_CALL, {"evidence": Evidence(syscall="wait4")}, "waiting in the system call wait4."),
        (Verdict.BLOCKING_CALL, {"evidence": Evidence(syscall="clock_nanosleep")}, "was sleeping."),
        (
            Verdict.BLOCKING_CALL,
            {"frames": BODY, "evidence": Evidence(syscall="read", target="/x")},
            "load (orders.py line 20), in task 'checkout', was importing heavy.",
        ),
        (Verdict.PYTHON, {"frames": BODY}, "was importing heavy."),
        (Verdict.PYTHON, {"frames": BODY[:3]}, "was importing a module."),
        (
            Verdict.GIL,
            {"holder": WORKER},
            "thread 'worker', running load (orders.py line 20), was holding the GIL, which the loop needs to",
        ),
        (
            Verdict.GIL,
            {"culprit": None, "task": None},
            "300 ms: another thread was holding the GIL, which the loop needs to run Python.",
        ),
        (
            Verdict.GC,
            {"evidence": Evidence(gc_generation=2)},
            "Python was collecting garbage of generation 2, started in load (orders.py line 20), in task",
        ),
        (
            Verdict.MANY_CALLBACKS,
            {"evidence": Evidence(callbacks=3000)},
            "300 ms: it ran 3000 short callbacks in one turn, most of the time load (orders.py line 20).",
        ),
        (
            Verdict.NOT_SCHEDULED,
            {"evidence": Evidence(throttled_time=0.2)},
            "its thread was ready to run, but without a CPU (the quota of its container is used up).",
        ),
        (Verdict.NOT_SCHEDULED, {}, "without a CPU (the machine is busy, or short of memory)."),
        (Verdict.SUSPENDED, {}, "300 ms: the whole process was stopped from outside."),
    ],
)
def test_what_the_sentence_says(verdict, changes, said):
    assert said in sentence(caused(verdict, **changes))


@pytest.mark.parametrize(
    ("module", "qualname", "said"),
    [
        (queue, "Queue.get", "a queue."),
        (concurrent.futures._base, "Future.result", "a future of another thread."),
        (threading, "Thread.join", "another thread to end."),
        (threading, "Event.wait", "an event of another thread."),
        (threading, "Condition.wait", "a lock."),
    ],
)
def test_what_kind_of_lock(module, qualname, said):
    frames = (Frame(APP, 20, "load"), Frame(module.__file__, 1, qualname))
    assert sentence(caused(Verdict.LOCK, frames=frames)).endswith(f"was waiting for {said}")


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_its_sentence_also_while_it_lasts(verdict):
    assert " is " in sentence(caused(verdict, ongoing=True))
    assert " was " not in sentence(caused(verdict, ongoing=True))


def test_order_of_the_parts():
    text = stall(
        hint="Do less.",
        breakdown={Verdict.LOCK: 0.2, Verdict.PYTHON: 0.1},
        steps={"tls": 0.1},
        sites=((Frame(APP, 20, "load"), 0.2), (Frame(APP, 30, "store"), 0.1)),
        source={(APP, 20): "return read()"},
        holder=WORKER,
        evidence=Evidence(cpu_time=0.25, callbacks=3, syscall="read", gc_time=0.0),
        labels={"route": "/buy"},
        samples=(Sample(0.02, 0.3, (Frame(APP, 20, "load"),), Verdict.UNKNOWN, 99, "exact"),),
    ).format()
    parts = [
        "The event loop",
        "Why:\n  lock             200 ms  67%  ###########################\n  python           100 ms  33%",
        "Steps:\n  tls   100 ms  33%",
        "Where:\n    200 ms  67%  load (shop/orders.py:20)",
        "return read()",
        "store",
        "Stack (most recent call last):",
        "The GIL was held by thread 'worker' (most recent call last):",
        "Evidence:",
        "CPU time 250 ms; callbacks in the turn 3; system call read; route=/buy; 1 sample (1 exact)",
        "task 'checkout' (main)",
        "What to do: Do less.",
    ]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)
    assert text.endswith("What to do: Do less.")
    assert "garbage" not in text, "what did not happen is no news"


def test_one_site_is_not_said_twice():
    assert "Where:" not in stall(sites=((Frame(APP, 20, "load"), 0.3),)).format()
    assert "Where:" in stall(sites=((Frame(APP, 30, "store"), 0.3),)).format()


def test_what_rounds_to_nothing_is_left_out():
    parts = {Verdict.LOCK: 0.2, Verdict.PYTHON: 0.099, Verdict.NOT_SCHEDULED: 0.001}
    sites = ((Frame(APP, 30, "store"), 0.299), (Frame(APP, 31, "tiny"), 0.001))
    text = stall(breakdown=parts, sites=sites).format()
    assert "python" in text
    assert "not-scheduled" not in text
    assert "store" in text
    assert "tiny" not in text
    assert "unknown" in stall(breakdown={Verdict.UNKNOWN: 0.0}).format()


def test_the_holders_stack_is_shown_once():
    text = caused(Verdict.GIL, frames=WORKER.frames, culprit=WORKER.frames[0], holder=WORKER).format()
    assert text.count("in spin") == 1
    assert "Stack of thread 'worker', which held the GIL" in text


def test_at_most_a_hundred_columns():
    names = "a task with a rather long name " * 8
    made = caused(
        Verdict.BLOCKING_CALL,
        task=TaskInfo(names, "main"),
        hint="Do something else. " * 20,
        evidence=Evidence(*[1.5] * 5, 2, 3, 4, "recvfrom", "tcp 127.0.0.1:1", 0.5),
        source={(APP, 20): "x = " + "1 + " * 80},
        steps={f"step {n}": 0.01 for n in range(5)},
    )
    assert max(map(len, made.format().splitlines())) <= 100


def test_nothing_in_the_text_can_drive_a_terminal():
    made = stall(
        task=TaskInfo("a\x1b[31mb", "main"), steps={"s\x07": 0.1}, source={(APP, 20): "x = '\t\x1b'"}
    )
    assert "\x1b" not in made.format()
    assert "\x07" not in made.format()
    assert "\t" not in made.format()


def test_the_stack_is_in_traceback_form():
    lines = list(stack_lines([Frame(APP, 20, "load")], stall(source={(APP, 20): "return read()"})))
    assert lines == [f'  File "{APP}", line 20, in load', "    return read()"]


def test_recursion_is_folded():
    lines = list(stack_lines([Frame(APP, 20, "load")] * 500 + [Frame(APP, 21, "end")], stall()))
    assert len(lines) == 5
    assert lines[-1].endswith("in end")


def test_missing_frames_are_said_where_they_are_missing():
    frames = [Frame(APP, n, f"f{n}") for n in range(1, 1025)]
    lines = list(stack_lines(frames, stall(), truncated=7))
    assert lines[128] == "  [7 frames missing here]"
    assert lines[127].endswith("f128")
    assert lines[129].endswith("f129")


def test_many_sites_and_samples_stay_readable():
    sites = tuple((Frame(APP, n, f"f{n}"), 0.01) for n in range(1, 101))
    samples = tuple(Sample(n / 1000, 0.001, (), Verdict.UNKNOWN, 1, "moving") for n in range(300))
    text = stall(sites=sites, samples=samples).format()
    assert len(text.splitlines()) < 60
    assert "and 88 more" in text
    assert re.search(r"300 samples \(300 moving\)", text)


def test_what_runs_the_loop_and_imports_is_folded():
    once = Frame(BASE_EVENTS, 1986, "BaseEventLoop._run_once")
    start, load, body = Frame(APP, 1, "<module>"), Frame(APP, 20, "load"), Frame("/x/heavy.py", 3, "<module>")
    lines = list(stack_lines([start, once, load, MACHINERY, MACHINERY, body, MACHINERY], stall()))
    assert lines == [
        "  [2 frames that started and run the loop]",
        f'  File "{APP}", line 20, in load',
        "  [2 frames of the import system]",
        '  File "/x/heavy.py", line 3, in <module>',
        "  [1 frame of the import system]",
    ]


def test_what_starts_a_thread_is_folded():
    bootstrap = [Frame(threading.__file__, n, "Thread._bootstrap") for n in (1, 2)]
    lines = list(stack_lines([*bootstrap, Frame(APP, 90, "spin")], stall()))
    assert lines == ["  [2 frames that started the thread]", f'  File "{APP}", line 90, in spin']
    assert len(list(stack_lines(bootstrap[:1], stall()))) == 1, "where it stands is never folded"


def test_a_holder_without_a_name_has_its_number():
    unnamed = ThreadInfo("?", 4711, (Frame(APP, 90, "spin"),))
    assert (
        "Stack of thread 4711, which held the GIL"
        in caused(Verdict.GIL, frames=unnamed.frames, holder=unnamed).format()
    )
