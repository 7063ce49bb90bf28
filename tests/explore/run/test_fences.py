"""User functions that ask the real world for something are stopped at the call; everything else goes on."""

from __future__ import annotations

import datetime
import gc
import hashlib
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from engine import CollectedResults, CollectionSource, Job
from engine.elements.errors import ForbiddenCallError, JobFailedError
from engine.explore.run import fenced

FORBIDDEN: dict[str, Callable[[Any], Any]] = {
    "time.time": lambda value: time.time(),
    "time.monotonic_ns": lambda value: time.monotonic_ns(),
    "time.sleep": lambda value: time.sleep(0),
    "datetime.now": lambda value: datetime.datetime.now(),
    "date.today": lambda value: datetime.date.today(),
    "Random.random": lambda value: random.random(),
    "Random.getrandbits": lambda value: random.randint(0, 5),
    "os.urandom": lambda value: os.urandom(3),
    "os.urandom behind uuid": lambda value: uuid.uuid4(),
    "os.urandom behind secrets": lambda value: secrets.token_hex(2),
    "hash": lambda value: hash("text"),
    "id": lambda value: (id(value),),
    "_thread.start_new_thread": lambda value: threading.Thread(target=print).start(),
    "_posixsubprocess.fork_exec": lambda value: subprocess.run([sys.executable, "-c", ""], check=True),
    "_socket.getaddrinfo": lambda value: socket.create_connection(("localhost", 1)),
}

ALLOWED: dict[str, Callable[[Any], Any]] = {
    "a digest": lambda value: hashlib.sha256(b"text").hexdigest(),
    "a generator with a seed of its own": lambda value: random.Random(value).random(),
    "a dictionary": lambda value: {"text": value}["text"],
    "a date from the record": lambda value: (datetime.date.fromordinal(value),),
}


def mapped(function: Callable[[Any], Any]) -> list[Any]:
    """The output of a job that maps 1 and 2 by this function."""
    results = CollectedResults()
    job = Job("fenced")
    job.source(CollectionSource([1, 2])).map(function, name="look").collect(results)
    with fenced():
        job.run()
    return results.records


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_call_is_named(name: str) -> None:
    """The error names the call, the operator, the record and the line; no restart is tried."""
    with pytest.raises(JobFailedError) as failed:
        mapped(FORBIDDEN[name])

    assert isinstance(failed.value.__cause__, ForbiddenCallError)
    text = str(failed.value)
    assert f"called {name.split(maxsplit=1)[0]}()" in text
    assert "'look'" in text
    assert "record  1" in text
    assert "test_fences.py" in text
    assert "attempt 1 (no restart can help)" in text
    assert failed.value.exit_code == ForbiddenCallError.exit_code


@pytest.mark.parametrize("name", ALLOWED)
def test_what_repeats_itself_is_allowed(name: str) -> None:
    """Functions of the record alone pass, whatever they use."""
    function = ALLOWED[name]

    assert mapped(function) == [function(1), function(2)]


def test_the_engine_itself_may() -> None:
    """Calls that the engine makes for itself, and user classes that hash themselves, pass."""

    class Word:
        def __init__(self, text: str) -> None:
            self.text = text

        def __hash__(self) -> int:
            return hash(self.text)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Word) and other.text == self.text

    assert mapped(lambda value: len({Word("a"): value, Word("a"): 2})) == [1, 1]


def test_the_collector_of_garbage_may_be_watched() -> None:
    """Who measures collections is called in the middle of the user's functions, but not by them; the fence stands."""
    seen: list[float] = []

    def watch(_phase: str, _info: dict[str, int]) -> None:
        seen.append(time.perf_counter())

    gc.callbacks.append(watch)
    try:
        with fenced():
            gc.collect()
            with pytest.raises(ForbiddenCallError):
                time.perf_counter()
    finally:
        gc.callbacks.remove(watch)

    assert len(seen) >= 2


def test_the_fence_ends_with_its_block() -> None:
    """After the block nothing is watched, also when an error has left it."""
    with pytest.raises(JobFailedError):
        mapped(FORBIDDEN["time.time"])

    assert sys.getprofile() is None
    assert FORBIDDEN["time.time"](0) > 0
