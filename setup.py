"""Builds loopwatch._core from src/, and, for the tests, loopwatch._testcore beside it.

Switches (environment variables, read here only):
    LOOPWATCH_WERROR=1                      warnings of the C compiler are errors
    LOOPWATCH_DEBUG=1                       -O0 -g3, C asserts on
    LOOPWATCH_TEST=1                        build loopwatch._testcore too, C asserts on in both
    LOOPWATCH_SANITIZE=address,undefined    or thread
    LOOPWATCH_COVERAGE=1                    gcov instrumentation
    LOOPWATCH_PORTABLE=1                    leave out everything that is Linux-only or reads interpreter memory
"""

import copy
import os
import sysconfig
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow"]


def switch(name: str) -> str:
    value = os.environ.get(f"LOOPWATCH_{name}", "")
    return "" if value == "0" else value


def compile_args() -> list[str]:
    # CPython's own headers are not ours to warn about: the same directory again, as a system one.
    includes = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    args = ["-std=c11", "-fvisibility=hidden", "-fno-strict-aliasing", *WARNINGS]
    args += [f"-isystem{path}" for path in sorted(includes)]
    if switch("WERROR"):
        args.append("-Werror")
    args += ["-O0", "-g3"] if switch("DEBUG") else ["-O2", "-g"]
    args.append("-UNDEBUG" if switch("DEBUG") or switch("TEST") else "-DNDEBUG")
    if switch("SANITIZE"):
        args += [
            f"-fsanitize={switch('SANITIZE')}",
            "-fno-omit-frame-pointer",
            "-fno-sanitize-recover=undefined",
        ]
    if switch("COVERAGE"):
        args.append("--coverage")
    return args


def link_args() -> list[str]:
    args = ["-pthread"]
    if switch("SANITIZE"):
        args.append(f"-fsanitize={switch('SANITIZE')}")
    if switch("COVERAGE"):
        args.append("--coverage")
    return args


class SideBySide(build_ext):
    """The two extensions at once; each keeps its objects apart, since both compile src/ and with other macros."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or True

    def build_extension(self, ext: Extension) -> None:
        apart = copy.copy(self)
        apart.build_temp = str(Path(self.build_temp, ext.name))
        build_ext.build_extension(apart, ext)


def extension(name: str, sources: list[str], macros: list[tuple[str, str]]) -> Extension:
    return Extension(
        name,
        sources=sources,
        depends=sorted(str(path) for path in Path("src").rglob("*.h")),
        include_dirs=["src"],
        define_macros=[("_GNU_SOURCE", "1"), *macros],
        extra_compile_args=compile_args(),
        extra_link_args=link_args(),
    )


def version() -> str:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def extensions() -> list[Extension]:
    macros = [("LW_VERSION", f'"{version()}"')]
    if switch("PORTABLE"):
        macros.append(("LW_PORTABLE", "1"))
    core = sorted(str(path) for path in Path("src").rglob("*.c"))
    built = [extension("loopwatch._core", core, macros)]
    if switch("TEST"):
        subjects = [path for path in core if path != str(Path("src/module.c"))]
        tests = sorted(str(path) for path in Path("tests/core").glob("*.c"))
        built.append(extension("loopwatch._testcore", subjects + tests, [*macros, ("LW_TEST", "1")]))
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": SideBySide})
