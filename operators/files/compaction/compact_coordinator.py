"""Which files of a file sink are compacted together, and when (Flink: ``CompactCoordinator``,
``FileCompactStrategy``).

Rules:

* There is one coordinator. It gathers the committables of all writers, by bucket, in the order in which they come.
* It passes these through unchanged: committables that are not pending files; files with a visible name, because readers
  would see them twice; and files of unknown size.
* A bucket is *fired* when its files have reached the size threshold (then counting begins again), or when it has seen
  the configured number of checkpoints. A bucket counts checkpoints from the first one after its first file. Clean-ups
  alone do not start the count; they go with the next request.
* At the end of the input all other buckets are fired.
* The state holds committables not yet fired. A restore applies the *present* strategy: a lower threshold fires.

A request is a plain tuple: it may be in flight when a snapshot is taken.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Any, NamedTuple

from engine.elements.errors import ConfigurationError, check_whole
from operators.files.compaction.file_committer import PENDING, FileCommittable


class CompactionStrategy(NamedTuple):
    """When the files of a bucket are compacted; at least one of the two must be set.

    ``size_threshold_bytes``  as soon as the files together are this large;
    ``checkpoints``           every so many checkpoints.
    """

    size_threshold_bytes: int | None = None
    checkpoints: int | None = None

    def checked(self) -> CompactionStrategy:
        """Itself. Raises :class:`engine.elements.errors.ConfigurationError` when it is not valid."""
        if self.size_threshold_bytes is None and self.checkpoints is None:
            raise ConfigurationError(
                "a compaction strategy needs size_threshold_bytes=, checkpoints=, or both: otherwise nothing is ever"
                " compacted, and nothing becomes visible before the end"
            )
        for name, value in self._asdict().items():
            check_whole(name, value, or_none=True)
        return self


class CompactionRequest(NamedTuple):
    """Files of one bucket that become one, and committables that are passed through with them."""

    bucket_id: str
    files: list[FileCommittable]
    passed_through: list[FileCommittable]


class CompactCoordinator:
    """The buckets of the coordinator, in the order in which they appeared."""

    def __init__(self, strategy: CompactionStrategy) -> None:
        self._strategy = strategy
        self._packing: dict[str, CompactionRequest] = {}
        self._sizes: dict[str, int] = {}
        """By bucket with a trigger: the size gathered in it."""
        self._first_ids: dict[str, int] = {}
        """By bucket: the first checkpoint that its trigger has seen."""

    def add(self, committable: FileCommittable) -> CompactionRequest | None:
        """Add a committable; returns a request if it fires its bucket."""
        kind, bucket_id = committable[:2]
        request = self._packing.get(bucket_id)
        if request is None:
            request = self._packing[bucket_id] = CompactionRequest(bucket_id, [], [])
        if kind != PENDING:
            request.passed_through.append(committable)
            return None
        size = self._sizes.setdefault(bucket_id, 0)
        target, size_bytes = committable[3:]
        if size_bytes < 0 or not posixpath.basename(target).startswith("."):
            request.passed_through.append(committable)
            return None
        request.files.append(committable)
        self._sizes[bucket_id] = size = size + size_bytes
        threshold = self._strategy.size_threshold_bytes
        return self._fire(bucket_id) if threshold is not None and size >= threshold else None

    def on_checkpoint(self, checkpoint_id: int) -> list[CompactionRequest]:
        """Called before the barrier of a checkpoint; returns the requests of buckets that have seen enough of them."""
        wanted = self._strategy.checkpoints
        if wanted is None:
            return []
        for bucket_id in self._sizes:
            self._first_ids.setdefault(bucket_id, checkpoint_id)
        firsts = self._first_ids
        due = [one for one in self._packing if one in firsts and checkpoint_id - (firsts[one] - 1) >= wanted]
        return [self._fire(bucket_id) for bucket_id in due]

    def end_of_input(self) -> list[CompactionRequest]:
        """The input has ended; returns the requests for all other buckets."""
        return [self._fire(bucket_id) for bucket_id in list(self._packing)]

    def _fire(self, bucket_id: str) -> CompactionRequest:
        self._sizes.pop(bucket_id, None)
        self._first_ids.pop(bucket_id, None)
        return self._packing.pop(bucket_id)

    def state(self) -> list[FileCommittable]:
        """The committables that were not fired."""
        return [one for request in self._packing.values() for one in (*request.files, *request.passed_through)]

    def restore(self, state: Iterable[FileCommittable]) -> list[CompactionRequest]:
        """Take over the committables not yet fired; returns the resulting requests."""
        fired = [self.add(committable) for committable in state]
        return [request for request in fired if request is not None]

    def fingerprint(self) -> object:
        return repr(self._packing), tuple(self._first_ids.items())


def as_request(message: Any) -> CompactionRequest:
    """Rebuilds a request that came as a plain tuple."""
    bucket_id, files, passed_through = message
    return CompactionRequest(bucket_id, list(files), list(passed_through))
