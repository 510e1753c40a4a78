"""What docs/recipes.md says to paste, pasted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from programs import LIBRARY, run_program

PAGE = LIBRARY / "docs" / "recipes.md"

ASK = """
import asyncio, importlib.util, sys
import loopwatch
from asgi_client import ask
from scenario import of_the_program, say

spec = importlib.util.spec_from_file_location("pasted", sys.argv[1])
pasted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pasted)
"""


@pytest.fixture
def pasted(tmp_path: Path) -> Callable[[str], Path]:
    """The Python of a heading of the page, in a file."""

    def paste(heading: str) -> Path:
        if not PAGE.is_file():
            pytest.skip("the documentation is not here")
        page = PAGE.read_text(encoding="utf-8")
        sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
        (code,) = re.findall(r"```python\n(.*?)```", sections[heading], re.DOTALL)
        path = tmp_path / "pasted.py"
        path.write_text(code, encoding="utf-8")
        return path

    return paste


def test_fastapi(pasted: Callable[[str], Path]) -> None:
    pytest.importorskip("fastapi")
    facts = run_program(
        ASK
        + dedent("""
            async def main():
                app = pasted.app
                async with app.router.lifespan_context(app):
                    status = await ask(app, "/prices/CHF")
                    watch = app.state.watch
                    await asyncio.sleep(0.01)
                (stall,) = of_the_program(watch.stalls)
                say(status=status, culprit=stall.culprit.qualname, labels=dict(stall.labels), left=watch.installed)

            asyncio.run(main())
        """),
        pasted("uvicorn, FastAPI, Starlette"),
    ).facts
    assert facts["status"] == 200
    assert facts["culprit"] == "prices"
    assert facts["labels"] == {"route": "GET /prices/{currency}"}
    assert not facts["left"]


def test_gateway(pasted: Callable[[str], Path]) -> None:
    pytest.importorskip("fastapi")
    facts = run_program(
        ASK
        + dedent("""
            async def main():
                app = pasted.app
                async with app.router.lifespan_context(app):
                    words = b"+".join(b"word%d" % number for number in range(150))
                    statuses = [await ask(app, "/chat", query_string=b"prompt=" + words), await ask(app, "/loop")]
                    watch = app.state.watch
                    await asyncio.sleep(0.01)
                say(statuses=statuses, steps=sorted({name for stall in watch.stalls for name in stall.steps}))

            asyncio.run(main())
        """),
        pasted("A gateway that streams tokens"),
    ).facts
    assert facts == {"statuses": [200, 200], "steps": ["score"]}


def test_gunicorn(pasted: Callable[[str], Path]) -> None:
    facts = run_program(
        ASK
        + dedent("""
            import logging, time
            messages = []
            handler = logging.Handler()
            handler.emit = lambda record: messages.append(record.getMessage())
            logging.getLogger("loopwatch").addHandler(handler)
            pasted.post_fork(None, None)

            async def main():
                time.sleep(0.3)

            asyncio.run(main())
            loopwatch.uninstall_all()
            say(messages=messages)
        """),
        pasted("gunicorn with uvicorn workers"),
    ).check()
    assert any(" in main (<string>:" in message for message in facts["messages"])


def test_aiohttp(pasted: Callable[[str], Path]) -> None:
    pytest.importorskip("aiohttp")
    program = run_program(
        ASK
        + dedent("""
            from aiohttp.test_utils import TestClient, TestServer

            async def main():
                async with TestClient(TestServer(pasted.app)) as client:
                    say(status=(await client.get("/prices")).status)

            asyncio.run(main())
        """),
        pasted("aiohttp"),
    )
    assert program.facts == {"status": 200}
    assert " in prices (pasted.py:" in program.stderr


def test_script(pasted: Callable[[str], Path]) -> None:
    path = pasted("A script, a worker")
    program = run_program(path.read_text(encoding="utf-8"), file=path)
    assert program.returncode == 0
    assert " in handle (pasted.py:" in program.stderr
    assert "2 more stalls in handle (pasted.py) in the last " in program.stderr
