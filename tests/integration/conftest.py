from __future__ import annotations

from reportpage import browser, jsonl, opened, some

__all__ = ["browser", "jsonl", "opened", "some"]
