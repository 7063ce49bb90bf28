"""Fences: if a user's function asks the real world for something, it gets an error that names the call.

Some functions give another result when run again: those that read the clock, draw random numbers, hash text, start
threads or open sockets. And functions are run again: after every restart, in every replay. Without fences this shows
only when two runs differ. Inside :func:`fenced` it shows at the call.

Method: the interpreter reports every call of a function written in C (``sys.setprofile``), however it was imported. The
callers are searched up to the first frame outside Python's own library: if that frame is the engine's, the call is
allowed; otherwise it is the user's. Calls from within C code (``map(time.time, ...)``) are not reported, nor is the
order of a set of text; a self-check (:func:`engine.explore.invariants.self_check`) finds those.

This costs a Python call for each call of the run: ten times slower is usual.
"""

from __future__ import annotations

import gc
import linecache
import os
import random
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FrameType
from typing import Any

from engine.elements import errors
from engine.elements.errors import ForbiddenCallError

_ROOT = os.path.abspath(errors.__file__).rpartition(os.path.join(os.sep, "engine", "elements", ""))[0]
_SITE = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
_LIBRARY = (sysconfig.get_path("stdlib") + os.sep, "<frozen ")
_PACKAGES = ("engine", "operators", "state_backends", "spark_bridge")
_DEPENDENCIES = (
    "networkx", "msgpack", "sortedcontainers", "click", "rich", "numpy", "pyarrow", "pandas", "pyspark", "py4j",
    "rocksdict", "fsspec",
)  # fmt: skip
OURS = (
    *(os.path.join(_ROOT, name) + os.sep for name in _PACKAGES),
    *(os.path.join(site, name) + os.sep for site in _SITE for name in _DEPENDENCIES),
)
"""The engine and the libraries that it is built on."""

CLOCK = "the time of day is not part of the run; take it from the records, or from the context's clock"
RANDOM = "random numbers differ when the record is processed again; derive them from the record"
HASH = "hash() of text and bytes, and id(), differ between processes; use hashlib, or compare values"
THREADS = "what threads and processes do is in no checkpoint, and no replay repeats it"
SOCKETS = "what comes over the network may differ when the record is processed again; make it an input of the job"

_BY_MODULE = {
    "time": (
        CLOCK,
        "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time"
        " thread_time_ns clock_gettime clock_gettime_ns sleep",
    ),
    "posix": (THREADS, "fork forkpty posix_spawn posix_spawnp system"),
    "_thread": (THREADS, "start_new_thread start_new"),
    "_posixsubprocess": (THREADS, "fork_exec"),
    "builtins": (HASH, "hash id"),
    "_socket": (SOCKETS, "getaddrinfo gethostbyname gethostbyname_ex gethostbyaddr"),
}
_FUNCTIONS = {(module, name): why for module, (why, names) in _BY_MODULE.items() for name in names.split()}
_FUNCTIONS["posix", "urandom"] = _FUNCTIONS["posix", "getrandom"] = RANDOM
_TODAY = frozenset(["datetime.now", "datetime.utcnow", "date.today", "datetime.today"])


def reason_against(function: object) -> str | None:
    """Why a user's function must not call this one; ``None`` when it may."""
    if not isinstance(function, BuiltinFunctionType):
        return None
    owner: Any = function.__self__
    if owner is None or isinstance(owner, type(sys)):
        return _FUNCTIONS.get((function.__module__ or "", function.__name__))
    if function.__qualname__ in _TODAY:
        return CLOCK
    if isinstance(owner, random.Random) and (owner is _hidden_generator() or isinstance(owner, random.SystemRandom)):
        return RANDOM
    if type(owner).__module__ in ("_socket", "socket"):
        return SOCKETS
    return None


def _hidden_generator() -> object:
    # The generator of the module's own functions. A generator that the function has seeded itself is repeatable.
    return random.random.__self__  # type: ignore[attr-defined]


@contextmanager
def fenced() -> Iterator[None]:
    """Until the end of the block, a forbidden call of user code raises :class:`ForbiddenCallError` where it is made."""
    before = sys.getprofile()
    sys.setprofile(_on_call)
    try:
        yield
    finally:
        sys.setprofile(before)


def _on_call(frame: FrameType, event: str, function: object) -> None:
    if event != "c_call":
        return
    why = reason_against(function)
    if why is None:
        return
    caller = _caller(frame)
    if caller is not None:
        name = _name(function)
        path, line = caller.f_code.co_filename, caller.f_lineno
        raise ForbiddenCallError(name, f"{path}:{line}", linecache.getline(path, line).strip(), why)


def _caller(frame: FrameType | None) -> FrameType | None:
    """The user's frame that a call comes from; ``None`` when it is the engine's own."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(OURS):
            return None
        if path.startswith(_SITE) or not path.startswith(_LIBRARY):  # Installed packages may lie below Python's own.
            # Dictionaries call `__hash__`, which may use any function for its answer.
            return None if frame.f_code.co_name == "__hash__" or _is_called_by_collector(frame) else frame
        frame = frame.f_back
    return None


def _is_called_by_collector(frame: FrameType) -> bool:
    # The collector may run inside any code; its callbacks are not called by the code that it interrupts.
    return any(getattr(one, "__code__", None) is frame.f_code for one in gc.callbacks)


def _name(function: object) -> str:
    assert isinstance(function, BuiltinFunctionType)
    owner = function.__self__
    if isinstance(owner, type(sys)):
        module = "os" if owner.__name__ == "posix" else owner.__name__
        return function.__name__ if module == "builtins" else f"{module}.{function.__name__}"
    return str(function.__qualname__)
