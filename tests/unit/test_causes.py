"""From the clocks' verdicts to who is to blame."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import APP, BASE_EVENTS, LIBRARY, MS, evidence, packed, record

from loopwatch._build import Context, build_stall
from loopwatch._capture import Captured
from loopwatch._stall import Evidence, Frame, Stall, TaskInfo, Verdict

LOOP, WORKER, OTHER = 99, 501, 502
PLACES = {
    "main": (APP, 10, "main"),
    "load": (APP, 20, "load"),
    "store": (APP, 30, "store"),
    "store again": (APP, 31, "store"),
    "send": (LIBRARY, 5, "send"),
    "spin": (APP, 90, "spin"),
    "parse": (APP, 95, "parse"),
}
NAMES = list(PLACES)
FRAMES = {name: Frame(*place) for name, place in PLACES.items()}


def made(*samples, stacks, breakdown, **changes):
    """A record whose stacks are tuples of names in PLACES."""
    return record(
        frames=[(*place, -1, -1, -1) for place in PLACES.values()],
        stacks=[[NAMES.index(name) for name in stack] for stack in stacks],
        samples=list(samples),
        breakdown={cause: ns * MS for cause, ns in breakdown.items()},
        holders=[(WORKER, 0), (OTHER, 0)],
        **changes,
    )


def build(*samples, **changes):
    return build_stall(made(*samples, **changes), Context())


# --- the breakdown ---


def test_breakdown_has_what_took_time_in_the_order_of_precedence():
    stall = build(
        packed(0, 300, 0, "lock"),
        stacks=[("main",)],
        breakdown={"lock": 200, "gil": 0, "not-scheduled": 100, "python": 0},
    )
    assert list(stall.breakdown.items()) == [
        (Verdict.NOT_SCHEDULED, pytest.approx(0.1)),
        (Verdict.LOCK, pytest.approx(0.2)),
    ]
    assert stall.verdict is Verdict.LOCK


def test_of_equal_causes_the_first_in_order_of_precedence_is_the_verdict():
    stall = build(packed(0, 300, 0), stacks=[("main",)], breakdown={"native": 150, "gc": 150})
    assert stall.verdict is Verdict.GC


def test_a_breakdown_without_time_keeps_its_verdict():
    stall = build(stacks=[], breakdown={"unknown": 0}, end_ns=1000 * MS)
    assert stall.breakdown == {Verdict.UNKNOWN: 0.0}


@given(
    st.dictionaries(st.sampled_from([str(cause) for cause in Verdict]), st.integers(0, 10**13), min_size=1)
)
def test_the_sum_is_the_duration(parts):
    total = sum(parts.values())
    stall = build_stall(record(end_ns=1000 * MS + total, breakdown=parts), Context())
    assert sum(stall.breakdown.values()) == pytest.approx(stall.duration, abs=1e-3)
    assert stall.breakdown[stall.verdict] == max(stall.breakdown.values())
    assert all(part > 0 or cause is stall.verdict for cause, part in stall.breakdown.items())


# --- evidence ---


def test_evidence_is_in_seconds():
    known = evidence(
        cpu_ns=2 * MS,
        run_queue_ns=3 * MS,
        throttled_ns=4 * MS,
        gil_wait_ns=5 * MS,
        gc_ns=6 * MS,
        gc_generation=2,
        major_faults=7,
        callbacks=8,
        watchdog_late_ns=9 * MS,
        syscall="read",
        target="pipe",
    )
    stall = build_stall(record(evidence=known), Context(redact=lambda text: text.replace("pipe", "***")))
    assert stall.evidence == Evidence(0.002, 0.005, 0.003, 0.004, 0.006, 2, 7, 8, "read", "***", 0.009)


def test_what_is_not_known_is_none_and_zero_is_zero():
    assert build_stall(record(), Context()).evidence == Evidence()
    assert build_stall(record(evidence=evidence(gc_ns=0)), Context()).evidence == Evidence(gc_time=0.0)


# --- whom a verdict blames ---


def test_a_wait_for_the_gil_shows_and_blames_the_holder():
    stall = build(
        packed(0, 200, 0, "gil", holder_stack=1, holder=0),
        packed(200, 100, 0, "python"),
        stacks=[("main", "load"), ("spin", "send")],
        breakdown={"gil": 200, "python": 100},
    )
    assert stall.culprit == FRAMES["spin"]
    assert stall.frames == (FRAMES["spin"], FRAMES["send"])
    assert [sample.native_thread_id for sample in stall.samples] == [WORKER, LOOP]
    assert stall.samples[0].frames == stall.frames
    assert stall.samples[0].verdict is Verdict.GIL
    assert stall.sites == ((FRAMES["spin"], pytest.approx(0.2)), (FRAMES["load"], pytest.approx(0.1)))
    assert stall.task == TaskInfo("checkout", "main"), "the one that ran on the loop meanwhile"


def test_a_wait_for_the_gil_in_an_idle_loop_has_no_task():
    stall = build(
        packed(0, 300, 0, "gil", holder_stack=1, holder=0, task=-1),
        stacks=[("main",), ("spin",)],
        breakdown={"gil": 300},
    )
    assert stall.culprit == FRAMES["spin"]
    assert stall.task is None


def test_a_holder_that_nobody_saw_leaves_the_loop_innocent():
    stall = build(packed(0, 300, 0, "gil"), stacks=[("main", "load")], breakdown={"gil": 300})
    assert stall.culprit is None
    assert stall.sites == ()
    assert stall.frames == (FRAMES["main"], FRAMES["load"]), "where the loop stood"
    assert stall.holder is None
    assert stall.samples[0].native_thread_id == LOOP


@pytest.mark.parametrize("verdict", ["suspended", "not-scheduled"])
def test_the_machine_has_no_culprit(verdict):
    stall = build(packed(0, 300, 0, verdict), stacks=[("main", "load")], breakdown={verdict: 300})
    assert stall.culprit is None
    assert stall.frames == (FRAMES["main"], FRAMES["load"])


def test_the_culprit_is_of_the_stalls_verdict():
    """`load` has the most time in one sample, but waits; the verdict is that of `store`."""
    stall = build(
        packed(0, 140, 0, "blocking-call", task=-1),
        packed(140, 80, 1, "python"),
        packed(220, 80, 2, "python"),
        stacks=[("main", "load"), ("main", "store"), ("main", "store again")],
        breakdown={"blocking-call": 140, "python": 160},
    )
    assert stall.culprit == FRAMES["store"]
    assert stall.frames == (FRAMES["main"], FRAMES["store"])
    assert stall.task == TaskInfo("checkout", "main")
    assert [frame.qualname for frame, _ in stall.sites] == ["store", "load"]


def test_many_callbacks_looks_at_python_and_native_samples():
    stall = build(
        packed(0, 90, 0, "python"),
        packed(90, 90, 0, "native"),
        packed(180, 120, 1, "lock"),
        stacks=[("load",), ("store",)],
        breakdown={"many-callbacks": 180, "lock": 120},
    )
    assert stall.verdict is Verdict.MANY_CALLBACKS
    assert stall.culprit == FRAMES["load"]


def test_a_cause_that_is_the_largest_of_no_sample_is_searched_in_all():
    samples = [packed(0, 100, 0, "python"), packed(100, 100, 0, "native"), packed(200, 100, 0, "lock")]
    stall = build(*samples, stacks=[("load",)], breakdown={"gc": 120, "python": 60, "native": 60, "lock": 60})
    assert stall.verdict is Verdict.GC
    assert stall.culprit == FRAMES["load"]


# --- the holder ---


def test_the_holder_is_who_held_it_longest():
    """A convoy: no hold is long, the worker's together are, and its heaviest stack is shown."""
    stall = build(
        packed(0, 110, 0, "gil", holder_stack=2, holder=1),
        packed(110, 60, 0, "gil", holder_stack=1, holder=0),
        packed(170, 100, 0, "gil", holder_stack=3, holder=0),
        packed(270, 30, 0, "python"),
        stacks=[("main",), ("spin",), ("parse",), ("spin", "send")],
        breakdown={"gil": 270, "python": 30},
    )
    assert stall.holder.native_thread_id == WORKER
    assert stall.holder.frames == (FRAMES["spin"], FRAMES["send"])
    assert stall.holder.name == "?", "threading does not know it"


