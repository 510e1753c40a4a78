"""loopwatch run: a process is watched whenever it imports asyncio, also before anybody is there to see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import LIBRARY
from test_run import LOOPWATCH, PRELUDE, environment, finish, write

RUNS = PRELUDE + "asyncio.run(main())"
THEIRS = {
    "imports asyncio": "import asyncio",
    "runs a loop": "import asyncio; asyncio.run(asyncio.sleep(0))",
    "raises": "raise ValueError('theirs')",
    "imports and raises": "import asyncio; raise ValueError('theirs')",
}


@pytest.mark.parametrize("how", THEIRS)
def test_the_programs_own_sitecustomize(tmp_path: Path, how: str) -> None:
    site = tmp_path / "site"
    site.mkdir()
    write(site, THEIRS[how], "sitecustomize.py")
    program = write(tmp_path, RUNS)
    env = environment(tmp_path, PYTHONPATH=os.pathsep.join((str(site), str(LIBRARY))))
    line = [*LOOPWATCH, "run", program]
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "1 x blocking-call in main (program.py:5)" in done.stderr
    assert ("ValueError: theirs" in done.stderr) is ("raises" in how), "as site has it"


def test_asyncio_was_imported_before(tmp_path: Path) -> None:
    """As a .pth file does that imports it: those are read before sitecustomize is."""
    write(tmp_path, RUNS, "late.py")
    source = "import asyncio, site; site.main(); import sys; sys.path.insert(0, '.'); import late"
    done = finish(tmp_path, *LOOPWATCH, "run", sys.executable, "-S", "-c", source)
    assert done.returncode == 0, done
    assert "1 x blocking-call in main (late.py:5)" in done.stderr
