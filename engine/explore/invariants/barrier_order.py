"""V3, V4 and V5: where a checkpoint cuts the streams, and in which order tasks obey its barriers."""

from __future__ import annotations

from engine.explore.invariants.base import Shared, Watcher
from engine.explore.run import CaseView, hears
from engine.observe.trace_events import ChannelResumed, CheckpointCut, CheckpointTriggered, Receive, Send, SnapshotTaken

_RECORDS, _BARRIER, _CANCEL, _END = "records", "CheckpointBarrier", "CancelCheckpointMarker", "EndOfPartition"
ALIGNED = "aligned"


class ConsistentCut(Watcher):
    name = "V3"
    title = "A completed checkpoint is a consistent cut: what was sent and not received is stored, and nothing else is."
    reason = "Effects without their causes are counted twice after a restore; records in transit that are not stored,"
    reason += " never."
    source = "Chandy and Lamport 1985; Carbone et al. 2015; Flink FLIP-76 for the records that barriers overtake"

    @hears(CheckpointCut)
    def _on_cut(self, event: CheckpointCut) -> None:
        for channel, sent, received in event.differences:
            if received > sent and not self.view.config.protocol.consistent_cut:
                # Counted twice after a restore: at-least-once allows this.
                continue
            fate = "counted twice" if received > sent else "lost"
            self.violated(
                f"checkpoint {event.checkpoint_id} is no consistent cut of {self.topology.channel(channel)}: {sent}"
                f" records were sent before it and {received} received or stored; {abs(received - sent)} would be"
                f" {fate}",
                event.time_ns,
                checkpoint_id=event.checkpoint_id,
                channel=channel,
            )


class OrderOfCheckpoints(Watcher):
    name = "V5"
    title = "In every task checkpoints come one after the other; late triggers and cancels of older ones do nothing."
    reason = "A snapshot of an older checkpoint after a newer one holds the wrong state, and may be completed."
    source = "Flink FLINK-17994, FLINK-18063, FLINK-23201"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._triggered = 0
        self._snapshots: dict[str, tuple[int, int]] = {}
        """By task: attempt, and its newest checkpoint."""
        self._barriers: dict[int, tuple[int, int]] = {}
        """By channel: attempt, and the newest checkpoint whose barrier was sent on it."""
        self.records_of = self.shared.records_of

    def process_started(self, view: CaseView) -> None:
        """Attempts count from 1 again; checkpoints do not."""
        super().process_started(view)
        self._snapshots.clear()
        self._barriers.clear()

    def job_started(self, view: CaseView) -> None:
        """Checkpoints that never completed may already have used numbers above that of the savepoint."""
        self._triggered = 0 if view.start is None else view.start.checkpoint_id

    @hears(CheckpointTriggered)
    def _on_triggered(self, event: CheckpointTriggered) -> None:
        if event.checkpoint_id <= self._triggered:
            text = f"checkpoint {event.checkpoint_id} is triggered after checkpoint {self._triggered}"
            self.violated(text, event.time_ns, checkpoint_id=event.checkpoint_id)
        self._triggered = max(self._triggered, event.checkpoint_id)

    @hears(SnapshotTaken)
    def _on_snapshot(self, event: SnapshotTaken) -> None:
        attempt, newest = self._snapshots.get(event.task, (0, 0))
        if event.attempt == attempt and event.checkpoint_id <= newest:
            self.violated(
                f"{event.task} takes its snapshot for checkpoint {event.checkpoint_id} after that for {newest}",
                event.time_ns,
                checkpoint_id=event.checkpoint_id,
                task=event.task,
            )
        elif event.attempt >= attempt:
            self._snapshots[event.task] = (event.attempt, event.checkpoint_id)

    @hears(Send)
    def _on_send(self, event: Send) -> None:
        if event.kind != _BARRIER:
            return
        attempt, newest = self._barriers.get(event.channel, (0, 0))
        checkpoint_id = event.detail or 0
        if event.attempt == attempt and checkpoint_id <= newest:
            self.violated(
                f"barrier {checkpoint_id} is sent on {self.topology.channel(event.channel)} after barrier {newest}",
                event.time_ns,
                checkpoint_id=checkpoint_id,
                channel=event.channel,
            )
        elif event.attempt >= attempt:
            self._barriers[event.channel] = (event.attempt, checkpoint_id)

    def obeyed_older_cancel(self, task: str, channel: int, older: int, current: int, now_ns: int) -> None:
        """Called by V4: a channel was unblocked by the cancel marker of an older checkpoint."""
        self.violated(
            f"{task} gives up checkpoint {current} at the late cancel marker of checkpoint {older}:"
            f" {self.topology.channel(channel)} goes on",
            now_ns,
            checkpoint_id=current,
            task=task,
        )


