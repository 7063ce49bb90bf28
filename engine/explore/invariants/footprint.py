"""V16: two runs of the same case do the same, down to the bytes of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from engine.explore.run import FinishedCase
from state_backends.files import FileSystem

NAME = "V16"
TITLE = "The same case does the same each time: choices, events, files and output."
REASON = "What cannot be repeated cannot be replayed, shrunk or believed."
SOURCE = "FoundationDB and madsim: a share of all runs is made twice; trio's fences; bytewax: hash() in a partitioner"


@dataclass(frozen=True, slots=True)
class Footprint:
    """The result of one run of a case. ``files``: digests, by path."""

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
        """Every difference from the other one, in words; none is the good news."""
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


def _files(label: str, files: FileSystem) -> dict[str, str]:
    return {f"{label}{path}": _digest(files.read_bytes(path)) for path in files.walk_files("/")}


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
