"""When files are compacted, and when the committer gets the results (Flink: ``CompactorOperator``,
``CompactService``).

Rules:

* Requests are collected. A snapshot books the collected requests under its checkpoint. The notification of that
  checkpoint, or of a later one, submits them: so files are read only when they can no longer be taken back.
* Compaction runs beside the stream. Before each barrier the compactor hands finished results to the committer: for each
  request the compacted file, the passed-through committables, and the deletion of each source.
* The state holds the booked requests, and the submitted ones that were not handed out. A restore submits submitted
  requests again, regardless of their progress.
* At the end of the input all requests are compacted and handed out.
* A compacted file is called ``compacted-{name}``, after the first of its sources without its leading dot. So it gets
  the same name if it is made again.

So compacted data become visible at least one completed checkpoint later than data that is not compacted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from typing import Any

from operators.files.compaction.compact_coordinator import CompactionRequest, as_request
from operators.files.compaction.file_committer import COMMITTABLE_SHAPE, PENDING, FileCommittable, delete
from state_backends.base import list_of, number, path_below, row, such_that

PREFIX = "compacted-"

SUBMITTED = -1
"""Replaces the checkpoint in the state of submitted requests."""

Compaction = Callable[[str, str, list[FileCommittable]], FileCommittable]
"""``(bucket, target, sources) -> pending file``: makes one file of several, hidden until it is committed."""

CompactorState = tuple[Any, ...]
"""``(checkpoint, request)``"""


_PENDING_FILE = such_that("a pending file", COMMITTABLE_SHAPE, lambda value: value[0] == PENDING)

REQUEST_STATE = row(
    such_that("a checkpoint", number, lambda known: known >= SUBMITTED),
    row(path_below, list_of(_PENDING_FILE), list_of(COMMITTABLE_SHAPE)),
)
"""Its shape."""


def compacted_path(source: str) -> str:
    """The path of the compacted file whose first source is ``source``."""
    directory, name = posixpath.split(source)
    return posixpath.join(directory, PREFIX + name.removeprefix("."))


class Compactor:
    """The requests of one subtask."""

    def __init__(self) -> None:
        self._collected: list[CompactionRequest] = []
        self._filed: dict[int, list[CompactionRequest]] = {}
        self._submitted: list[CompactionRequest] = []
        self._results: list[list[FileCommittable]] = []
        """The results of the first submitted requests, in that order."""

    def add(self, request: CompactionRequest) -> None:
        """Collect a request."""
        self._collected.append(request)

    def on_snapshot(self, checkpoint_id: int) -> list[CompactorState]:
        """Book the collected requests; returns the state."""
        if self._collected:
            self._filed[checkpoint_id] = self._collected
            self._collected = []
        requests = [(known, one) for known, filed in sorted(self._filed.items()) for one in filed]
        requests += [(SUBMITTED, one) for one in self._submitted]
        return [(known, tuple(one)) for known, one in requests]

    def on_notification(self, checkpoint_id: int) -> None:
        """Submit the requests booked under a checkpoint, and under all before."""
        for known in sorted(known for known in self._filed if known <= checkpoint_id):
            self._submitted += self._filed.pop(known)

    def end_of_input(self) -> None:
        """The input has ended: submit everything."""
        for known in sorted(self._filed):
            self._submitted += self._filed.pop(known)
        self._submitted += self._collected
        self._collected = []

    def restore(self, state: Iterable[CompactorState]) -> None:
        """Take over requests, and submit those again that were submitted."""
        for known, request in state:
            if known == SUBMITTED:
                self._submitted.append(as_request(request))
            else:
                self._filed.setdefault(known, []).append(as_request(request))

    # --- the work -----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a submitted request is not done."""
        return len(self._results) < len(self._submitted)

    def step(self, compact: Compaction) -> int:
        """Do the next one, with ``compact``. Returns the size of its sources, in bytes."""
        request = self._submitted[len(self._results)]
        handed_out = list(request.passed_through)
        size_bytes = 0
        if request.files:
            sources = [file[3] for file in request.files]
            handed_out.insert(0, compact(request.bucket_id, compacted_path(sources[0]), request.files))
            handed_out += [delete(request.bucket_id, source) for source in sources]
            size_bytes = sum(file[4] for file in request.files)
        self._results.append(handed_out)
        return size_bytes

    def take_results(self) -> list[FileCommittable]:
        """The finished results, for the committer; their requests are forgotten."""
        taken = [one for result in self._results for one in result]
        del self._submitted[: len(self._results)]
        self._results = []
        return taken

    def fingerprint(self) -> object:
        return repr((self._collected, sorted(self._filed.items()), self._submitted)), len(self._results)
