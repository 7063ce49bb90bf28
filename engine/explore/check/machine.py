"""A case carried out event by event: what a search takes copies of, and drives in whatever order it likes.

The state is one object, so that one copy takes everything along: the process that runs, the world that outlives it,
and what is remembered of the past because it decides the future. The machine itself belongs to no state: it knows
the job, makes copies and carries out events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.checkpoint.coordinator_config import CoordinatorConfig
from engine.checkpoint.plan import CheckpointGraph
from engine.explore.check.fingerprint import (
    control_parts,
    declared_state,
    digest_of,
    execution_parts,
    is_void,
    world_parts,
)
from engine.explore.check.fork import Forker
from engine.explore.runner import CheckpointTrigger, run_config
from engine.explore.subject import CHECKPOINTS_DIR, OUTPUT_DIR, World
from engine.graph.plan import ChannelPlan, EdgePlan, SubtaskPlan
from engine.runtime.async_snapshot import AsyncSnapshot
from engine.runtime.choices import ChoiceRecorder
from engine.runtime.config import RunConfig
from engine.runtime.cost import CostModel
from engine.runtime.execution import Execution
from engine.runtime.job_state import ENDED
from engine.runtime.kernel import START_NS
from engine.runtime.storage_directory import open_storage
from engine.runtime.task import Task
from state_backends.encoding import StateCodec
from state_backends.key_groups import KeyGroupRange
from state_backends.type_registry import RegisteredType

if TYPE_CHECKING:
    from engine.explore.case import Case
    from engine.explore.subject import Subject
    from engine.graph.plan import ExecutionPlan
    from engine.runtime.kernel import ScheduledEvent

_NEVER_CHANGE = (
    ChannelPlan,
    SubtaskPlan,
    EdgePlan,
    RunConfig,
    CostModel,
    RegisteredType,
    KeyGroupRange,
    StateCodec,
    CoordinatorConfig,
    CheckpointGraph,
)


@dataclass(slots=True)
class State:
    """One state of a case.

    ``declared``   task -> declared state of its operators, as far as it is known;
    ``cuts``       ``(task, attempt, checkpoint)`` -> what the snapshot of that task holds, until nothing can come of it;
    ``draws``      choices of the schedule that were made, for the number of the next one.
    """

    world: World
    execution: Execution
    declared: dict[Task, object] = field(default_factory=dict)
    cuts: dict[tuple[str, int, int], object] = field(default_factory=dict)
    draws: int = 0
    incarnation: int = 1


class Machine:
    """Carries out one case."""

    def __init__(self, subject: Subject, case: Case) -> None:
        self._subject, self._case = subject, case
        self._config = run_config(case)
        parallelism = case.config.get("parallelism")
        assert parallelism is None or isinstance(parallelism, int), parallelism
        self._parallelism = parallelism
        self._forker = Forker(_NEVER_CHANGE)

    def close(self) -> None:
        """No copy will be used any more."""
        self._forker.close()

    # -- states ---------------------------------------------------------------------------------------------------

    def start(self) -> State:
        """The state before the first event."""
        world = World()
        return State(world, self._process(world, resumes=False))

    def _process(self, world: World, *, resumes: bool) -> Execution:
        plan = self._subject.in_world(self._subject.plan(self._parallelism), world, self._case.dropped)
        self._share(plan, world)
        # Nobody else is there, so the lock need not be held; what matters is the incarnation.
        with open_storage(CHECKPOINTS_DIR, plan.job_name, file_system=world.checkpoints) as opened:
            execution = Execution(
                plan,
                self._config,
                storage=opened.storage,
                file_system=world.files,
                output_dir=OUTPUT_DIR,
                incarnation=opened.incarnation,
                restore=resumes,
                choices=ChoiceRecorder(self._case.seed),
            )
        self._schedule_checkpoints(execution)
        execution.begin()
        return execution

    def _schedule_checkpoints(self, execution: Execution) -> None:
        trigger, kernel = CheckpointTrigger(execution.manager), execution.kernel
        for at_ns in self._case.checkpoints or ():
            if START_NS + at_ns >= kernel.now_ns:
                kernel.schedule(START_NS + at_ns, "checkpoint_is_due", trigger)

    def _share(self, plan: ExecutionPlan, world: World) -> None:
        """Whatever of a plan does not refer to its world is the same for all."""
        own = [id(sink) for sink in world.sinks.values()]
        for vertex in plan.vertices:
            mine = [operator for operator in vertex.operators if id(getattr(operator.factory, "__self__", None)) in own]
            for operator in vertex.operators:
                if operator not in mine:
                    self._forker.share(operator, *getattr(operator.factory, "args", ()))
            if not mine:
                self._forker.share(vertex)

    def copy_of(self, state: State) -> bytes:
        """A copy of a state, at rest."""
        return self._forker.dump(state)

    def state_of(self, copy: bytes) -> State:
        """A state to go on from."""
        state: State = self._forker.load(copy)
        return state

    # -- events ---------------------------------------------------------------------------------------------------

    def alternatives(self, state: State) -> list[tuple[int, ScheduledEvent]]:
        """What may happen next, by position among the ready events."""
        return [] if self.is_over(state) else state.execution.kernel.alternatives()

    def execute(self, state: State, position: int, event: ScheduledEvent) -> None:
        """Carry out one event."""
        kernel, target = state.execution.kernel, event.target
        if kernel.ready_events > 1:
            state.draws += 1
        task = _task_of(target)
        if task is not None:
            state.declared.pop(task, None)
            if event.operation == "step":
                # What of the records in flight is part of it is known no later than now.
                self._remember_cuts(state, task)
        kernel.execute(position)
        if task is not None:
            self._remember_cuts(state, task)

    def _remember_cuts(self, state: State, task: Task) -> None:
        for checkpoint_id in task.checkpointing.running_ids:
            key = (task.name, task.attempt, checkpoint_id)
            in_flight = task.checkpointing.channel_state
            if key not in state.cuts:
                state.cuts[key] = (self._declared(state, task), None)
            elif in_flight.is_open(checkpoint_id):
                state.cuts[key] = (state.cuts[key][0], in_flight.fingerprint())  # type: ignore[index]

    def _declared(self, state: State, task: Task) -> object:
        known = state.declared.get(task)
        if known is None:
            known = state.declared[task] = declared_state(task)
        return known

    # -- looking ----------------------------------------------------------------------------------------------------

    @staticmethod
    def is_over(state: State) -> bool:
        """Whether the job has ended."""
        return state.execution.manager.state in ENDED

    def fingerprint(self, state: State) -> bytes:
        """Equal for states that go on alike and are judged alike."""
        manager = state.execution.manager
        for task in list(state.declared):
            if manager.tasks.get(task.task_id) is not task:
                del state.declared[task]
        pending = (*manager.coordinator.pending_ids, manager.coordinator.finalizing_id)
        for key in list(state.cuts):
            if key[2] not in pending:
                del state.cuts[key]
        declared = [self._declared(state, task) for task in manager.tasks.values() if task.state == "running"]
        return digest_of(
            execution_parts(state.execution), world_parts(state.world), declared, sorted(state.cuts.items(), key=_key)
        )

    def durable_fingerprint(self, state: State) -> bytes:
        """Of what outlives the process."""
        return digest_of(world_parts(state.world))

    def control_fingerprint(self, state: State) -> bytes:
        """Of what outlives the tasks."""
        return digest_of(world_parts(state.world), control_parts(state.execution))


def _key(item: tuple[tuple[str, int, int], object]) -> tuple[str, int, int]:
    return item[0]


def _task_of(target: Any) -> Task | None:
    if isinstance(target, Task):
        return target
    if isinstance(target, AsyncSnapshot):
        return target.task
    task = getattr(target, "task", None)
    return task if isinstance(task, Task) else None
