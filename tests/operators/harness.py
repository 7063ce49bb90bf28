"""Runs one operator without an engine (in the manner of Flink's ``OneInputStreamOperatorTestHarness``).

Clock, timers, output and metrics are fakes with the meaning of the contract; state backends, checkpoint streams and
file systems are the real ones. One harness is one subtask in one attempt; ``restored=`` starts another attempt
from a ``Checkpoint``, at any parallelism.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator, OperatorMetrics, TwoInputOperator
from engine.elements.outside_world import OutsideWorld
from state_backends.api import OperatorStateBackend
from state_backends.base import STRING, KeyType, key_group_range_for_index
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import (
    CheckpointStorage,
    KeyedStateHandle,
    OperatorStateHandle,
    OperatorStateMode,
    SnapshotOptions,
    run_to_completion,
)

START_NS = 1_000_000_000_000
MAX_PARALLELISM = 16


class Checkpoint:
    """The snapshots of all subtasks of one operator under one id."""

    def __init__(self, checkpoint_id: int) -> None:
        self.id = checkpoint_id
        self.location = CheckpointStorage(MemoryFileSystem(), "base", "job").initialize_location(checkpoint_id)
        self.keyed: dict[int, KeyedStateHandle] = {}
        self.operator: dict[int, OperatorStateHandle] = {}

    def restore_keyed(self, backend: HeapKeyedStateBackend) -> None:
        """Every handle is offered; the backend keeps its own key groups."""
        backend.restore([self.keyed[subtask] for subtask in sorted(self.keyed)], self.location.reader())

    def restore_operator(self, backend: OperatorStateBackend, subtask: int, parallelism: int) -> None:
        """Union lists come whole. Split lists come as they were, or in contiguous chunks after a rescale. A broadcast
        state is the copy of one of the old subtasks."""
        if not self.operator:
            return
        modes: dict[str, OperatorStateMode] = {}
        by_subtask: dict[int, OperatorStateBackend] = {}
        for old, handle in sorted(self.operator.items()):
            by_subtask[old] = OperatorStateBackend()
            by_subtask[old].restore([handle], self.location.reader())
            modes |= {name: where.mode for name, where in handle.states.items()}
        for name, mode in sorted(modes.items()):
            if mode is OperatorStateMode.BROADCAST:
                copies = [one.broadcast_state(name) for _, one in sorted(by_subtask.items())]
                backend.broadcast_state(name).put_all(dict(copies[subtask % len(copies)].entries()))
                continue
            union = mode is OperatorStateMode.UNION
            lists = [
                (one.union_list_state(name) if union else one.list_state(name)).get()
                for _, one in sorted(by_subtask.items())
            ]
            everything = [element for elements in lists for element in elements]
            if union:
                backend.union_list_state(name).update(everything)
            elif len(lists) == parallelism:
                backend.list_state(name).update(lists[subtask])
            else:
                base, extra = divmod(len(everything), parallelism)
                start = subtask * base + min(subtask, extra)
                backend.list_state(name).update(everything[start : start + base + (subtask < extra)])


class RecordingOutput:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def emit(self, batch: Batch) -> None:
        self.events.append(batch)

    def emit_watermark(self, timestamp_ms: int) -> None:
        self.events.append(("watermark", timestamp_ms))

    def emit_watermark_status(self, idle: bool) -> None:
        self.events.append(("idle", idle))

    def emit_side(self, tag: str, batch: Batch) -> None:
        self.events.append((tag, batch))


class FakeMetrics:
    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()

    def count(self, name: str, amount: int = 1) -> None:
        self.counters[name] += amount


class FakeContext:
    """The operator context: a clock that only the test moves, and real backends."""

    def __init__(
        self,
        fs: FileSystem,
        subtask: int,
        parallelism: int,
        attempt: int,
        incarnation: int,
        now_ns: int,
        key_type: KeyType,
        checkpointing_enabled: bool,
        restored: Checkpoint | None,
        coordinated: bool = False,
    ) -> None:
        self.uid = "op-uid"
        self.name = "op"
        self.subtask = subtask
        self.parallelism = parallelism
        self.max_parallelism = MAX_PARALLELISM
        self.attempt = attempt
        self.incarnation = incarnation
        self.checkpointing_enabled = checkpointing_enabled
        self.publish_at_once = False
        self.tracking = None
        self.world: OutsideWorld | None = None
        self.starts_from_another_run = False
        self.restored_is_committed = False
        self.losses: list[str] = []
        self.coordinated = coordinated
        self.sent: list[Any] = []
        """What was sent to the operator's coordinator, which the test plays."""
        self.metrics: OperatorMetrics = FakeMetrics()
        self.now_ns = now_ns
        self.holds_input = False
        self.timers: list[int] = []
        self.fs = fs
        self.restored = restored
        key_groups = key_group_range_for_index(MAX_PARALLELISM, parallelism, subtask)
        self.keyed = HeapKeyedStateBackend(key_type, MAX_PARALLELISM, key_groups, now_ms=self.processing_time_ms)
        self.operator = OperatorStateBackend()
        if restored is not None:
            restored.restore_keyed(self.keyed)
            restored.restore_operator(self.operator, subtask, parallelism)

    def processing_time_ms(self) -> int:
        return self.now_ns // 1_000_000

    def processing_time_ns(self) -> int:
        return self.now_ns

    def file_system(self) -> FileSystem:
        return self.fs

    def resolve_path(self, path: str) -> str:
        return f"/out/{path}"

    def keyed_backend(self) -> HeapKeyedStateBackend:
        return self.keyed

    def operator_backend(self) -> OperatorStateBackend:
        return self.operator

    def restored_checkpoint_id(self) -> int | None:
        return None if self.restored is None else self.restored.id

    def register_processing_timer(self, time_ms: int) -> None:
        self.register_processing_timer_ns(time_ms * 1_000_000)

    def register_processing_timer_ns(self, time_ns: int) -> None:
        heapq.heappush(self.timers, max(time_ns, self.now_ns))

    def spend(self, virtual_ns: int) -> None:
        self.now_ns += virtual_ns

    def hold_input(self) -> None:
        self.holds_input = True

    def release_input(self) -> None:
        self.holds_input = False

    def report_loss(self, what: str) -> None:
        self.losses.append(what)

    def send_to_coordinator(self, event: Any) -> None:
        assert self.coordinated, f"no coordinator for {event!r}"
        self.sent.append(event)


