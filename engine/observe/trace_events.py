"""The trace schema: every event a run can report, as plain named tuples.

Times are virtual ns. Channels and tasks are named as in the plan. An element on a channel is identified by
``(attempt, channel, element)``, where ``element`` counts the elements ever put on that channel in that attempt: a
``Receive`` with the same triple is the other end of a ``Send``. A batch that was cut is received in several
``Receive`` events with the same triple whose ``records`` add up. ``queued`` is the number of records in the channel
afterwards, so that a viewer can step forward and back without replaying from the start.

Where those records are: elements that could not leave at once wait in the sender's queue until a ``Departed`` with the
same triple; the rest is under way or queued at the receiver, and uses the credit that it grants. ``RecordsCaptured``
says which of them became part of a checkpoint, and on which side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from typing import NamedTuple

TRACE_VERSION = 5

RECORDS = "records"
"""The kind of an element that is a batch of records."""


class RunStarted(NamedTuple):
    time_ns: int
    job: str
    plan_fingerprint: str
    mode: str
    seed: str
    incarnation: int


class AttemptStarted(NamedTuple):
    time_ns: int
    attempt: int
    restored_checkpoint: int | None


class TaskState(NamedTuple):
    time_ns: int
    attempt: int
    task: str
    state: str
    """``running``, ``end_of_data``, ``finished``, ``failed`` or ``canceled``."""
    cause: str | None


class Send(NamedTuple):
    time_ns: int
    attempt: int
    channel: int
    element: int
    kind: str
    """``records`` or the event's class name."""
    records: int
    detail: int | None
    """Checkpoint id or watermark of an event."""
    queued: int


class Receive(NamedTuple):
    time_ns: int
    attempt: int
    channel: int
    element: int
    kind: str
    records: int
    detail: int | None
    queued: int


class Departed(NamedTuple):
    """An element has left the sender's queue; one that left as it was sent was never in it."""

    time_ns: int
    attempt: int
    channel: int
    element: int
    kind: str
    records: int
    detail: int | None
    queued: int
    """Records in the channel, on both sides; leaving does not change them."""


class RecordsCaptured(NamedTuple):
    """Records in flight became part of a checkpoint. All of one ``side`` and channel together are the stored records,
    in the order of the events; none is stored when the checkpoint is given up."""

    time_ns: int
    attempt: int
    checkpoint_id: int
    channel: int
    side: str
    """``input``: in the receiver's queue, or arriving before the barrier; ``output``: in the sender's queue."""
    records: int


class CreditChanged(NamedTuple):
    """A receiver grants another number of records on a channel (buffer debloating)."""

    time_ns: int
    attempt: int
    channel: int
    credit: int


class ChannelBlocked(NamedTuple):
    time_ns: int
    attempt: int
    channel: int


class ChannelResumed(NamedTuple):
    time_ns: int
    attempt: int
    channel: int


class TimerFired(NamedTuple):
    time_ns: int
    attempt: int
    task: str
    operator: str
    due_ns: int
    """When it was to be called, by the clock of the task."""


class BackgroundWorkDone(NamedTuple):
    """A state backend has finished background work, such as a compaction."""

    time_ns: int
    attempt: int
    operator: str
    """The operator whose state it works on: ``task/operator``."""
    work: str
    size_bytes: int
    """Bytes read and written."""
    duration_ns: int


class CheckpointTriggered(NamedTuple):
    time_ns: int
    attempt: int
    checkpoint_id: int


class SnapshotTaken(NamedTuple):
    time_ns: int
    attempt: int
    checkpoint_id: int
    task: str
    alignment_ns: int
    start_delay_ns: int


class SnapshotAcknowledged(NamedTuple):
    time_ns: int
    attempt: int
    checkpoint_id: int
    task: str
    size_bytes: int


class CheckpointCompleted(NamedTuple):
    time_ns: int
    attempt: int
    checkpoint_id: int
    size_bytes: int


class CheckpointAborted(NamedTuple):
    time_ns: int
    attempt: int
    checkpoint_id: int
    reason: str


class ReportIgnored(NamedTuple):
    """The job manager ignored a task's report about a checkpoint: it came too late, twice, or from an attempt that is
    over."""

    time_ns: int
    attempt: int
    """The attempt in which it was sent."""
    checkpoint_id: int
    task: str
    message: str
    """``acknowledge`` or ``decline``."""
    reason: str


class CheckpointCut(NamedTuple):
    """The channel counters inside a completed checkpoint.

    ``differences`` lists ``(channel, sent, received)`` only where the two differ: ``received > sent`` are orphans
    (effects without a cause, duplicates after a restore), ``sent > received`` records in transit (lost unless they
    are stored).
    """

    time_ns: int
    attempt: int
    checkpoint_id: int
    channels: int
    records_sent: int
    differences: tuple[tuple[int, int, int], ...]


class AckingMessage(NamedTuple):
    """A control message of mode ``acking`` was sent."""

    time_ns: int
    kind: str
    """``init``, ``ack``, ``fail``, ``reset`` (to an acker) or ``reply`` (to a source)."""
    sender: str
    receiver: str
    root: int


class RecordReplayed(NamedTuple):
    """A source is about to send a record again."""

    time_ns: int
    attempt: int
    task: str
    split: str
    number: int
    """Of the record among those that this attempt has read of the split, from 0."""
    reason: str
    """``failed`` or ``timed out``."""
    replays: int
    """How often it has been sent again, this time included."""


class RunEnded(NamedTuple):
    time_ns: int
    state: str


TraceEvent = (
    RunStarted
    | AttemptStarted
    | TaskState
    | Send
    | Receive
    | Departed
    | RecordsCaptured
    | CreditChanged
    | ChannelBlocked
    | ChannelResumed
    | TimerFired
    | BackgroundWorkDone
    | CheckpointTriggered
    | SnapshotTaken
    | SnapshotAcknowledged
    | CheckpointCompleted
    | CheckpointAborted
    | ReportIgnored
    | CheckpointCut
    | AckingMessage
    | RecordReplayed
    | RunEnded
)

Instrument = Callable[[TraceEvent], None]
"""Called with each event as it happens. Must not change the run."""

EVERY_CHANNEL = range(sys.maxsize)


def records_of(instrument: Instrument | None) -> Container[int]:
    """The channels, by index, of which an instrument hears that records were sent and received. It says so by an
    attribute ``records_of``, which may change while the job runs, or hears of all. It hears of all other elements."""
    heard: Container[int] = getattr(instrument, "records_of", EVERY_CHANNEL)
    return heard if instrument is not None else ()
