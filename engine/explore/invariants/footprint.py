"""V16: two runs of the same case do the same, down to the bytes of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

from engine.explore.cases import Case
from engine.explore.run import FinishedCase, Subject, run_case, trace_digest
from engine.observe.trace_events import TraceEvent
from state_backends.files import FileSystem


@dataclass(frozen=True, slots=True)
class Footprint:
    """The result of one run of a case. ``files``: digests, by path."""

    name: ClassVar[str] = "V16"
    title: ClassVar[str] = "The same case does the same each time: choices, events, files and output."
    reason: ClassVar[str] = "What cannot be repeated cannot be replayed, shrunk or believed."
    source: ClassVar[str] = (
        "FoundationDB and madsim: a share of all runs is made twice; trio's fences; bytewax: hash() in a partitioner"
    )

    outcome: str
    choices: int
    choice_digest: str
    trace_digest: str
    files: Mapping[str, str]
    committed: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, finished: FinishedCase, trace_digest: str) -> Footprint:
        """Of a finished case; ``trace_digest`` covers all its events."""
        world = finished.view.world
        return cls(
            f"{finished.outcome}{f': {finished.error}' if finished.error is not None else ''}",
            len(finished.choices),
            _digest(repr([tuple(one) for one in finished.choices]).encode()),
            trace_digest,
            {**_files("checkpoints:", world.checkpoints), **_files("files:", world.files)},
            {partition: tuple(rows) for partition, rows in sorted(finished.committed.items())},
        )

    def differences(self, other: Footprint) -> tuple[str, ...]:
        """Every difference from the other one, in words; empty when both did the same."""
        found = []
        if self.outcome != other.outcome:
            found.append(f"end: first {self.outcome}, then {other.outcome}")
        if (self.choices, self.choice_digest) != (other.choices, other.choice_digest):
            found.append(
                f"choices: first {self.choices} ({self.choice_digest}), then {other.choices} ({other.choice_digest})"
            )
        if self.trace_digest != other.trace_digest:
            found.append(f"trace: first {self.trace_digest}, then {other.trace_digest}")
        for path in sorted({**self.files, **other.files}):
            if self.files.get(path) != other.files.get(path):
                when = (
                    "both times, with other bytes"
                    if path in self.files and path in other.files
                    else ("only the first time" if path in self.files else "only the second time")
                )
                found.append(f"files: {path} is there {when}")
        for partition in sorted({**self.committed, **other.committed}):
            if self.committed.get(partition) != other.committed.get(partition):
                found.append(f"output: {partition!r} is not the same")
        return tuple(found)


def self_check(subject: Subject, case: Case) -> tuple[str, ...]:
    """Carry a case out twice, and compare: every difference in words, with the first choice and the first event that
    differ; empty when both runs did the same."""
    footprints, traces, choices = [], [], []
    for _ in range(2):
        trace: list[TraceEvent] = []
        finished = run_case(subject, case, instruments=[trace.append])
        footprints.append(Footprint.of(finished, trace_digest(trace)))
        traces.append(trace)
        choices.append(finished.choices)
    first, second = footprints
    return (*first.differences(second), *_first_difference("choice", *choices), *_first_difference("event", *traces))


def _first_difference(what: str, first: Sequence[object], second: Sequence[object]) -> list[str]:
    differing = (at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    at = next(differing, min(len(first), len(second)))
    if at == max(len(first), len(second)):
        return []
    one, other = (str(run[at]) if at < len(run) else "nothing" for run in (first, second))
    return [f"{what} {at + 1}: first {one}, then {other}"]


def _files(label: str, files: FileSystem) -> dict[str, str]:
    return {f"{label}{path}": _digest(files.read_bytes(path)) for path in files.walk_files("/")}


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