@pytest.mark.parametrize(("waited", "named"), [(15, True), (14, False)])
def test_a_holder_below_five_percent_is_not_named(waited, named):
    stall = build(
        packed(0, waited, 0, "gil", holder_stack=1, holder=0),
        packed(waited, 300 - waited, 0, "python"),
        stacks=[("main",), ("spin",)],
        breakdown={"gil": waited, "python": 300 - waited},
    )
    assert (stall.holder is not None) is named


def test_who_has_the_gil_while_the_loop_does_not_want_it_is_no_holder():
    stall = build(
        packed(0, 300, 0, "blocking-call", holder_stack=1, holder=0),
        stacks=[("main",), ("spin",)],
        breakdown={"blocking-call": 300},
    )
    assert stall.holder is None
    assert stall.culprit == FRAMES["main"]


@pytest.mark.parametrize("by", ["native id", "ident"])
def test_the_holder_is_named_by_threading(by):
    ids = (threading.get_native_id(), 0) if by == "native id" else (0, threading.get_ident())
    samples = [packed(0, 300, 0, "gil", holder_stack=1, holder=0)]
    one = made(*samples, stacks=[("main",), ("spin",)], breakdown={"gil": 300}) | {"holders": [ids]}
    assert build_stall(one, Context()).holder.name == threading.current_thread().name


