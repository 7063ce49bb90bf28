"""A case carried out event by event. A search copies its states and drives it in any order.

The state is one object, so that one copy takes everything along: the running process, the world that outlives it, and
the parts of the past that decide the future. The machine itself belongs to no state: it knows the job, makes copies and
carries out events.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.checkpoint.barriers import AlignmentMetrics
from engine.checkpoint.coordinator import (
    CheckpointGraph,
    CoordinatorConfig,
    RestoreRow,
    SubtaskCheckpointMetrics,
    SubtaskRow,
    TriggerRequest,
)
from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.events import CheckpointBarrier, CheckpointOptions, Watermark
from engine.explore.cases import Case
from engine.explore.check.fingerprint import (
    WorldDigest,
    declared_state,
    digest_of,
    execution_parts,
    output_parts,
    task_of,
    undisturbed_parts,
    world_parts,
)
from engine.explore.check.fork import Forker
from engine.explore.check.watcher import Strike, StrikeWatcher
from engine.explore.run import CheckpointTrigger, Jobs, Subject, World
from engine.faults.fault import Fault
from engine.graph.plan import ChannelPlan, EdgePlan, ExecutionPlan, SubtaskPlan
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.faulted import ProcessDiedError, StruckDown
from engine.runtime.job import ENDED, RUNNING, STOPPED, Restore
from engine.runtime.kernel import START_NS, ChoiceRecorder, ScheduledEvent
from engine.runtime.storage import TaskSnapshot
from engine.runtime.tasks import Task
from operators.log.port import Exchange, Producer, Request
from state_backends.base import KeyGroupRange, KeyType
from state_backends.codec import RegisteredType, StateCodec
from state_backends.snapshots import (
    ChannelName,
    OperatorStateHandle,
    SnapshotOptions,
    StateId,
    StateOffsets,
    SubtaskSnapshot,
)

_NEVER_CHANGE = (
    Case,
    ChannelPlan,
    SubtaskPlan,
    EdgePlan,
    SubtaskRow,
    SubtaskSnapshot,
    TaskSnapshot,
    RunConfig,
    CostModel,
    RegisteredType,
    KeyGroupRange,
    StateCodec,
    CoordinatorConfig,
    CheckpointGraph,
)
_VALUES = (
    AlignmentMetrics,
    CheckpointBarrier,
    CheckpointOptions,
    ChannelName,
    Exchange,
    Fault,
    FixedDelayRestart,
    KeyType,
    OperatorStateHandle,
    Producer,
    Request,
    Restore,
    RestoreRow,
    SnapshotOptions,
    StateId,
    StateOffsets,
    SubtaskCheckpointMetrics,
    TriggerRequest,
    Watermark,
)
"""Types with small objects, many of which are equal."""


@dataclass(slots=True)
class CaseState:
    """One state of a case.

    ``declared``   task -> declared state of its operators, as far as it is known;
    ``cuts``       ``(task, attempt, checkpoint)`` -> content of that task's snapshot, as long as the snapshot may still
                   be used;
    """

    world: World
    watcher: StrikeWatcher
    jobs: Jobs
    execution: Execution
    declared: dict[Task, object] = field(default_factory=dict)
    cuts: dict[tuple[str, int, int], tuple[object, object]] = field(default_factory=dict)
    processes: int = 1

    @property
    def faults(self) -> int:
        return self.watcher.struck

    @property
    def is_over(self) -> bool:
        manager = self.execution.manager
        return manager.is_over or manager.job.state in ENDED


class Machine:
    """Carries out one case."""

    def __init__(self, subject: Subject, case: Case, faults: int = 0) -> None:
        """``faults``: how many may strike."""
        self._subject, self._case, self._faults = subject, case, faults
        first = Jobs(case)
        self.config, self.parallelism = first.config, first.parallelism
        self._forker = Forker(_NEVER_CHANGE, _VALUES)

    def close(self) -> None:
        self._forker.close()

    # -- states ---------------------------------------------------------------------------------------------------

    def start(self, *, counts: bool = False) -> CaseState:
        """The state before the first event. ``counts``: whether faults are noted in the form used in a case."""
        world, watcher = World(), StrikeWatcher(counts=counts)
        watcher.begin(())
        if self._faults:
            watcher.world_digest = WorldDigest(world)
        jobs = Jobs(self._case)
        return CaseState(world, watcher, jobs, self._process(world, watcher, jobs))

    def _process(self, world: World, watcher: StrikeWatcher, jobs: Jobs, *, behind: int = 0) -> Execution:
        """``behind``: the incarnation of the previous job, if this process is the first one of another job."""
        plan = self._subject.in_world(self._subject.plan(jobs.parallelism), world, self._case.dropped)
        self._share(plan, world)
        checkpoints = watcher.wrap(world.checkpoints)
        # No other process exists, so the lock need not be held; only the incarnation matters.
        with jobs.process(
            plan, checkpoints, world.files, behind, ChoiceRecorder(self._case.seed), watcher
        ) as execution:
            pass
        trigger = CheckpointTrigger(execution.manager)
        for at_ns in self._case.checkpoints or ():
            execution.appoint(START_NS + at_ns, "checkpoint_is_due", trigger)
        jobs.attend(execution)
        watcher.install(execution)
        execution.begin()
        return execution

    def _resume(self, state: CaseState) -> None:
        """The process of a state has died, or has ended with a savepoint. The next process resumes from the files, as
        the same job or another one."""
        state.declared.clear()
        state.cuts.clear()
        while True:
            state.processes += 1
            ended, jobs = state.execution.manager, state.jobs
            behind = ended.deployment.environment.incarnation if jobs.goes_on(state.world.checkpoints) else 0
            try:
                state.execution = self._process(state.world, state.watcher, jobs, behind=behind)
                return
            except ProcessDiedError:
                continue

    def _share(self, plan: ExecutionPlan, world: World) -> None:
        """Share all parts of a plan that do not refer to its world."""
        own = [id(sink) for sink in world.sinks.values()]
        for vertex in plan.vertices:
            mine = [operator for operator in vertex.operators if id(getattr(operator.factory, "__self__", None)) in own]
            for operator in vertex.operators:
                if operator not in mine:
                    self._forker.share(operator, *getattr(operator.factory, "args", ()))
            if not mine:
                self._forker.share(vertex)

    def copy_of(self, state: CaseState) -> bytes:
        """A copy of a state, at rest."""
        state.watcher.begin(())
        return self._forker.dump(state)

    def state_of(self, copy: bytes) -> CaseState:
        """A state to continue from."""
        state: CaseState = self._forker.load(copy)
        return state

    # -- events ---------------------------------------------------------------------------------------------------

    def alternatives(self, state: CaseState) -> list[tuple[int, ScheduledEvent]]:
        """The events that may happen next, by position among the ready events."""
        return [] if state.is_over else state.execution.kernel.alternatives()

    def execute(self, state: CaseState, position: int, strikes: tuple[Strike, ...] = ()) -> object:
        """Carry out the event at a position among the ready ones, with the faults that strike during it, and return its
        target. The occasions that it passed are in ``state.watcher.passed`` afterwards."""
        execution = state.execution
        event = execution.kernel.event_at(position)
        task = task_of(event.target)
        if task is not None:
            state.declared.pop(task, None)
            if event.operation == "step":
                # By now it is known which records in flight belong to the snapshot.
                self._remember_cuts(state, task)
        state.watcher.begin(strikes)
        try:
            try:
                execution.kernel.execute(position)
            except StruckDown as struck:
                execution.deaths.settle(struck)
            else:
                if execution.deaths.condemned:
                    execution.deaths.settle()
        except ProcessDiedError:
            self._resume(state)
            return event.target
        if execution.manager.job.state == STOPPED:
            self._resume(state)
        elif task is not None and task.life.is_running:
            self._remember_cuts(state, task)
        return event.target

    def _remember_cuts(self, state: CaseState, task: Task) -> None:
        for checkpoint_id in task.checkpointing.running_ids:
            key = (task.name, task.life.attempt, checkpoint_id)
            known = state.cuts.get(key)
            in_flight = task.checkpointing.channel_state
            if known is None:
                state.cuts[key] = (self._declared(state, task), None)
            elif checkpoint_id in in_flight.collecting:
                state.cuts[key] = (known[0], in_flight.fingerprint())

    def _declared(self, state: CaseState, task: Task) -> object:
        known = state.declared.get(task)
        if known is None:
            known = state.declared[task] = declared_state(task)
        return known

    # -- looking ----------------------------------------------------------------------------------------------------

    def fingerprint(self, state: CaseState) -> bytes:
        """Equal for states with the same future and the same verdict."""
        if state.is_over:
            return self.ending_fingerprint(state)
        manager = state.execution.manager
        for task in list(state.declared):
            if manager.tasks.get(task.life.task_id) is not task:
                del state.declared[task]
        pending = (*manager.coordinator.pending.ids, manager.coordinator.pending.finalizing_id)
        for key in list(state.cuts):
            if key[2] not in pending:
                del state.cuts[key]
        declared = [self._declared(state, task) for task in manager.tasks.values() if task.life.is_running]
        cuts = sorted(state.cuts.items(), key=lambda item: item[0])
        if state.faults >= self._faults and self._is_settled(state):
            # A job that fails by itself meets the same failure from any checkpoint, and so reaches this state again.
            now = undisturbed_parts(state.execution)
            return digest_of("last", now, output_parts(state.world), declared, state.jobs.fingerprint())
        now = execution_parts(state.execution)
        return digest_of(now, world_parts(state.world), declared, cuts, state.faults, state.jobs.fingerprint())

    @staticmethod
    def _is_settled(state: CaseState) -> bool:
        """Whether no process or task will start from a checkpoint or savepoint, unless another fault strikes or the job
        fails by itself. Until then it makes a difference which one that is. ``jobs.fingerprint()`` is empty for a job
        without savepoints."""
        manager = state.execution.manager
        if manager.job.state != RUNNING or state.watcher.has_lost_messages or state.jobs.fingerprint() is not None:
            return False
        return all(task.life.is_running or task.life.state == "finished" for task in manager.tasks.values())

    def ending_fingerprint(self, state: CaseState) -> bytes:
        """Of the job's end, as far as readers can see it."""
        committed = sorted((where, sorted(rows)) for where, rows in state.world.committed().items())
        in_vain = state.jobs.has_stopped_in_vain
        return digest_of("over", state.execution.manager.job.state, committed, state.faults, in_vain)

    def may_strike(self, state: CaseState) -> bool:
        """Whether a further fault may strike; if not, a digest of the world that it would find is not needed."""
        allowed = state.faults < self._faults
        if not allowed:
            state.watcher.world_digest = None
        return allowed
