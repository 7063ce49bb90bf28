"""Replays files of recorded vectors and reports their mismatches.

A file holds a list of vectors, or an object with such a list under ``vectors``: of barrier handling (each with a
``mode``), of the coordinator and of state (each with a ``kind``), or of sinks and sources. No two of a file have the
same name. A vector that cannot be understood is a failure, never a pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tests.conformance import barrier
from tests.conformance.compare import MalformedVector, Vector
from tests.conformance.coordinator import KINDS
from tests.conformance.sinks import SINK_KINDS

Check = Callable[[Vector], list[str]]

DATA = Path(__file__).parent / "data"
"""Recorded vectors; in ``written`` those written from the rules, for operations and fields that these miss."""


class VectorFileError(Exception):
    """A file is not readable as a file of vectors."""


class Verdict(Enum):
    PASSED = "PASS"
    FAILED = "FAIL"


@dataclass(frozen=True)
class Result:
    """One vector's verdict; ``text`` names the mismatches."""

    name: str
    verdict: Verdict
    text: str = ""

    def __str__(self) -> str:
        return f"{self.verdict.value} {self.name}: {self.text}"


def load(path: Path) -> list[Any]:
    """The vectors of one file; raises :class:`VectorFileError`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise VectorFileError(f"{path}: cannot be read: {problem}") from problem
    except (json.JSONDecodeError, RecursionError) as problem:
        raise VectorFileError(f"{path}: is not JSON: {problem}") from problem
    vectors = content.get("vectors") if isinstance(content, dict) else content
    if not isinstance(vectors, list) or not vectors:
        raise VectorFileError(f'{path}: holds no vectors; expected {{"vectors": [...]}} or a list of them')
    return vectors


def check_of(vector: Vector) -> Check:
    """The replay of this vector; raises :class:`MalformedVector` when there is none."""
    if "kind" not in vector:
        if "mode" in vector:
            _check_shape(vector, list)
            return barrier.check
        raise MalformedVector("it has neither a kind nor a mode, so nobody knows what it is about")
    kind = vector["kind"]
    if isinstance(kind, str) and kind in KINDS:
        _check_shape(vector, dict)
        return KINDS[kind]
    if isinstance(kind, str) and kind in SINK_KINDS:
        _check_shape(vector, dict)
        return SINK_KINDS[kind]
    raise MalformedVector(f"unknown kind {kind!r}")


def _check_shape(vector: Vector, given: type) -> None:
    shape: dict[str, type] = {"input": given, "expect": dict}
    for name, expected in shape.items():
        found = type(vector[name]).__name__ if name in vector else "missing"
        if found != expected.__name__:
            raise MalformedVector(f"{name} must be {_JSON_NAMES[expected]}, but it is {found}")
    if not vector["expect"]:
        raise MalformedVector("it has no expect, so nothing would be compared")


_JSON_NAMES: dict[type, str] = {list: "a list", dict: "an object"}


def replay(vector: Any) -> Result:
    """Replay one vector. Every error during the replay is a failure: of the engine, or of the vector."""
    name = str(vector.get("name", "?")) if isinstance(vector, dict) else "?"
    try:
        if not isinstance(vector, dict):
            raise MalformedVector(f"a vector is an object, not {type(vector).__name__}")
        if not isinstance(vector.get("name"), str):
            raise MalformedVector("it has no name")
        mismatches = check_of(vector)(vector)
    except MalformedVector as problem:
        return Result(name, Verdict.FAILED, f"not of the documented format: {problem}")
    except KeyError as problem:
        return Result(name, Verdict.FAILED, f"KeyError: something that is needed is missing: {problem}")
    except Exception as problem:
        return Result(name, Verdict.FAILED, f"{type(problem).__name__}: {problem}")
    if mismatches:
        return Result(name, Verdict.FAILED, "; ".join(mismatches))
    return Result(name, Verdict.PASSED)


def replay_files(paths: list[Path]) -> Iterator[Result]:
    """Replay all vectors of all files, in order. A file that cannot be read is one failure."""
    for path in paths:
        try:
            vectors = load(path)
        except VectorFileError as problem:
            yield Result(path.name, Verdict.FAILED, str(problem))
            continue
        seen: set[str] = set()
        for vector in vectors:
            result = replay(vector)
            if isinstance(vector, dict) and result.name in seen:
                result = Result(result.name, Verdict.FAILED, f"{path.name} holds more than one vector of this name")
            seen.add(result.name)
            yield result


def one_line(text: str) -> str:
    """``text`` without line breaks, so that a verdict is one line."""
    return " ".join(text.split())
