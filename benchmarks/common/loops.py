"""Event loops by name."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util

NAMES = ("asyncio", "uvloop")


def add_argument(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument("--loop", choices=NAMES, help="that one only; else each that is installed")


def wanted(args: argparse.Namespace) -> list[str]:
    return [args.loop] if args.loop else [name for name in NAMES if importlib.util.find_spec(name)]


def new(name: str) -> asyncio.AbstractEventLoop:
    if name == "uvloop":
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
        return loop
    return asyncio.SelectorEventLoop()