# --- frames read by the reporter ---


def captured(at_ms, name, task=None):
    return Captured(3, at_ms * MS, (FRAMES[name],), 0, task)


def test_the_reporters_looks_have_the_records_verdicts():
    one = made(
        packed(0, 100, -1, "lock", task=-1),
        packed(100, 200, -1, "python", task=-1),
        stacks=[],
        breakdown={"lock": 100, "python": 200},
    )
    looks = (captured(1010, "load"), captured(1120, "store", TaskInfo("t", "store")))
    stall = build_stall(one, Context(captured=looks))
    assert [(sample.verdict, sample.frames) for sample in stall.samples] == [
        (Verdict.LOCK, (FRAMES["load"],)),
        (Verdict.PYTHON, (FRAMES["store"],)),
    ]
    assert stall.culprit == FRAMES["store"]
    assert stall.task == TaskInfo("t", "store")


def test_the_reporters_looks_alone_have_the_stalls_verdict():
    one = made(stacks=[], breakdown={"native": 300})
    stall = build_stall(one, Context(captured=(captured(1010, "load"),)))
    assert [sample.verdict for sample in stall.samples] == [Verdict.NATIVE]
    assert stall.culprit == FRAMES["load"]


def test_the_reporters_looks_do_not_blame_the_loop_for_the_gil():
    one = made(packed(0, 300, -1, "gil", holder=0), stacks=[], breakdown={"gil": 300})
    stall = build_stall(one, Context(captured=(captured(1010, "load"),)))
    assert stall.culprit is None
    assert stall.frames == (FRAMES["load"],)
    assert (stall.holder.native_thread_id, stall.holder.frames) == (WORKER, ())


# --- imports, frameworks, finalizers, eager tasks ---

MACHINERY = ("<frozen importlib._bootstrap>", 1360, "_find_and_load")
ONCE = (BASE_EVENTS, 1986, "BaseEventLoop._run_once")


def stall_in(*places, task=("checkout", "main"), context=None, verdict="python"):
    """One sample of this stack."""
    one = record(
        frames=[(*place, -1, -1, -1) for place in places],
        stacks=[list(range(len(places)))],
        samples=[packed(0, 300, 0, verdict)],
        breakdown={verdict: 300 * MS},
        tasks=[(4096, *task)],
    )
    return build_stall(one, context or Context())


