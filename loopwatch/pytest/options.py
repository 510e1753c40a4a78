"""What a test's markers say."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pytest_loopwatch import parse_time


class Limit(NamedTuple):
    """How long a loop may be blocked in a test."""

    threshold: float
    enabled: bool = True


def limit_of(item: pytest.Item, threshold: float) -> Limit:
    """What its nearest marker says; UsageError where that is nonsense."""
    marker = item.get_closest_marker("loopwatch")
    if marker is None:
        return Limit(threshold)
    named = f"{item.nodeid}: @pytest.mark.loopwatch"
    unknown = marker.kwargs.keys() - {"threshold", "enabled"}
    if marker.args or unknown:
        what = f"{min(unknown)!r}" if unknown else repr(marker.args[0])
        raise pytest.UsageError(f"{named} takes threshold= and enabled=, not {what}")
    enabled = marker.kwargs.get("enabled", True)
    if not isinstance(enabled, bool):
        raise pytest.UsageError(f"{named}(enabled=) must be True or False, not {enabled!r}")
    if (given := marker.kwargs.get("threshold")) is not None:
        threshold = parse_time(f"{named}(threshold=)", given)
    return Limit(threshold, enabled)
