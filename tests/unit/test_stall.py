"""The model: immutable, and the same after JSON."""

import dataclasses
import json
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import APP, stall

from loopwatch._stall import Evidence, Frame, Sample, Stall, TaskInfo, ThreadInfo, Verdict

text = st.text(max_size=8)
number = st.floats(min_value=0, max_value=1e6, allow_nan=False)
maybe_int = st.none() | st.integers(0, 10**6)
frames = st.builds(Frame, text, st.integers(0, 10**6), text, maybe_int, maybe_int, maybe_int)
stacks = st.lists(frames, max_size=4).map(tuple)
verdicts = st.sampled_from(Verdict)
samples = st.builds(
    Sample,
    number,
    number,
    stacks,
    verdicts,
    st.integers(1),
    st.sampled_from(["exact", "moving"]),
    st.integers(0),
)
evidence = st.builds(
    Evidence,
    cpu_time=st.none() | number,
    gc_generation=maybe_int,
    callbacks=maybe_int,
    syscall=st.none() | text,
    target=st.none() | text,
)
stalls = st.builds(
    Stall,
    id=st.integers(1),
    thread=text,
    native_thread_id=st.integers(1),
    started_at=st.datetimes(timezones=st.just(UTC)),
    duration=number,
    ongoing=st.booleans(),
    breakdown=st.dictionaries(verdicts, number, max_size=3),
    culprit=st.none() | frames,
    frames=stacks,
    truncated=st.integers(0),
    samples=st.lists(samples, max_size=4).map(tuple),
    sites=st.lists(st.tuples(frames, number), max_size=3).map(tuple),
    task=st.none() | st.builds(TaskInfo, text, text),
    holder=st.none() | st.builds(ThreadInfo, text, st.integers(1), stacks),
    steps=st.dictionaries(text, number, max_size=3),
    labels=st.dictionaries(text, text, max_size=3),
    evidence=evidence,
    fingerprint=text,
    hint=text,
    overdue=st.booleans(),
    source=st.dictionaries(st.tuples(text, st.integers(1)), text, max_size=3),
)


@given(stalls)
def test_json_both_ways(made):
    again = Stall.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again == made
    assert again.to_dict() == made.to_dict()
    assert hash(again) == hash(made)
    assert again.format() == made.format()


@given(stalls)
def test_pickle(made):
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_frame_in_many_samples_is_stored_once():
    frame = Frame(APP, 1, "f")
    made = stall(samples=tuple(Sample(0.1 * n, 0.1, (frame,), Verdict.UNKNOWN, 1, "exact") for n in range(3)))
    data = made.to_dict()
    assert data["frame_table"] == [dataclasses.asdict(frame)]
    assert [sample["frames"] for sample in data["samples"]] == [[0], [0], [0]]


def test_every_field_is_in_the_dict():
    assert {field.name for field in dataclasses.fields(Stall)} <= stall().to_dict().keys()


@pytest.mark.parametrize("spoil", [lambda d: d.pop("id"), lambda d: d.update(culprit=3), dict.clear])
def test_from_dict_refuses_what_is_no_stall(spoil):
    data = stall().to_dict()
    spoil(data)
    with pytest.raises(ValueError, match="not a stall"):
        Stall.from_dict(data)


def test_immutable():
    made = stall(steps={"a": 1.0})
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.duration = 1.0
    for mapping in (made.breakdown, made.steps, made.labels, made.source):
        with pytest.raises(TypeError):
            mapping["x"] = 1


def test_later_changes_of_the_arguments_do_not_show():
    steps = {"a": 1.0}
    made = stall(steps=steps)
    steps["b"] = 2.0
    assert made.steps == {"a": 1.0}


def test_verdict_has_the_largest_part():
    assert stall(breakdown={Verdict.GC: 0.1, Verdict.GIL: 0.2}).verdict is Verdict.GIL
    assert stall(breakdown={}).verdict is Verdict.UNKNOWN


def test_started_at_keeps_its_zone():
    assert Stall.from_dict(stall().to_dict()).started_at == datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


def test_a_dict_whose_parts_do_not_fit_its_duration_is_still_put_in_words():
    """Found by test_json_both_ways: 1 s of a duration so small that the share is infinite."""
    broken = stall(duration=2.2e-309, breakdown={Verdict.SUSPENDED: 1.0})
    assert "suspended" in broken.format()