class Harness:
    """One operator, set up, restored and opened."""

    def __init__(
        self,
        operator: Operator,
        *,
        fs: FileSystem | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        attempt: int = 1,
        incarnation: int = 1,
        now_ns: int = START_NS,
        key_type: KeyType = STRING,
        checkpointing_enabled: bool = True,
        restored: Checkpoint | None = None,
        key: Callable[[Any], Any] | None = None,
        coordinated: bool = False,
        starts_from_another_run: bool = False,
    ) -> None:
        self.operator = operator
        self.context = FakeContext(
            MemoryFileSystem() if fs is None else fs,
            subtask,
            parallelism,
            attempt,
            incarnation,
            now_ns,
            key_type,
            checkpointing_enabled,
            restored,
            coordinated,
        )
        self.context.starts_from_another_run = starts_from_another_run
        self.output = RecordingOutput()
        self._key = key
        operator.setup(self.context, self.output)
        operator.initialize_state()
        operator.open()

    # --- input --------------------------------------------------------------------------------------------

    def process(self, values: Iterable[Any], timestamps: Iterable[int] | None = None) -> None:
        """Process one batch; its keys come from ``key`` if the harness has one."""
        records = list(values)
        keys = None if self._key is None else [self._key(value) for value in records]
        self.operator.process_batch(Batch(records, None if timestamps is None else list(timestamps), keys))

    def process_2(
        self, values: Iterable[Any], timestamps: Iterable[int] | None = None, key: Callable[[Any], Any] | None = None
    ) -> None:
        """Process one batch of the second input; keyed by ``key`` if that is given."""
        records = list(values)
        keys = None if key is None else [key(value) for value in records]
        operator = self.operator
        assert isinstance(operator, TwoInputOperator)
        operator.process_batch_2(Batch(records, None if timestamps is None else list(timestamps), keys))

    def watermark(self, timestamp_ms: int) -> None:
        self.operator.process_watermark(timestamp_ms)

    def advance_to_ns(self, time_ns: int) -> None:
        """Move the clock, firing every timer at its own time."""
        timers = self.context.timers
        while timers and timers[0] <= time_ns:
            due_ns = heapq.heappop(timers)
            self.context.now_ns = max(self.context.now_ns, due_ns)
            self.operator.on_processing_time_ns(due_ns)
        self.context.now_ns = time_ns

    def advance_ms(self, duration_ms: int) -> None:
        self.advance_to_ns(self.context.now_ns + duration_ms * 1_000_000)

    # --- checkpoints --------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int, into: Checkpoint | None = None) -> Checkpoint:
        """The operator's state, written by the real backends; ``into`` joins that of other subtasks."""
        checkpoint = into or Checkpoint(checkpoint_id)
        context, operator = self.context, self.operator
        operator.prepare_snapshot_pre_barrier(checkpoint_id)
        operator.snapshot_state(checkpoint_id)
        streams = checkpoint.location.stream_factory(f"op-{context.subtask}-{context.attempt}")
        keyed = context.keyed.sync_prepare_resources(checkpoint_id)
        listed = context.operator.sync_prepare_resources(checkpoint_id)
        options = SnapshotOptions()
        keyed_result = run_to_completion(context.keyed.async_snapshot(keyed, streams, options)).job_manager_state
        operator_result = run_to_completion(context.operator.async_snapshot(listed, streams, options)).job_manager_state
        if keyed_result is not None:
            checkpoint.keyed[context.subtask] = keyed_result
        if operator_result is not None:
            checkpoint.operator[context.subtask] = operator_result
        return checkpoint

    def complete(self, checkpoint_id: int) -> None:
        self.operator.notify_checkpoint_complete(checkpoint_id)

    def checkpoint(self, checkpoint_id: int) -> Checkpoint:
        """A snapshot of a checkpoint that then completes."""
        checkpoint = self.snapshot(checkpoint_id)
        self.complete(checkpoint_id)
        return checkpoint

    def finish(self) -> None:
        self.operator.finish()

    def close(self) -> None:
        self.operator.close()

    # --- output -------------------------------------------------------------------------------------------

    def take(self) -> list[Any]:
        """All events since the last call."""
        events, self.output.events = self.output.events, []
        return events

    def take_values(self) -> list[Any]:
        """All records since the last call, side outputs and events left out."""
        return [value for event in self.take() if isinstance(event, Batch) for value in event.values]

    def take_stamped(self) -> list[tuple[Any, int | None]]:
        """The same with timestamps."""
        return [
            (value, stamp)
            for event in self.take()
            if isinstance(event, Batch)
            for value, stamp in zip(event.values, stamps_of(event), strict=True)
        ]

    def counter(self, name: str) -> int:
        metrics = self.context.metrics
        assert isinstance(metrics, FakeMetrics)
        return metrics.counters[name]


def stamps_of(batch: Batch) -> Sequence[int | None]:
    """The timestamps of a batch, ``None`` for each record when it has none."""
    return [None] * len(batch) if batch.timestamps is None else batch.timestamps


def read_all(harness: Harness, batch_size: int = 7, cost_ns: int = 1_000) -> list[Any]:
    """Drive a source operator to its end as the runtime does: records cost time, pauses are waited for."""
    from operators.sources import SourceOperator

    source = harness.operator
    assert isinstance(source, SourceOperator)
    while (count := source.emit_next(batch_size)) is not None:
        now_ns = harness.context.now_ns
        wake_ns = now_ns + count * cost_ns if count else source.available_at_ns(now_ns)
        harness.advance_to_ns(wake_ns)
    return harness.output.events
