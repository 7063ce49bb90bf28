"""The operator coordinators of a job: fed by the job manager, cut from their subtasks at barriers, set back with them.

Rules (Flink: ``OperatorCoordinatorHolder``; the rules of the gateways are in
:mod:`engine.checkpoint.coordinator.subtask_gateways`, those that a coordinator relies on in
:mod:`engine.elements.operator_coordination`)
----------------------------------------------------------------------------------------------------------------
* An event travels as mail of the kernel. An event of a subtask counts only while the attempt that sent it is neither
  failed nor cancelled; an event to a subtask that does not run is lost.
* State is encoded the moment it is taken, and the gateways close; the answer comes as an event of its own. A subtask
  reports that it has processed the barrier when its snapshot has been taken, before anything else happens to it. A
  subtask that does not run gets no barrier, and its gateway does not close.
* Start from a checkpoint and a new job manager: reset to that, then started. Restart of all tasks: reset, to the
  checkpoint or to nothing. Restart of a region: left alone, and told which of its subtasks were reset.
* A coordinator that raises hears nothing more until it is reset, and the whole job fails over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from engine.checkpoint.coordinator import CoordinatorGateways, TaskId
from engine.elements.errors import MalformedStateError
from engine.elements.operator_coordination import CoordinatorError, CoordinatorFactory, OperatorCoordinator
from engine.graph.plan import ExecutionPlan, OperatorPlan, VertexPlan
from engine.runtime.kernel import Addressee, Post
from engine.runtime.tasks import BarrierProcessed, OperatorEvent, TaskLife, plain_copy
from state_backends.base import CorruptStateError, StateBackendError, check_shape
from state_backends.codec import default_codec

Result = TypeVar("Result")


class CoordinatedTask(Addressee, Protocol):
    """A task, to which events of coordinators are sent."""

    life: TaskLife


class CoordinatedJob(Protocol):
    """The services of the job for its coordinators."""

    post: Post

    @property
    def tasks(self) -> Mapping[TaskId, CoordinatedTask]:
        """Those of the present attempts."""

    def note(self, text: str) -> None:
        """Keep a fact for the report."""

    def fail_soon(self, why: str, error: Exception) -> None:
        """A coordinator has failed: the job fails as a whole, as soon as the present event is over."""


class CoordinatorHolder:
    """One operator coordinator with its gateways; implements
    :class:`engine.elements.operator_coordination.SubtaskGateways` for it."""

    def __init__(
        self, job: CoordinatedJob, vertex: VertexPlan, operator: OperatorPlan, create: CoordinatorFactory
    ) -> None:
        self.parallelism = vertex.parallelism
        self._uid = operator.uid
        self._name = operator.name
        self._create = create
        self._job = job
        self._vertex = vertex.index
        self._position = operator.position
        self._gateways: CoordinatorGateways[Any] = CoordinatorGateways(vertex.parallelism)
        self._coordinator: OperatorCoordinator | None = None
        self._is_started = False
        self._has_failed = False
        self._asked_for = 0
        """The newest checkpoint for which the coordinator was asked for its state."""

    # -- life ---------------------------------------------------------------------------------------------------------

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        """All tasks are about to be deployed, from this checkpoint or from nothing."""
        self._has_failed = False
        if not self._is_started:
            # The first time, or after one that could not even be started.
            self.close()
            self._guard("create_coordinator", self._make)
        if self._is_started or checkpoint_id is not None:
            self._tell("reset_to_checkpoint", lambda one: self._set_back(one, checkpoint_id, state))

    def _set_back(self, coordinator: OperatorCoordinator, checkpoint_id: int | None, state: bytes | None) -> None:
        """Raises :class:`MalformedStateError` when the state does not have the form that the coordinator writes."""
        if checkpoint_id is None or state is None:
            coordinator.reset_to_checkpoint(checkpoint_id, None)
            return
        what = "state of its coordinator"
        try:
            plain = default_codec().decode(state, what)
            check_shape(plain, coordinator.state_shape, what, "state")
            coordinator.reset_to_checkpoint(checkpoint_id, plain)
        except CorruptStateError as error:
            raise MalformedStateError(self._uid, checkpoint_id, f"{error.path}: {error.what}") from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, StateBackendError) as error:
            told = f"{what}: {type(error).__name__}: {error}"
            raise MalformedStateError(self._uid, checkpoint_id, told) from error

    def _make(self) -> None:
        self._coordinator = self._create()

    def deployed(self, subtasks: Iterable[int]) -> None:
        """These subtasks run now."""
        if not self._is_started:
            self._is_started = not isinstance(self._tell("start", lambda one: one.start(self)), CoordinatorError)
        for subtask in subtasks:
            self._ready(subtask)

    def _ready(self, subtask: int) -> None:
        self._tell("subtask_ready", lambda one: one.subtask_ready(subtask))

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        """A subtask is about to be deployed anew, and others are not."""
        self._tell("subtask_reset", lambda one: one.subtask_reset(subtask, checkpoint_id))

    def subtask_failed(self, subtask: int) -> None:
        """A subtask has failed or was cancelled: events kept back for it are lost with it."""
        self._gateways.on_task_failed(subtask)

    def close(self) -> None:
        """The job, or its manager, is over."""
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            try:
                coordinator.close()
            except AssertionError:
                raise
            except Exception as error:
                self._job.note(f"closing the coordinator of {self._name!r}: {error}")

    # -- events -------------------------------------------------------------------------------------------------------

    def handle_event(self, subtask: int, event: Any) -> None:
        """A subtask has sent an event."""
        self._tell("handle_event", lambda one: one.handle_event(subtask, event))

    def send(self, subtask: int, event: Any) -> None:
        """See :class:`engine.elements.operator_coordination.SubtaskGateways`."""
        if not 0 <= subtask < self.parallelism:
            raise IndexError(f"there is no subtask {subtask}; operator {self._name!r} has {self.parallelism}")
        self._deliver(subtask, self._gateways.send(subtask, plain_copy(event, self._name)))

    def _deliver(self, subtask: int, events: Iterable[Any]) -> None:
        task = self._job.tasks.get((self._vertex, subtask))
        if task is not None and task.life.is_running:
            for event in events:
                self._job.post.to_task(task, "coordinator_event", self._position, event)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self, checkpoint_id: int) -> bytes | CoordinatorError:
        """Take the coordinator's state and close the gateways."""
        self._asked_for = checkpoint_id
        self._gateways.begin(checkpoint_id)
        taken = self._tell("checkpoint", lambda one: self._encoded(one.checkpoint(checkpoint_id)))
        if isinstance(taken, CoordinatorError):
            return taken
        closed = self._gateways.on_state_taken(checkpoint_id)
        assert closed, f"checkpoint {checkpoint_id} was over before the state of {self._name!r} was taken"
        for subtask in range(self.parallelism):
            if not self._job.tasks[self._vertex, subtask].life.is_running:
                self.barrier_processed(checkpoint_id, subtask)
        return taken

    def _encoded(self, state: Any) -> bytes:
        return default_codec().encode(state, f"state of the coordinator of {self._name!r}")

    def barrier_processed(self, checkpoint_id: int, subtask: int) -> None:
        """A subtask has processed the barrier: open the gateway to it."""
        self._deliver(subtask, self._gateways.on_barrier_processed(checkpoint_id, subtask))

    def aborted(self, checkpoint_id: int) -> None:
        """A checkpoint is given up: its gateways open."""
        if checkpoint_id <= self._asked_for:
            for subtask, events in self._gateways.on_aborted(checkpoint_id):
                self._deliver(subtask, events)
        self._tell("notify_checkpoint_aborted", lambda one: one.notify_checkpoint_aborted(checkpoint_id))

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is durable."""
        self._tell("notify_checkpoint_complete", lambda one: one.notify_checkpoint_complete(checkpoint_id))

    # -- errors of a coordinator --------------------------------------------------------------------------------------

    def _tell(self, what: str, action: Callable[[OperatorCoordinator], Result]) -> Result | CoordinatorError:
        coordinator = self._coordinator
        if coordinator is None or self._has_failed:
            return CoordinatorError(self._name, what, RuntimeError("it has failed before"))
        return self._guard(what, lambda: action(coordinator))

    def _guard(self, what: str, action: Callable[[], Result]) -> Result | CoordinatorError:
        try:
            return action()
        except AssertionError:
            raise
        except Exception as cause:
            self._has_failed = True
            error = CoordinatorError(self._name, what, cause)
            error.__cause__ = cause
            self._job.fail_soon(str(error), error)
            return error

    def validate(self) -> None:
        self._gateways.validate()

    def fingerprint(self) -> object:
        inner = None if self._coordinator is None else self._coordinator.fingerprint()
        return (self._uid, self._is_started, self._has_failed, self._gateways.fingerprint(), inner)


class OperatorCoordinators:
    """All operator coordinators of one job under one job manager, by the uid of their operator."""

    def __init__(self, plan: ExecutionPlan, job: CoordinatedJob) -> None:
        self._job = job
        self._holders: dict[str, CoordinatorHolder] = {}
        self._of_vertex: dict[int, list[CoordinatorHolder]] = {}
        for vertex, operator in plan.operators():
            if operator.create_coordinator is not None:
                holder = CoordinatorHolder(job, vertex, operator, operator.create_coordinator)
                self._holders[operator.uid] = holder
                self._of_vertex.setdefault(vertex.index, []).append(holder)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all coordinators, in plan order."""
        return tuple(self._holders)

    @property
    def coordinated(self) -> Collection[int]:
        """The vertices with a coordinator."""
        return self._of_vertex.keys()

    # -- deployment ---------------------------------------------------------------------------------------------------

    def reset(self, checkpoint_id: int | None, states: Mapping[str, bytes]) -> None:
        """All tasks are about to be deployed, from this checkpoint or from nothing. ``states``: by uid."""
        for uid, holder in self._holders.items():
            holder.reset(checkpoint_id, states.get(uid))

    def subtasks_reset(self, tasks: Iterable[TaskId], checkpoint_id: int | None) -> None:
        """Only these tasks are about to be deployed."""
        for vertex, subtask in tasks:
            for holder in self._of_vertex.get(vertex, ()):
                holder.subtask_reset(subtask, checkpoint_id)

    def deployed(self, tasks: Iterable[TaskId]) -> None:
        """These tasks were started, and may have failed or be finished already."""
        running: dict[int, list[int]] = {vertex: [] for vertex in self._of_vertex}
        for vertex, subtask in tasks:
            if vertex in running and self._job.tasks[vertex, subtask].life.is_running:
                running[vertex].append(subtask)
        for vertex, subtasks in running.items():
            for holder in self._of_vertex[vertex]:
                holder.deployed(subtasks)

    def tasks_failed(self, tasks: Iterable[TaskId]) -> None:
        """These tasks have failed, or were cancelled."""
        for vertex, subtask in tasks:
            for holder in self._of_vertex.get(vertex, ()):
                holder.subtask_failed(subtask)

    def close(self) -> None:
        """The job, or its manager, is over."""
        for holder in self._holders.values():
            holder.close()

    # -- messages of tasks --------------------------------------------------------------------------------------------

    def operator_event(self, message: OperatorEvent) -> None:
        """An operator has sent an event to its coordinator."""
        if self._counts(message):
            self._holders[message.uid].handle_event(message.task[1], message.event)

    def barrier_processed(self, message: BarrierProcessed) -> None:
        """The snapshot of a task has been taken."""
        if self._counts(message):
            vertex, subtask = message.task
            for holder in self._of_vertex[vertex]:
                holder.barrier_processed(message.checkpoint_id, subtask)

    def _counts(self, message: OperatorEvent | BarrierProcessed) -> bool:
        life = self._job.tasks[message.task].life
        return life.attempt == message.attempt and life.state in ("running", "finished")

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self, name: str, checkpoint_id: int) -> bytes | CoordinatorError:
        """The encoded state of a coordinator, whose gateways are closed now."""
        return self._holders[name].checkpoint(checkpoint_id)

    def completed(self, checkpoint_id: int, names: Iterable[str]) -> None:
        """Tell these coordinators that a checkpoint is durable."""
        for name in names:
            self._holders[name].completed(checkpoint_id)

    def aborted(self, checkpoint_id: int, names: Iterable[str]) -> None:
        """Tell these coordinators that a checkpoint is given up."""
        for name in names:
            self._holders[name].aborted(checkpoint_id)

    def validate(self) -> None:
        for holder in self._holders.values():
            holder.validate()

    def fingerprint(self) -> object:
        return tuple(holder.fingerprint() for holder in self._holders.values())
