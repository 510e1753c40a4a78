"""What a file name says about code: whose it is, its module, and a form of its path that is the same on every
host.

The names are those of code objects, which may be anything, so they are treated as text and never looked up.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from pathlib import Path

_PACKAGE_DIRS = ("site-packages", "dist-packages")


def _directory(path: str | Path) -> str:
    return f"{path}{os.sep}"


@functools.cache
def library_dirs() -> tuple[str, ...]:
    """The standard library's and this package's, as they are named and as they really are."""
    named = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    named.append(Path(__file__).parent)
    return tuple(sorted({str(path) for path in (*named, *(path.resolve() for path in named))}))


@functools.lru_cache(maxsize=4096)
def _of_library(filename: str) -> bool:
    if filename.startswith(("<frozen ", *map(_directory, library_dirs()))):
        return True
    parts = filename.replace("\\", "/").split("/")
    return any(name in parts for name in _PACKAGE_DIRS)


def is_own(filename: str, own: tuple[str, ...] = ()) -> bool:
    """Whether code in this file is the program's own: neither the standard library's nor an installed
    package's, or below one of the `own` prefixes (of a path or of a module)."""
    if not _of_library(filename):
        return True
    return any(_below(filename, prefix) for prefix in own)


def _below(filename: str, prefix: str) -> bool:
    if os.sep in prefix or prefix.startswith("."):
        path = Path(prefix).absolute()
        return filename == str(path) or filename.startswith(_directory(path))
    module = module_name(filename)
    return module == prefix or module.startswith(prefix + ".")


@functools.lru_cache(maxsize=4096)
def _relative(filename: str, path: tuple[str, ...]) -> str:
    if filename.startswith("<"):
        return filename
    entries = (_directory(Path(entry).absolute()) for entry in path)
    longest = max((entry for entry in entries if filename.startswith(entry)), key=len, default="")
    relative = filename[len(longest) :] if longest else Path(filename).name
    return relative.replace(os.sep, "/")


def relative_path(filename: str) -> str:
    """The path below its entry of sys.path, with "/"; the base name where it is below none."""
    return _relative(filename, tuple(entry for entry in sys.path if isinstance(entry, str)))


def module_name(filename: str, entry: str | None = None) -> str:
    """The dotted name under which the file would be imported, as far as its path tells; below `entry`."""
    relative = relative_path(filename) if entry is None else filename.removeprefix(entry)
    if relative.startswith("<frozen ") and relative.endswith(">"):
        return relative[len("<frozen ") : -1]
    parts = relative.split("/")
    parts[-1] = parts[-1].removesuffix(".py")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def library_module(filename: str) -> str:
    """The dotted name of a module of the standard library or of an installed package; "" for any other."""
    if not _of_library(filename):
        return ""
    if filename.startswith("<"):
        return module_name(filename)
    parts = filename.replace("\\", "/").split("/")
    for name in _PACKAGE_DIRS:
        if name in parts:
            return module_name("/".join(["", *parts[parts.index(name) + 1 :]]), entry="/")
    entry = max((entry for entry in map(_directory, library_dirs()) if filename.startswith(entry)), key=len)
    return module_name(filename, entry=entry)


def is_main(filename: str) -> bool:
    """Whether the file is the program that was started."""
    return filename == getattr(sys.modules.get("__main__"), "__file__", None)
