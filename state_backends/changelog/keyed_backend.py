"""The keyed backend of one subtask: states that log, the log, and the backend below that keeps the state.

:mod:`state_backends.changelog.history` decides which files a checkpoint refers to and which may be deleted; this module
carries that out. Reads, the order of timers and the meaning of state come from the backend below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from state_backends.api import BackendEnvironment, KeyedStateBackend, StateBackend, TimerQueue, TimerService
from state_backends.base import BackgroundWork, StateArgumentError, StateDescriptor, StateKind, StateTtlConfig
from state_backends.changelog.changes import TTL_VARIANT
from state_backends.changelog.entries import LoggedEntries, LoggedMapEntries
from state_backends.changelog.history import Cleanup, LogHistory, SnapshotPlan
from state_backends.changelog.log import ChangeLog, SharedUploads
from state_backends.changelog.restore import check_logs, last_number, may_be_referred_to, replay, restorable_handles
from state_backends.changelog.segment import LoggedStateId
from state_backends.changelog.strategy import ChangelogSnapshotStrategy, InlineSnapshot, Materialization
from state_backends.changelog.timers import LoggedTimerQueue
from state_backends.snapshots import (
    ChangelogKeyedStateHandle,
    EncodedBlock,
    KeyedSnapshotStrategy,
    KeyedStateHandle,
    LogSegment,
    SnapshotOptions,
    SnapshotType,
    StateReader,
    StateSchemas,
)
from state_backends.ttl import with_ttl

DEFAULT_MATERIALIZATION_INTERVAL_MS = 600_000
"""Ten minutes (state.changelog.periodic-materialize.interval)."""
DEFAULT_SEGMENT_BYTES = 1 << 20
DEFAULT_MAX_MATERIALIZATION_FAILURES = 3
"""As Flink: state.changelog.max-failures-allowed."""


@dataclass(frozen=True, slots=True)
class _Materialized:
    """The handle of a materialised snapshot, if it has entries, and the uploads that can delete its files while no
    snapshot refers to them."""

    handles: tuple[KeyedStateHandle, ...]
    uploads: SharedUploads | None


class _ToldHistory:
    """Passes notifications to the history, and carries out its cleanup after each."""

    def __init__(self, history: LogHistory, clean_up: Callable[[Cleanup], None]) -> None:
        self._history = history
        self._clean_up = clean_up

    def complete(self, checkpoint_id: int) -> None:
        self._clean_up(self._history.complete(checkpoint_id))

    def abort(self, checkpoint_id: int) -> None:
        self._clean_up(self._history.abort(checkpoint_id))

    def subsumed(self, checkpoint_id: int) -> None:
        self._clean_up(self._history.subsumed(checkpoint_id))


class ChangelogKeyedStateBackend(KeyedStateBackend):
    """Keyed state of one subtask, with a log of its changes."""

    def __init__(
        self, inner: KeyedStateBackend, environment: BackendEnvironment, settings: ChangelogStateBackend
    ) -> None:
        """An empty backend. ``inner``: keeps the state; it is empty, too."""
        self._environment = environment
        self._settings = settings
        self._inner = inner
        self.scope = inner.scope
        self._history = LogHistory()
        self.history = _ToldHistory(self._history, self._clean_up)
        self._log = ChangeLog(
            self._history,
            environment.codec,
            settings.segment_bytes,
            environment.max_parallelism,
            environment.key_group_range,
            environment.executor,
            environment.shared_streams,
        )
        self._schemas = StateSchemas(environment.codec)
        self._log.key_type = lambda: inner.key_type
        self._log.schema = self._schemas.written
        self._materialized: dict[int, _Materialized] = {0: _Materialized((), None)}
        self._running: Materialization | None = None
        self._failures = 0
        self._options = SnapshotOptions()
        self._timer_services: dict[str, TimerService] = {}
        self._is_disposed = False
        interval = settings.materialization_interval_ms
        self._due_ms = None if interval is None else environment.now_ms() + interval

    # --- state ----------------------------------------------------------------------------------------------------

    def table(self, descriptor: StateDescriptor) -> Any:
        stored = self.stored(descriptor.name, descriptor.kind, descriptor.ttl)
        return stored if descriptor.ttl is None else with_ttl(stored, descriptor, self._environment.now_ms)

    def stored(self, name: str, kind: StateKind, ttl: StateTtlConfig | None) -> Any:
        below = self._inner.stored(name, kind, ttl)
        self._schemas.declare(name, ttl)
        index = self._log.register(LoggedStateId(name, kind, "" if ttl is None else TTL_VARIANT))
        if kind is StateKind.MAP:
            return LoggedMapEntries(below, self._log, index)
        return LoggedEntries(below, self._log, index, is_list=kind is StateKind.LIST)

    def _timer_queue(self, name: str, domain: str) -> TimerQueue:
        below = self._inner.timer_service(name).queue(domain)
        return LoggedTimerQueue(below, self._log, self._log.register(LoggedStateId(name, StateKind.TIMERS, domain)))

    def num_entries(self, state_name: str | None = None) -> int:
        return self._inner.num_entries(state_name)

    def keys(self, state_name: str, namespace: Any = None) -> list[Any]:
        return self._inner.keys(state_name, namespace)

    def state_names(self) -> list[str]:
        return self._inner.state_names()

    def fingerprint(self) -> bytes:
        return self._inner.fingerprint()

    def content(self) -> Iterator[tuple[int, EncodedBlock]]:
        return self._inner.content()

    def entries_of(self, block: EncodedBlock) -> Iterator[tuple[Any, Any, Any]]:
        return self._inner.entries_of(block)

    # --- restore --------------------------------------------------------------------------------------------------

    def restore(self, handles: Iterable[KeyedStateHandle], reader: StateReader) -> None:
        """Restore the materialised state, then the log after it. Handles of the backend below can be restored too."""
        restored = restorable_handles(handles, self.key_group_range)
        codec = self._environment.codec
        check_logs(restored, reader, codec, self._schemas)
        below: list[KeyedStateHandle] = []
        for handle in restored:
            below += handle.materialized if isinstance(handle, ChangelogKeyedStateHandle) else (handle,)
        if below:
            self._inner.restore(below, reader)
        for handle in restored:
            if isinstance(handle, ChangelogKeyedStateHandle):
                replay(handle, reader, self._inner, codec, self._schemas)
        self._go_on_from(restored)

    def _go_on_from(self, restored: list[KeyedStateHandle]) -> None:
        """Let the next checkpoint refer to the restored files if it may; otherwise make it materialise."""
        if not restored:
            return
        handle = restored[0]
        if len(restored) > 1 or not may_be_referred_to(handle, self.key_group_range):
            self._history.restored_elsewhere(last_number(restored))
            return
        assert isinstance(handle, ChangelogKeyedStateHandle)
        self._history.restored(handle.materialization_id, tuple((one.first, one.end) for one in handle.log))
        for segment in handle.log:
            self._log.restored(segment.first, segment.end, segment.stream)
        self._materialized = {handle.materialization_id: _Materialized(handle.materialized, None)}

    # --- snapshots ------------------------------------------------------------------------------------------------

    def snapshot_strategy(self, options: SnapshotOptions) -> KeyedSnapshotStrategy:
        """The strategy for that type: the backend below takes savepoints; checkpoints consist of the log too."""
        if options.type.is_savepoint:
            return self._inner.snapshot_strategy(options)
        return ChangelogSnapshotStrategy(self, self._log, options)

    def begin_snapshot(
        self, checkpoint_id: int, options: SnapshotOptions
    ) -> tuple[SnapshotPlan, InlineSnapshot | None]:
        """Cut the log and note that a snapshot is under way. If the snapshot must materialise, a materialisation in the
        background is cancelled."""
        self._log.cut()
        self._options = replace(options, type=SnapshotType.CHECKPOINT)
        full = options.type is SnapshotType.FULL_CHECKPOINT
        if full or self._history.needs_inline:
            self._cancel_running()
        plan = self._history.begin_snapshot(checkpoint_id, full=full)
        if not plan.is_inline:
            return plan, None
        how = self._materialization_options(plan.is_full)
        try:
            strategy = self._inner.snapshot_strategy(how)
            return plan, InlineSnapshot(strategy, strategy.sync_prepare_resources(plan.materialization), how)
        except BaseException:
            self.snapshot_failed(checkpoint_id)
            raise

    def snapshot_finished(
        self, checkpoint_id: int, plan: SnapshotPlan, materialized: tuple[KeyedStateHandle, ...]
    ) -> ChangelogKeyedStateHandle | None:
        if plan.is_inline:
            self._materialized[plan.materialization] = _Materialized(materialized, None)
        handles = self._materialized[plan.materialization].handles
        segments = [self._log.segment(first) for first in plan.segments]
        handed, cleanup = self._history.snapshot_finished(checkpoint_id)
        log = []
        for segment in segments:
            assert segment.stream is not None
            log.append(LogSegment(segment.first, segment.end, segment.stream, segment.first in handed.new_segments))
        self._log.handed(plan.segments)
        self._clean_up(cleanup)
        if not handles and not log:
            return None
        number, is_new = plan.materialization, handed.materialization_is_new
        return ChangelogKeyedStateHandle(self.key_group_range, checkpoint_id, number, handles, is_new, tuple(log))

    def snapshot_failed(self, checkpoint_id: int) -> None:
        self._clean_up(self._history.snapshot_failed(checkpoint_id))

    # --- materialisation ------------------------------------------------------------------------------------------

    @property
    def materialization_due_ms(self) -> int | None:
        """When the next materialisation is due; ``None`` = never, or one is under way."""
        return None if self._running is not None else self._due_ms

    def materialize_if_due(self, now_ms: int) -> BackgroundWork | None:
        """:meth:`materialize`, if the interval has passed at ``now_ms``."""
        due_ms, interval = self.materialization_due_ms, self._settings.materialization_interval_ms
        if due_ms is None or interval is None or now_ms < due_ms:
            return None
        self._due_ms = now_ms + interval
        return self.materialize()

    def materialize(self) -> BackgroundWork | None:
        """Begin to materialise the present state: the synchronous part, to be called between records.

        Without streams for uploads between checkpoints, the next checkpoint materialises instead.

        :returns: the asynchronous part, for the executor; ``None`` when no state was changed since the last one, or one
            is under way, or the next checkpoint will materialise
        """
        if self._history.running is not None or self._history.has_open_inline:
            return None
        # No segment may hold both changes that are materialised and changes to be replayed
        # (mutant "log not cut for a materialisation").
        self._log.cut()
        if self._history.end == self._history.materialized_upto and not self._history.needs_inline:
            return None
        streams = self._environment.shared_streams
        if streams is None:
            self._history.request_inline()
            return None
        how = self._materialization_options(self._history.needs_full)
        number = self._history.begin_materialization()
        uploads = SharedUploads(streams)
        try:
            strategy = self._inner.snapshot_strategy(how)
            pinned = strategy.sync_prepare_resources(number)
            task = strategy.async_snapshot(pinned, uploads, how)
        except BaseException:
            self._clean_up(self._history.materialization_failed())
            raise
        self._running = Materialization(number, task, uploads, self._materialization_done, self._materialization_failed)
        return self._running

    def _materialization_options(self, full: bool) -> SnapshotOptions:
        return replace(self._options, type=SnapshotType.FULL_CHECKPOINT if full else SnapshotType.CHECKPOINT)

    def _materialization_done(self, handle: KeyedStateHandle | None, uploads: SharedUploads) -> None:
        number = self._history.running
        assert number is not None
        self._running = None
        self._failures = 0
        self._materialized[number] = _Materialized(() if handle is None else (handle,), uploads)
        self._clean_up(self._history.materialized())

    def _materialization_failed(self, problem: Exception | None) -> None:
        self._running = None
        self._clean_up(self._history.materialization_failed())
        if problem is not None:
            self._failures += 1
            if self._failures >= self._settings.max_materialization_failures:
                problem.add_note(f"the state could not be materialised {self._failures} times in a row")
                raise problem

    def _cancel_running(self) -> None:
        if self._running is not None:
            self._running.cancel()

    # --- the end ----------------------------------------------------------------------------------------------------

    def dispose(self) -> None:
        """The subtask ends: delete uploaded files that were never part of a finished snapshot."""
        if self._is_disposed:
            return
        self._is_disposed = True
        try:
            self._cancel_running()
            self._clean_up(self._history.dispose())
        finally:
            self._inner.dispose()

    def _clean_up(self, cleanup: Cleanup) -> None:
        self._log.clean_up(cleanup)
        for number in cleanup.delete_materializations:
            uploads = self._materialized[number].uploads
            if uploads is not None:
                uploads.discard()
        for number in cleanup.forget_materializations:
            del self._materialized[number]
        inner = self._inner.history
        if inner is not None:
            for number in cleanup.aborted:
                inner.abort(number)
        if cleanup.fell_back and self._due_ms is not None:
            # The log is long again, so materialise at once.
            self._due_ms = self._environment.now_ms()
        if cleanup.complete is not None and inner is not None:
            inner.complete(cleanup.complete)


class ChangelogStateBackend:
    """A log of changes over another backend (Flink: ``ChangelogStateBackend``).

    :ivar name: ``changelog``, with the name of the backend below unless that is the heap
    :ivar incremental: whether materialisations use files of earlier ones
    """

    def __init__(
        self,
        inner: StateBackend,
        *,
        materialization_interval_ms: int | None = DEFAULT_MATERIALIZATION_INTERVAL_MS,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        max_materialization_failures: int = DEFAULT_MAX_MATERIALIZATION_FAILURES,
    ) -> None:
        """A changelog over ``inner``.

        :param materialization_interval_ms: from one materialisation to the next; ``None`` = never
        :param segment_bytes: the size at which the log is cut, and the segment uploaded in the background
        :param max_materialization_failures: this many consecutive failures fail the job
        :raises StateArgumentError: when a number is not positive, or ``inner`` is a changelog itself
        """
        numbers = {
            "materialization_interval_ms": materialization_interval_ms,
            "segment_bytes": segment_bytes,
            "max_materialization_failures": max_materialization_failures,
        }
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise StateArgumentError(f"changelog backend: {name} must be at least 1, not {number}.")
        if isinstance(inner, ChangelogStateBackend):
            raise StateArgumentError("a changelog cannot stand over a changelog: name what keeps the state.")
        self.inner = inner
        self.materialization_interval_ms: int | None = materialization_interval_ms
        self.segment_bytes: int = segment_bytes
        self.max_materialization_failures = max_materialization_failures
        self.name = "changelog" if inner.name == "heap" else f"changelog:{inner.name}"
        self.incremental = inner.incremental

    def create_keyed_backend(self, environment: BackendEnvironment) -> ChangelogKeyedStateBackend:
        return ChangelogKeyedStateBackend(self.inner.create_keyed_backend(environment), environment, self)