@pytest.mark.parametrize("heavy", ["/srv/app/heavy/__init__.py", "/x/site-packages/heavy/__init__.py"])
def test_an_import_blames_the_statement_that_imports(heavy, monkeypatch):
    monkeypatch.syspath_prepend("/srv/app")
    monkeypatch.syspath_prepend("/x/site-packages")
    stall = stall_in(ONCE, PLACES["load"], MACHINERY, (heavy, 3, "<module>"), MACHINERY, (APP, 1, "<module>"))
    assert stall.culprit == FRAMES["load"]
    assert "importing heavy." in " ".join(stall.format().split())
    assert stall.hint == "Import heavy when the program starts, not while it serves."


def test_import_module_is_import_machinery_too():
    by_hand = (threading.__file__.replace("threading.py", "importlib/__init__.py"), 90, "import_module")
    stall = stall_in(ONCE, PLACES["load"], by_hand, MACHINERY, ("/srv/app/x.py", 3, "<module>"))
    assert stall.culprit == FRAMES["load"]


def test_a_program_that_is_itself_imported_is_not_importing():
    """`import app` starts the loop: only what the turn imports counts."""
    stall = stall_in(PLACES["main"], MACHINERY, (APP, 1, "<module>"), ONCE, PLACES["load"])
    assert stall.culprit == FRAMES["load"]
    assert "import" not in stall.hint


def test_an_import_by_a_library_blames_the_own_module():
    stall = stall_in(ONCE, PLACES["send"], MACHINERY, (APP, 1, "<module>"), task=("t", "other"))
    assert stall.culprit == Frame(APP, 1, "<module>")


def test_a_task_without_own_frames_blames_its_coroutine():
    """A framework serialises what an endpoint returned: the endpoint is over."""
    cycle, encode = (LIBRARY, 50, "Cycle.run"), (LIBRARY, 70, "encode")
    stall = stall_in(ONCE, (LIBRARY, 5, "Server.step"), cycle, encode, encode, task=("t", "Cycle.run"))
    assert stall.culprit == Frame(*cycle)
    assert stall_in(ONCE, cycle, encode, task=("t", "Other.run")).culprit == Frame(*encode)
    assert stall_in(ONCE, cycle, PLACES["load"], encode, task=("t", "Cycle.run")).culprit == FRAMES["load"]


def test_an_eager_task_is_blamed_in_its_own_frame():
    stall = stall_in(
        ONCE, PLACES["main"], (LIBRARY, 7, "create_task"), PLACES["load"], task=("child", "load")
    )
    assert stall.culprit == FRAMES["load"]
    assert stall.task == TaskInfo("child", "load")


def test_a_finalizer_is_blamed_for_what_it_does():
    stall = stall_in(ONCE, PLACES["load"], (APP, 60, "Session.__del__"), verdict="blocking-call")
    assert stall.culprit.qualname == "Session.__del__"


def test_own_prefixes_reach_the_holders_frames():
    one = made(
        packed(0, 300, 0, "gil", holder_stack=1, holder=0),
        stacks=[("main",), ("spin", "send")],
        breakdown={"gil": 300},
    )
    prefix = LIBRARY.rpartition("/")[0]
    assert build_stall(one, Context(own=(prefix,))).culprit == FRAMES["send"]


# --- JSON ---


def test_json_has_it_all():
    stall = build(
        packed(0, 200, 0, "gil", holder_stack=1, holder=0),
        packed(200, 100, 0, "python"),
        stacks=[("main", "load"), ("spin", "send")],
        breakdown={"gil": 200, "python": 100},
        evidence=evidence(cpu_ns=MS, syscall="futex"),
    )
    again = Stall.from_dict(stall.to_dict())
    assert again == stall
    assert again.format() == stall.format()
    assert (again.verdict, again.holder, again.hint) == (stall.verdict, stall.holder, stall.hint)
