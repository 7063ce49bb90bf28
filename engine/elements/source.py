"""The source contract: a source is a set of splits, each read from a position that a snapshot can hold.

The position a reader reports is the one to resume from: the position *after* the last record it returned. A reader
opened at that position returns exactly the records that the first one had not returned yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from engine.elements.batch import Batch
from engine.elements.outside_world import OutsideWorld
from state_backends.files import FileSystem


class SourceContext(Protocol):
    """The services for a source while it lists and opens splits."""

    name: str
    attempt: int

    @property
    def world(self) -> OutsideWorld | None:
        """The clock and the chances outside of the job; ``None`` where no time passes."""

    def file_system(self) -> FileSystem:
        """The file system of the job."""

    def processing_time_ns(self) -> int:
        """Virtual time."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Side output of the source (malformed lines)."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the source operator."""

    def report_backlog(self, is_backlog: bool) -> None:
        """Say that this subtask of the source has begun, or ended, to work off a backlog: checkpoints are rarer then,
        if the run has an interval for it. After a restart it counts as having none until it says so again."""


class SplitReader(Protocol):
    """Reads one split in order."""

    def read(self, max_records: int) -> Batch | None:
        """Up to ``max_records`` (>= 1) further records; an empty batch when there are none right now;
        ``None`` when the split has ended."""

    def position(self) -> Any:
        """Where to resume: after the last record returned. A value that state can hold."""

    def available_at_ns(self, now_ns: int) -> int:
        """After an empty batch: the virtual time at which to ask again."""

    def close(self) -> None:
        """Release files."""


class Source(Protocol):
    """A replayable input."""

    def splits(self, context: SourceContext) -> Sequence[str]:
        """Ids of all splits, in a fixed order. Split ``i`` goes to subtask ``i mod parallelism``."""

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """Open ``split`` at ``position`` (``None`` = its beginning)."""


class SpoutMessage(NamedTuple):
    """A record of a source in mode ``acking``. Its split and its number in the split, counted from where this attempt
    of the source began, are its id (Storm: the message id). ``replays``: how often it was sent again so far."""

    value: Any
    split: str
    number: int
    replays: int


class AckingListener(Protocol):
    """Hears what has become of each record of one subtask in mode ``acking`` (Storm: ``ISpout.ack`` and ``fail``). A
    record that has failed is sent again whatever the listener does.

    A source that wants one offers ``acking_listener(context) -> AckingListener``.
    """

    max_pending: int | None
    """The most records of the subtask that may wait for their acknowledgement; ``None``: as the run says."""

    def ack(self, message: SpoutMessage) -> None:
        """All tuples made from the record have been handled."""

    def fail(self, message: SpoutMessage) -> None:
        """A function has failed the record, or it has timed out."""


class SourceCheckpointListener(Protocol):
    """Hears, for the splits of one subtask, which positions completed checkpoints hold, to show them outside of
    the job. Only the state decides where a restored job goes on, so an error here must not end the job.

    A source that wants one offers ``checkpoint_listener(context) -> SourceCheckpointListener``.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int, positions: Mapping[str, Any]) -> None:
        """``positions``, by split, are those of this checkpoint; splits of which no record was read are not among
        them."""

    def close(self) -> None:
        """Release its resources."""
