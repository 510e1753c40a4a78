"""A histogram's buckets, as the native half packs them."""

import pickle
import struct

import pytest

from loopwatch._buckets import BUCKETS, NativeBuckets, columns
from loopwatch._core import histogram_edge


def test_native_buckets_are_as_many_as_are_named() -> None:
    assert histogram_edge(BUCKETS) > 3600 * 10**9
    with pytest.raises(ValueError, match=f"more than {BUCKETS}"):
        histogram_edge(BUCKETS + 1)


def test_native_buckets_are_the_pairs() -> None:
    pairs = ((3, 1), (1000, 2**40), (BUCKETS - 1, 7))
    packed = (struct.pack("=3H", *(n for n, _ in pairs)), struct.pack("=3Q", *(c for _, c in pairs)))
    buckets = NativeBuckets(packed)
    assert tuple(buckets) == pairs
    assert buckets == pairs
    assert pairs == buckets
    assert buckets == NativeBuckets(packed)
    assert hash(buckets) == hash(pairs)
    assert (len(buckets), buckets[-1], buckets[:2]) == (3, pairs[-1], pairs[:2])
    assert repr(buckets) == repr(pairs)
    assert pickle.loads(pickle.dumps(buckets)) == buckets
    assert tuple(NativeBuckets((b"", b""))) == ()
    assert columns(NativeBuckets((b"", b""))) == ([], [])
