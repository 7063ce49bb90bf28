"""A run as a trace for Perfetto (ui.perfetto.dev), for runs that are too long for a page.

Each subtask is a track. On it are its attempts as spans and its snapshots as instants; below it are the spans in which
its channels were blocked, and the records in each channel as a counter. A checkpoint is a span below the job manager,
and a flow from its trigger over all snapshots to its end. Times are virtual, in ns since the start.

The format is the Trace proto of Perfetto, with TrackEvent packets:
https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.elements.errors import ConfigurationError, MissingDependencyError
from engine.graph.plan import ExecutionPlan
from engine.observe.trace_events import (
    RECORDS,
    AttemptStarted,
    ChannelBlocked,
    ChannelResumed,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Receive,
    RunEnded,
    RunStarted,
    Send,
    SnapshotAcknowledged,
    SnapshotTaken,
    TaskState,
    TraceEvent,
)
from engine.runtime.kernel import START_NS
from state_backends.files import LocalFileSystem

_MANAGER = "job manager"
_SEQUENCE = 1
_INCREMENTAL_STATE_CLEARED = 1


@contextmanager
def perfetto_trace(path: str, plan: ExecutionPlan) -> Iterator[PerfettoTrace]:
    """An instrument that writes the file. Spans that have not ended end with the block.

    Raises :class:`MissingDependencyError` without the package ``perfetto``, and :class:`ConfigurationError` when the
    file cannot be written.
    """
    try:
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "--perfetto needs the package perfetto; run: pip install 'weirstream[trace]'"
        ) from error
    try:
        file = LocalFileSystem().open_write(path)
    except OSError as error:
        raise ConfigurationError(
            f"--perfetto {path}: cannot be written ({error.strerror})\n  fix: name a file in a directory that exists"
        ) from error
    trace = PerfettoTrace(StreamingTraceProtoBuilder(file), plan)
    try:
        yield trace
    finally:
        trace.end()
        file.close()


class PerfettoTrace:
    """An instrument. ``builder`` makes packets and writes them, as a ``StreamingTraceProtoBuilder``."""

    def __init__(self, builder: Any, plan: ExecutionPlan) -> None:
        self._builder = builder
        self._fingerprint = plan.fingerprint
        names = {(one.vertex, one.subtask): one.name for one in plan.subtasks}
        self._ends = {
            one.index: (names[one.sender_vertex, one.sender_subtask], names[one.receiver_vertex, one.receiver_subtask])
            for one in plan.channels
        }
        self._tracks: dict[tuple[str, ...], int] = {}
        self._open: dict[int, None] = {}
        """Tracks with a span that has not ended."""
        self._flows: dict[tuple[int, int], int] = {}
        self._spans: dict[tuple[int, int], int] = {}
        """Checkpoints under way, by attempt and id, with their tracks."""
        self._now = 0
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            RunStarted: self._run_started,
            AttemptStarted: self._attempt_started,
            TaskState: self._task_state,
            Send: self._queued,
            Receive: self._queued,
            ChannelBlocked: self._blocked,
            ChannelResumed: lambda event: self._end(self._channel_track("blocked", event.channel)),
            CheckpointTriggered: self._triggered,
            SnapshotTaken: self._snapshot,
            SnapshotAcknowledged: self._acknowledged,
            CheckpointCompleted: lambda event: self._checkpoint_ends(event, "completed"),
            CheckpointAborted: lambda event: self._checkpoint_ends(event, f"aborted: {event.reason}"),
            RunEnded: lambda event: self._instant(self._track(_MANAGER), f"the run has {event.state}"),
        }

    def __call__(self, event: TraceEvent) -> None:
        """Write what the event says; events without a picture are left out."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            self._now = event.time_ns - START_NS
            handler(event)

    def end(self) -> None:
        """End all spans."""
        for track in list(self._open):
            self._end(track)

    # -- events --------------------------------------------------------------------------------------------------

    def _run_started(self, event: RunStarted) -> None:
        if event.plan_fingerprint != self._fingerprint:
            # A later process with another plan: its channels have numbers only.
            self._ends = {}
        self._instant(self._track(_MANAGER), f"job {event.job}, mode {event.mode}, seed {event.seed}")

    def _attempt_started(self, event: AttemptStarted) -> None:
        self.end()
        self._spans.clear()
        start = "nothing" if event.restored_checkpoint is None else f"checkpoint {event.restored_checkpoint}"
        self._instant(self._track(_MANAGER), f"attempt {event.attempt} starts from {start}")

    def _task_state(self, event: TaskState) -> None:
        track = self._track(event.task)
        if event.state == "running":
            self._begin(track, f"attempt {event.attempt}")
            return
        self._instant(track, event.state if event.cause is None else f"{event.state}: {event.cause}")
        if event.state != "end_of_data":
            self._end(track)

    def _queued(self, event: Send | Receive) -> None:
        if event.kind == RECORDS:
            packet = self._event(self._channel_track("queued", event.channel), "TYPE_COUNTER")
            packet.track_event.counter_value = event.queued
            self._builder.write_packet(packet)

    def _blocked(self, event: ChannelBlocked) -> None:
        self._begin(self._channel_track("blocked", event.channel), "blocked")

    def _triggered(self, event: CheckpointTriggered) -> None:
        key = event.attempt, event.checkpoint_id
        self._flows[key] = len(self._flows) + 1
        # Spans of one track may not overlap: concurrent checkpoints have tracks of their own.
        taken = set(self._spans.values())
        lane = next(lane for lane in range(len(taken) + 1) if self._lane(lane) not in taken)
        self._spans[key] = self._lane(lane)
        self._begin(self._lane(lane), f"checkpoint {event.checkpoint_id}")
        self._instant(self._track(_MANAGER), f"trigger checkpoint {event.checkpoint_id}", flow=key)

    def _lane(self, number: int) -> int:
        return self._track(_MANAGER, f"checkpoints {number + 1}" if number else "checkpoints")

    def _snapshot(self, event: SnapshotTaken) -> None:
        told = {"alignment_ns": event.alignment_ns, "start_delay_ns": event.start_delay_ns}
        key = event.attempt, event.checkpoint_id
        self._instant(self._track(event.task), f"snapshot of checkpoint {event.checkpoint_id}", flow=key, told=told)

    def _acknowledged(self, event: SnapshotAcknowledged) -> None:
        told, key = {"size_bytes": event.size_bytes}, (event.attempt, event.checkpoint_id)
        self._instant(self._track(event.task), f"acknowledges checkpoint {event.checkpoint_id}", flow=key, told=told)

    def _checkpoint_ends(self, event: CheckpointCompleted | CheckpointAborted, how: str) -> None:
        key = event.attempt, event.checkpoint_id
        self._instant(self._track(_MANAGER), f"checkpoint {event.checkpoint_id} {how}", flow=key, is_last=True)
        track = self._spans.pop(key, None)
        if track is not None:
            self._end(track)

    # -- packets -------------------------------------------------------------------------------------------------

    def _channel_track(self, kind: str, channel: int) -> int:
        sender, receiver = self._ends.get(channel, ("", f"channel {channel}"))
        return self._track(receiver, f"{kind}: from {sender}" if sender else kind, is_counter=kind == "queued")

    def _track(self, *names: str, is_counter: bool = False) -> int:
        """The number of a track below others; it is described when it is first used."""
        if names in self._tracks:
            return self._tracks[names]
        parent = self._track(*names[:-1]) if len(names) > 1 else None
        number = self._tracks[names] = len(self._tracks) + 1
        packet = self._packet()
        if number == 1:
            packet.sequence_flags = _INCREMENTAL_STATE_CLEARED
        packet.track_descriptor.uuid = number
        packet.track_descriptor.name = names[-1]
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
        if is_counter:
            packet.track_descriptor.counter.SetInParent()
        self._builder.write_packet(packet)
        return number

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.timestamp = self._now
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _event(self, track: int, kind: str) -> Any:
        packet = self._packet()
        packet.track_event.type = packet.track_event.Type.Value(kind)
        packet.track_event.track_uuid = track
        return packet

    def _begin(self, track: int, name: str) -> None:
        if track in self._open:
            return
        packet = self._event(track, "TYPE_SLICE_BEGIN")
        packet.track_event.name = name
        self._builder.write_packet(packet)
        self._open[track] = None

    def _end(self, track: int) -> None:
        if track in self._open:
            self._builder.write_packet(self._event(track, "TYPE_SLICE_END"))
            del self._open[track]

    def _instant(
        self,
        track: int,
        name: str,
        *,
        flow: tuple[int, int] | None = None,
        is_last: bool = False,
        told: dict[str, int] | None = None,
    ) -> None:
        packet = self._event(track, "TYPE_INSTANT")
        packet.track_event.name = name
        number = None if flow is None else self._flows.get(flow)
        if number is not None:
            flows = packet.track_event.terminating_flow_ids if is_last else packet.track_event.flow_ids
            flows.append(number)
        for key, value in (told or {}).items():
            note = packet.track_event.debug_annotations.add()
            note.name, note.int_value = key, value
        self._builder.write_packet(packet)
