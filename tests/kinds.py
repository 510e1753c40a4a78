"""The kinds of loops that a test runs with, by the pulse that watches them (or "wrapped")."""

from __future__ import annotations

from typing import Any

import pytest

from loopwatch import _core

KINDS = ("turn", "wrapped", "heartbeat", "uv")


def kind_fixture(*kinds: str, uv_pulse: bool = False) -> Any:
    """For a test file: `kind = kind_fixture(...)`. `uv_pulse`: where uvloop's own pulse is needed, which the portable
    build does not have."""

    @pytest.fixture(params=kinds)
    def kind(request: pytest.FixtureRequest) -> str:
        if request.param == "uv":
            pytest.importorskip("uvloop")
            if uv_pulse and _core.PORTABLE:
                pytest.skip("the portable build has no uv pulse")
        return str(request.param)

    return kind