class _Alignment:
    """State of a task with several inputs. ``behind``: inputs that have delivered the barrier of ``current``;
    ``heard``: those of whose records it hears."""

    __slots__ = ("attempt", "behind", "current", "ended", "heard", "inputs", "older_cancel", "task")

    def __init__(self, task: str, inputs: frozenset[int]) -> None:
        self.task = task
        self.inputs = inputs
        self.heard: frozenset[int] = frozenset()
        self.begin(0)

    def begin(self, attempt: int) -> None:
        self.attempt = attempt
        self.current = 0
        self.behind: set[int] = set()
        self.ended: set[int] = set()
        self.older_cancel = 0
        """The last late cancel marker, if no event has come since."""

    def over_if_complete(self) -> None:
        if self.inputs <= self.behind | self.ended:
            self.behind.clear()


class Alignment(Watcher):
    name = "V4"
    title = "In mode aligned no task takes a record sent after a barrier before its snapshot, and no channel goes on."
    reason = "Such a record's effect is in the snapshot while its source will send it again: it is counted twice."
    source = "Carbone et al. 2015, Lightweight Asynchronous Snapshots; Flink SingleCheckpointBarrierHandler"

    def __init__(self, shared: Shared | None = None, order: OrderOfCheckpoints | None = None) -> None:
        """``order`` is notified of channels that a late cancel marker has unblocked."""
        super().__init__(shared)
        self._order = order
        self.records_of = self.shared.records_of
        self._by_channel: dict[int, _Alignment] = {}
        self._ends_count = True
        """Whether the end of a channel replaces its barriers, or ends the checkpoint."""

    def process_started(self, view: CaseView) -> None:
        """Only tasks with several inputs align."""
        super().process_started(view)
        self._by_channel.clear()
        self.shared.records_of.intersection_update(self.shared.counted)
        if view.config.protocol.name != ALIGNED:
            self.skipped = f"nothing is aligned in mode {view.config.mode}"
            return
        self._ends_count = view.config.checkpoints_after_tasks_finish
        for task, inputs in self.topology.awaited_inputs.items():
            if len(inputs) > 1:
                alignment = _Alignment(task, inputs)
                self._by_channel.update(dict.fromkeys(inputs, alignment))

    def _of(self, channel: int, attempt: int) -> _Alignment | None:
        alignment = self._by_channel.get(channel)
        if alignment is not None and alignment.attempt != attempt:
            if attempt < alignment.attempt:
                return None
            alignment.begin(attempt)
        return alignment

    @hears(Receive)
    def _on_receive(self, event: Receive) -> None:
        alignment = self._of(event.channel, event.attempt)
        if alignment is not None:
            self._follow(alignment, event)
            self._hear_records(alignment)

    def _hear_records(self, alignment: _Alignment) -> None:
        """Records matter after a barrier that they must not follow, and after a late cancel marker."""
        heard = alignment.inputs if alignment.older_cancel else frozenset(alignment.behind)
        if heard != alignment.heard:
            everything = self.shared.records_of
            everything -= alignment.heard
            everything |= heard
            everything |= self.shared.counted
            alignment.heard = heard

    def _follow(self, alignment: _Alignment, event: Receive) -> None:
        alignment.older_cancel = 0
        if event.kind == _RECORDS:
            if event.channel in alignment.behind:
                self._record_behind_barrier(alignment, event)
        elif event.kind == _BARRIER:
            self._on_barrier(alignment, event.channel, event.detail or 0)
        elif event.kind == _CANCEL:
            cancelled = event.detail or 0
            if cancelled >= alignment.current:
                alignment.current = cancelled
                alignment.behind.clear()
            else:
                alignment.older_cancel = cancelled
        elif event.kind == _END:
            alignment.ended.add(event.channel)
            if self._ends_count:
                alignment.over_if_complete()
            else:
                alignment.behind.clear()

    @staticmethod
    def _on_barrier(alignment: _Alignment, channel: int, checkpoint_id: int) -> None:
        if checkpoint_id > alignment.current:
            alignment.current = checkpoint_id
            alignment.behind = {channel}
        elif checkpoint_id == alignment.current and alignment.behind:
            alignment.behind.add(channel)
        alignment.over_if_complete()

    def _record_behind_barrier(self, alignment: _Alignment, event: Receive) -> None:
        waiting = sorted(alignment.inputs - alignment.behind - alignment.ended)
        alignment.behind.clear()
        self.violated(
            f"{alignment.task} takes {event.records} record(s) from {self.topology.channel(event.channel)} sent after"
            f" barrier {alignment.current}, before its snapshot: the barrier has not come on"
            f" {', '.join(map(self.topology.channel, waiting))}",
            event.time_ns,
            checkpoint_id=alignment.current,
            task=alignment.task,
            channel=event.channel,
        )

    @hears(ChannelResumed)
    def _on_resumed(self, event: ChannelResumed) -> None:
        alignment = self._by_channel.get(event.channel)
        if alignment is None or alignment.attempt != event.attempt or event.channel not in alignment.behind:
            return
        current, older = alignment.current, alignment.older_cancel
        if older and self._order is not None:
            alignment.behind.clear()
            self._hear_records(alignment)
            self._order.obeyed_older_cancel(alignment.task, event.channel, older, current, event.time_ns)
        # Otherwise the next element from that channel shows whether it matters.
