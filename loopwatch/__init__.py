"""Who froze the asyncio loop, and where did the time go."""

try:
    from loopwatch import _core
except ImportError as problem:
    if "subinterpreter" not in str(problem):  # CPython's own words, where it does not get as far as ours
        raise
    raise RuntimeError("loopwatch does not support subinterpreters: import it in the main one") from problem

from loopwatch._doctor import Check, Report, doctor
from loopwatch._everywhere import install_all, uninstall_all
from loopwatch._executors import Executor
from loopwatch._freeze import FreezeResult, GcPauses, freeze_startup, gc_pauses
from loopwatch._install import install, uninstall
from loopwatch._lag import Lag
from loopwatch._pool import ExecutorState
from loopwatch._profile import Profile, ProfileRow
from loopwatch._requests import RouteStats
from loopwatch._runner import Runner, run
from loopwatch._saturation import Saturation
from loopwatch._stall import Evidence, Frame, Sample, Stall, TaskInfo, ThreadInfo, Verdict
from loopwatch._watch import Watch
from loopwatch._windows import Cell, StallTotal, Window
from loopwatch._yielding import paced

checkpoint = _core.checkpoint
step = _core.Step
__version__ = _core.VERSION

__all__ = [
    "Cell",
    "Check",
    "Evidence",
    "Executor",
    "ExecutorState",
    "Frame",
    "FreezeResult",
    "GcPauses",
    "Lag",
    "Profile",
    "ProfileRow",
    "Report",
    "RouteStats",
    "Runner",
    "Sample",
    "Saturation",
    "Stall",
    "StallTotal",
    "TaskInfo",
    "ThreadInfo",
    "Verdict",
    "Watch",
    "Window",
    "__version__",
    "checkpoint",
    "doctor",
    "freeze_startup",
    "gc_pauses",
    "install",
    "install_all",
    "paced",
    "run",
    "step",
    "uninstall",
    "uninstall_all",
]
