"""What the running task is read with, by itself: strings, and the dicts in which earlier versions keep the task."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from utf8 import cut

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(
    not hasattr(_testcore, "map_hole"), reason="the portable build has no guarded reads"
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(st.characters(exclude_categories=())), room=st.integers(0, 60))
def test_strings(text: str, room: int) -> None:
    whole = text.encode("utf-8", "surrogatepass")
    expected = cut(text, room).encode("utf-8", "surrogatepass")
    assert _testcore.string_read(text, room) == expected
    assert _testcore.string_read(text, len(whole)) == whole


def test_what_is_no_string() -> None:
    class Text(str):
        __slots__ = ()

    for thing in (b"bytes", 1, None, Text("subclass"), object()):
        assert _testcore.string_read(thing, 100) is None


needs_dict = pytest.mark.skipif(
    not hasattr(_testcore, "dict_find"), reason="this version keeps the task in the thread state"
)


@needs_dict
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 400), st.sets(st.integers(0, 400)), st.booleans())
def test_dicts(n: int, deleted: set[int], text: bool) -> None:
    """Entries of both kinds, over several sizes, with holes."""
    keys: list[Any] = [f"key {i}" if text else object() for i in range(n)]
    values = [object() for _ in range(n)]
    whole = dict(zip(keys, values, strict=True))
    gone = {i for i in deleted if i < n}
    for i in gone:
        del whole[keys[i]]
    for i in range(n):
        assert _testcore.dict_find(whole, keys[i]) == (0 if i in gone else id(values[i]))
    assert _testcore.dict_find(whole, object()) == 0


@needs_dict
def test_dicts_of_instances() -> None:
    class Thing:
        def __init__(self) -> None:
            self.first, self.second = object(), object()

    for _ in range(3):
        thing = Thing()
        attributes = vars(thing)
        for key, value in attributes.items():
            assert _testcore.dict_find(attributes, key) == id(value)
        assert _testcore.dict_find(attributes, "no such attribute") == 0


@needs_dict
def test_what_is_no_dict_or_too_large_a_one() -> None:
    for thing in ([], "text", None, 1, object()):
        assert _testcore.dict_find(thing, thing) is None
    assert _testcore.dict_find({object(): 1 for _ in range(5000)}, 1) is None
