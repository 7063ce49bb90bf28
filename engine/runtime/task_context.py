"""The operator context of a running task: state backends on demand, clock, files, counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.elements.errors import JobGraphError
from engine.elements.operator import OperatorMetrics
from engine.graph.plan import OperatorPlan
from engine.runtime.operator_coordinators import OperatorEvent, plain_copy
from engine.runtime.outputs import ChainOutput
from engine.runtime.restored_state import RestoredOperator
from state_backends.heap import HeapKeyedStateBackend
from state_backends.key_groups import key_group_range_for_index
from state_backends.operator_state import OperatorStateBackend

if TYPE_CHECKING:
    from engine.runtime.task import Task
    from state_backends.filesystem import FileSystem


class Counters:
    """Counters of one operator in one subtask, which live on through restarts."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, int]) -> None:
        self._values = values

    def count(self, name: str, amount: int = 1) -> None:
        """Add ``amount`` to counter ``name``."""
        self._values[name] = self._values.get(name, 0) + amount


class TaskOperatorContext:
    """Implements :class:`engine.elements.operator.OperatorContext` for one operator of one task."""

    def __init__(self, task: Task, plan: OperatorPlan, output: ChainOutput) -> None:
        environment = task.environment
        self.plan = plan
        self.uid = plan.uid
        self.name = plan.name
        self.subtask = task.plan.subtask
        self.parallelism = task.vertex.parallelism
        self.max_parallelism = task.vertex.max_parallelism
        self.attempt = environment.attempt
        self.incarnation = environment.incarnation
        self.checkpointing_enabled = environment.protocol.takes_checkpoints
        self.metrics: OperatorMetrics = Counters(environment.counters.setdefault((plan.uid, task.plan.subtask), {}))
        self.keyed: HeapKeyedStateBackend | None = None
        self.operator: OperatorStateBackend | None = None
        self._task = task
        self._output = output
        self._restored: RestoredOperator | None = None
        self._restored_checkpoint_id: int | None = None

    def restore(self, restored: RestoredOperator | None, checkpoint_id: int | None) -> None:
        """State of the checkpoint that the attempt starts from; ``None`` on a fresh start."""
        self._restored = restored
        self._restored_checkpoint_id = checkpoint_id
        # What was restored is carried into the next checkpoint even if the operator never asks for it.
        if restored is not None and restored.keyed:
            self.keyed_backend()
        if restored is not None and restored.operator:
            self.operator_backend()

    def processing_time_ms(self) -> int:
        """The virtual clock in ms."""
        return self._task.kernel.now_ns // 1_000_000

    def processing_time_ns(self) -> int:
        """The virtual clock in ns."""
        return self._task.kernel.now_ns

    def file_system(self) -> FileSystem:
        """The file system of sources and sinks."""
        return self._task.environment.file_system

    def resolve_path(self, path: str) -> str:
        """A relative path is below the run's output directory."""
        return self._task.environment.resolve_path(path)

    def keyed_backend(self) -> HeapKeyedStateBackend:
        """Keyed state, with what was restored."""
        if self.keyed is None:
            if not self.plan.keyed:
                raise JobGraphError(f"operator {self.name!r} asks for keyed state but stands behind no key_by")
            key_groups = key_group_range_for_index(self.max_parallelism, self.parallelism, self.subtask)
            self.keyed = HeapKeyedStateBackend(self.plan.key_type, self.max_parallelism, key_groups)
            if self._restored is not None and self._restored.keyed:
                self._restored.restore_keyed(self.keyed)
                if self.keyed.key_type is not None:
                    # Else a key that failed the last attempt would be the first one of this, and pass.
                    agreement = self._task.environment.key_type_agreement(self._task.plan.vertex)
                    agreement.adopt(self.keyed.key_type)
        return self.keyed

    def operator_backend(self) -> OperatorStateBackend:
        """Operator state, with what was restored."""
        if self.operator is None:
            self.operator = OperatorStateBackend()
            if self._restored is not None and self._restored.operator:
                self._restored.restore_operator(self.operator)
        return self.operator

    def restored_checkpoint_id(self) -> int | None:
        """The checkpoint this attempt starts from."""
        return self._restored_checkpoint_id

    def register_processing_timer(self, time_ms: int) -> None:
        """See the contract."""
        self.register_processing_timer_ns(time_ms * 1_000_000)

    def register_processing_timer_ns(self, time_ns: int) -> None:
        """See the contract."""
        self._task.register_timer(time_ns, self.plan.position)

    def spend(self, virtual_ns: int) -> None:
        """See the contract."""
        self._task.rest(virtual_ns)

    def send_to_coordinator(self, event: Any) -> None:
        """See the contract."""
        if self.plan.create_coordinator is None:
            raise JobGraphError(
                f"operator {self.name!r} sends to its coordinator, but has none\n"
                "  give the object that makes the operator a method create_coordinator()"
            )
        message = OperatorEvent(self.uid, self._task.task_id, self.attempt, plain_copy(event, self.name))
        self._task.environment.send_to_master("operator_event", message)

    def report_backlog(self, is_backlog: bool) -> None:
        """See the contract."""
        self._task.environment.master.source_backlog(self._task, is_backlog)
