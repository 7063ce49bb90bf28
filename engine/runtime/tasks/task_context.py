"""The operator context of a running task: state backends on demand, clock, files, counters."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, Protocol

from engine.elements.errors import JobChangedError, JobGraphError, StateError
from engine.elements.operator import OperatorMetrics
from engine.elements.record_tracking import RecordTracking
from engine.graph.plan import OperatorPlan
from engine.runtime.channels import ChainOutput
from engine.runtime.storage import RestoredOperator, SharedStreams
from engine.runtime.tasks.background import Materializing, TaskExecutor
from engine.runtime.tasks.environment import OperatorEvent, TaskPlace, plain_copy
from state_backends.api import BackendEnvironment, KeyedStateBackend, OperatorStateBackend
from state_backends.base import StateSchemaError, key_group_range_for_index
from state_backends.files import FileSystem
from state_backends.local import TaskLocalRecovery
from state_backends.snapshots import (
    KeyedStateHandle,
    OperatorStateHandle,
    RestoreCandidate,
    remote_only,
    restore_backend,
    safe_file_name,
)

if TYPE_CHECKING:
    from engine.runtime.tasks.task_life import TaskLife
    from engine.runtime.tasks.task_timers import TaskTimers


REMOTE, LOCAL = "remote", "local"
"""Where restored state was read: from checkpoint storage, or from the copy beside the task."""


class Counters:
    """Counters of one operator in one subtask, which keep their values across restarts."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, int]) -> None:
        self._values = values

    def count(self, name: str, amount: int = 1) -> None:
        """Add ``amount`` to counter ``name``."""
        self._values[name] = self._values.get(name, 0) + amount


class OperatorHost(Protocol):
    """The task of an operator, and the mail for it."""

    def spend(self, virtual_ns: int) -> None:
        """Its last step takes so long."""

    def output_filled(self) -> None:
        """One output has no credit any more."""

    def credit_returned(self) -> None:
        """One full output has credit again."""


