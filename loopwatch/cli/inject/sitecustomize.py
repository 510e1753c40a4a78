"""Found by site in each Python process of a program under `loopwatch run`, which puts this directory on PYTHONPATH.

What it leaves is a finder that starts the watching when asyncio is imported, so a process that has no loop pays
nothing; where a .pth file has imported asyncio before, it starts at once. Then it steps back: off sys.path, with the
sitecustomize that would have been found without it in its place. That comes last: it may import asyncio, or raise.
"""

# ruff: noqa: PTH100, PTH112, PTH120
# pathlib is not imported in a process that may not need it

import importlib.machinery
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def step_back():
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


class AtAsyncio:
    """A finder that stays until asyncio has been imported; it may be asked before, for its spec alone."""

    asking = False

    def find_spec(self, name, *_):
        if name != "asyncio" or self.asking:
            return None
        self.asking = True
        spec = importlib.util.find_spec(name)
        self.asking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    begin()

            spec.loader.exec_module = exec_module
        return spec


def begin():
    """Whatever goes wrong here, the program goes on as if it had been started without us."""
    try:
        options = json.loads(os.environ["LOOPWATCH_RUN"])
        if not os.path.isdir(options["directory"]):  # that run is over
            return
        added = options["library"] if options["tag"] == sys.implementation.cache_tag else None
        if added:
            sys.path.append(added)
        try:
            from loopwatch.cli import _launched
        finally:
            if added:
                sys.path.remove(added)
        _launched.begin(options)
    except Exception as problem:
        if isinstance(problem, ImportError) and getattr(problem, "name", "") == "loopwatch":
            problem = f"loopwatch is not installed for {sys.executable}"
        sys.stderr.write(f"loopwatch: process {os.getpid()} is not watched: {problem}\n")


if "LOOPWATCH_RUN" in os.environ:
    if "asyncio" in sys.modules:
        begin()
    else:
        sys.meta_path.insert(0, AtAsyncio())
step_back()
