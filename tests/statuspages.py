"""A program that keeps a status page, and what its page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loopwatch import _page

SERVICE = """
    import asyncio, os, sys, time
    import loopwatch
    from scenario import block, hold_gil, new_loop, say

    {functions}

    async def main():
        loopwatch.install(threshold=0.05, log=False, dump_to=False, status=sys.argv[1])
        await asyncio.sleep(0.1)
        say(pid=os.getpid())
        {body}

    with asyncio.Runner(loop_factory=lambda: new_loop("{kind}")) as runner:
        runner.run(main())
"""


def service(body: str, functions: str = "", kind: str = "turn") -> str:
    return SERVICE.format(body=body, functions=functions, kind=kind)


def current(path: Path) -> dict[str, Any] | None:
    stalls = _page.read(path).body.get("current", [])
    return stalls[0] if stalls else None