class TaskOperatorContext:
    """Implements :class:`engine.elements.operator.OperatorContext` for one operator of one task."""

    def __init__(
        self,
        task: OperatorHost,
        place: TaskPlace,
        life: TaskLife,
        timers: TaskTimers,
        tracking: RecordTracking | None,
        plan: OperatorPlan,
        output: ChainOutput,
    ) -> None:
        environment = place.environment
        self.world = environment.world
        self.tracking = tracking
        self.plan = plan
        self.uid = plan.uid
        self.name = plan.name
        self.subtask = place.plan.subtask
        self.parallelism = place.vertex.parallelism
        self.max_parallelism = place.vertex.max_parallelism
        self.attempt = environment.attempt
        self.incarnation = environment.incarnation
        self.checkpointing_enabled = environment.protocol.takes_checkpoints
        self.publish_at_once = environment.protocol.tracks_records
        self.starts_from_another_run = environment.starts_from_another_run
        self.restored_is_committed = environment.restored_is_committed
        self.metrics: OperatorMetrics = Counters(environment.counters.setdefault((plan.uid, place.plan.subtask), {}))
        self.keyed: KeyedStateBackend | None = None
        self.operator: OperatorStateBackend | None = None
        self.holds_input = False
        self._task = task
        self._life = life
        self._clock = place.clock
        self.processing_time_ns = place.clock.clock_ns
        """The virtual clock in ns. A call less: sources ask for it again and again."""
        self._environment = environment
        self._place = place
        self._timers = timers
        self._local: TaskLocalRecovery | None = None
        self.read_bytes = {REMOTE: 0, LOCAL: 0}
        """Keyed and operator state that was read in the restore, by where it was."""
        self._output = output
        self._executor: TaskExecutor | None = None
        self._working_dirs: list[str] = []
        self._awaits_materialization = False
        self._is_closed = False
        self._restored: RestoredOperator | None = None
        self._restored_checkpoint_id: int | None = None

    def restore(
        self, restored: RestoredOperator | None, checkpoint_id: int | None, local: TaskLocalRecovery | None
    ) -> None:
        """State of the checkpoint that the attempt starts from; ``None`` on a fresh start. ``local``: the copies beside
        the task, if there are any."""
        self._local = local
        self._restored = restored
        self._restored_checkpoint_id = checkpoint_id
        # Keyed state that was restored is carried into the next checkpoint even if the operator never asks for it.
        if restored is not None and restored.keyed:
            self.keyed_backend()
        if restored is not None and restored.operator:
            self.operator_backend()

    def processing_time_ms(self) -> int:
        """The virtual clock in ms."""
        return self._clock.clock_ns() // 1_000_000

    def file_system(self) -> FileSystem:
        """The file system for sources and sinks."""
        return self._environment.file_system

    def resolve_path(self, path: str) -> str:
        """A relative path is below the run's output directory."""
        return self._environment.resolve_path(path)

    def keyed_backend(self) -> KeyedStateBackend:
        """Keyed state, with its restored part."""
        if self.keyed is None:
            if not self.plan.keyed:
                raise JobGraphError(f"operator {self.name!r} asks for keyed state but stands behind no key_by")
            if self._restored is None or not self._restored.keyed:
                self.keyed = self._create_keyed_backend(0)
            else:
                self.keyed = self._restore_keyed_backend(self._restored)
                if self.keyed.key_type is not None:
                    # Otherwise a key that failed the last attempt would be the first one of this, and pass.
                    agreement = self._environment.key_type_agreement(self._place.plan.vertex)
                    agreement.adopt(self.keyed.key_type)
            self._await_materialization()
        return self.keyed

    def _create_keyed_backend(self, tried: int) -> KeyedStateBackend:
        assert not self._is_closed, f"{self.name}: keyed state after the end of the task"
        environment = self._environment
        # An attempt deploys a subtask once, so two backends never have one name, not even in different runs.
        unique = safe_file_name(f"{self.uid}-{self.subtask}-{self.incarnation}-{self.attempt}-{tried}")
        uploads = SharedStreams(environment.storage, f"{unique}-background")
        self._executor = TaskExecutor(
            self._place, self.name, uploads, done=self._await_materialization, fail=self._life.fail
        )
        working_dir = posixpath.join(environment.local.working_dir, unique)
        self._working_dirs.append(working_dir)
        return environment.state_backend.create_keyed_backend(
            BackendEnvironment(
                self.plan.key_type,
                self.max_parallelism,
                key_group_range_for_index(self.max_parallelism, self.parallelism, self.subtask),
                environment.local.file_system,
                working_dir,
                unique,
                self._executor,
                self._clock.clock_ms,
                shared_streams=uploads,
            )
        )

    def _restore_keyed_backend(self, restored: RestoredOperator) -> KeyedStateBackend:
        local, handles, reader = self._local, restored.keyed, restored.reader
        return restore_backend(
            remote_only(handles, reader) if local is None else local.keyed_candidates(self.uid, handles, reader),
            self._create_keyed_backend,
            self._read_keyed,
            self._dispose,
            report=None if local is None else local.report(self.uid, "keyed"),
        )

    def _read_keyed(self, backend: KeyedStateBackend, candidate: RestoreCandidate[KeyedStateHandle]) -> None:
        backend.restore(candidate.handles, candidate.reader)
        self._count_read(candidate)

    def _count_read(self, candidate: RestoreCandidate[Any]) -> None:
        where = LOCAL if candidate.local_handles else REMOTE
        self.read_bytes[where] += sum(handle.size_bytes for handle in candidate.handles)

    def _dispose(self, backend: KeyedStateBackend) -> None:
        assert self._executor is not None
        self._executor.close()
        backend.dispose()

    def _await_materialization(self) -> None:
        """Schedule the task's return for when the backend must take a snapshot of its own."""
        backend: object = self.keyed
        if self._awaits_materialization or self._is_closed or not hasattr(backend, "materialize_if_due"):
            return
        assert isinstance(backend, Materializing)
        due_ms, kernel = backend.materialization_due_ms, self._place.kernel
        if due_ms is not None:
            self._awaits_materialization = True
            # The backend uses the clock of the task.
            wait_ns = max(0, due_ms * 1_000_000 - self._clock.clock_ns())
            kernel.schedule(kernel.now_ns + wait_ns, "receive_mail", self._task, ("materialize", (self.plan.position,)))

    def materialize(self) -> None:
        """The backend must take a snapshot of its own now."""
        self._awaits_materialization = False
        if self._is_closed:
            return
        backend: object = self.keyed
        assert isinstance(backend, Materializing)
        assert self._executor is not None
        work = backend.materialize_if_due(self.processing_time_ms())
        if work is not None:
            self._executor.submit(work)
        self._await_materialization()

    def close(self) -> None:
        """The task is over, and its snapshots with it: end background work, close the state, delete local files.

        Raises :class:`OSError` when a local file cannot be deleted.
        """
        assert not self._is_closed, f"{self.name} was closed twice"
        self._is_closed = True
        if self._executor is not None:
            self._executor.close()
        if self.keyed is not None:
            self.keyed.dispose()
        for directory in self._working_dirs:
            self._environment.local.file_system.delete_tree(directory)

    def perish(self) -> None:
        """The process of the task is gone: local files stay until they are swept."""
        self._is_closed = True
        if self._executor is not None:
            self._executor.perish()

    def operator_backend(self) -> OperatorStateBackend:
        """Operator state, with its restored part."""
        if self.operator is None:
            if self._restored is None or not self._restored.operator:
                self.operator = OperatorStateBackend()
            else:
                try:
                    self.operator = self._restore_operator_backend(self._restored)
                except StateSchemaError as error:
                    raise StateError(
                        f"operator {self.uid!r} cannot take over its state from checkpoint"
                        f" {self._restored_checkpoint_id}: {error}"
                    ) from error
        return self.operator

    def refuse_unclaimed_state(self) -> None:
        """The operator has asked for all the operator state that it wants. State left over may be output that waits
        for its checkpoint, or the position of a source: an operator of another kind, under the same uid, would lose it
        silently. (A union list would also grow with every restore.)

        Raises :class:`engine.elements.errors.JobChangedError`, unless such state may be dropped.
        """
        if self._restored is None or self.operator is None:
            return
        unclaimed = self.operator.undeclared()
        if unclaimed and not self._environment.allow_non_restored_state:
            raise JobChangedError(
                f"checkpoint {self._restored_checkpoint_id} holds operator state of {self.name!r} (uid {self.uid!r}) "
                f"that it does not ask for: {', '.join(unclaimed)}\n"
                "  it is now an operator of another kind, or has other options; give it another uid behind a drained "
                "savepoint (--stop-with-savepoint --drain), when nothing waits any more\n"
                "  to lose this state on purpose, allow non-restored state (--allow-non-restored-state)"
            )
        self.operator.forget_undeclared()

    def _restore_operator_backend(self, restored: RestoredOperator) -> OperatorStateBackend:
        local, handles, reader = self._local, restored.operator, restored.reader
        return restore_backend(
            remote_only(handles, reader) if local is None else local.operator_candidates(self.uid, handles, reader),
            lambda tried: OperatorStateBackend(),
            self._read_operator,
            report=None if local is None else local.report(self.uid, "operator"),
        )

    def _read_operator(self, backend: OperatorStateBackend, candidate: RestoreCandidate[OperatorStateHandle]) -> None:
        backend.restore(candidate.handles, candidate.reader)
        self._count_read(candidate)

    def restored_checkpoint_id(self) -> int | None:
        """The checkpoint this attempt starts from."""
        return self._restored_checkpoint_id

    def register_processing_timer(self, time_ms: int) -> None:
        self.register_processing_timer_ns(time_ms * 1_000_000)

    def register_processing_timer_ns(self, time_ns: int) -> None:
        self._timers.register(time_ns, self.plan.position)

    def spend(self, virtual_ns: int) -> None:
        if self._environment.work_takes_time:
            self._task.spend(virtual_ns)

    def hold_input(self) -> None:
        """See the contract. For the task it is one more output without credit."""
        if not self.holds_input:
            self.holds_input = True
            self._task.output_filled()

    def release_input(self) -> None:
        if self.holds_input:
            self.holds_input = False
            self._task.credit_returned()

    def send_to_coordinator(self, event: Any) -> None:
        if self.plan.create_coordinator is None:
            raise JobGraphError(
                f"operator {self.name!r} sends to its coordinator, but has none\n"
                "  give the object that makes the operator a method create_coordinator()"
            )
        message = OperatorEvent(self.uid, self._place.task_id, self.attempt, plain_copy(event, self.name))
        self._environment.post.to_master(self._place.name, "operator_event", message)

    def fingerprint(self) -> object:
        """The remaining background work."""
        return None if self._executor is None else self._executor.fingerprint()

    def report_loss(self, what: str) -> None:
        self._environment.losses[what] = None

    def report_backlog(self, is_backlog: bool) -> None:
        self._environment.master.source_backlog(self._life, is_backlog)
