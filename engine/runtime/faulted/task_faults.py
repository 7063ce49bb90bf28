"""The effects of faults on one task: it names the point it is at and may die there, falls silent, has a wrong clock, is
slow, or gets its watermarks late.

Rules.

* A point is visited before and after its step. A task struck down there is dead at that very instruction: nothing of it
  is closed, deleted or said, as when its process is killed.
* A paused task does nothing from the end of the present step on: events for it are held, in their order. A step has no
  duration, so a step that has begun is completed, except notifications and acknowledgements: these stop midway.
* A task that the job manager has given up on is a *zombie* when it goes on. Its mail is gone, but it still
  does its next step. Then it learns that it was given up, and ends (Flink: a task manager whose heartbeat timed out).
* A task that was told to wait asks again after that time, so the answering side needs to know only the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.events import Event, Watermark
from engine.elements.operator import Operator
from engine.graph.plan import SubtaskPlan, VertexPlan
from engine.observe.points import AFTER, BEFORE
from engine.runtime.faulted.interference import ZOMBIE, Interference, StruckDown, Visit, Weights
from engine.runtime.job import TaskKilledError
from engine.runtime.kernel import PROCESS, WORKER, Kernel, Rest
from engine.runtime.tasks import CREATED, OperatorChain, TaskLife

if TYPE_CHECKING:
    from engine.runtime.faulted.deaths import Deaths

_OF_EACH_OPERATOR = {
    "user.restore": ("restore.recover-and-commit", "user.restore"),
    "sink.commit": ("user.notify",),
    "sink.abort": ("user.notify",),
}
_OF_A_SINK = {
    "user.snapshot": ("sink.pre-commit", "user.snapshot"),
    "sink.commit": ("sink.commit", "user.commit"),
    "sink.abort": ("sink.abort", "user.notify"),
}


class DisturbedTask(Protocol):
    """A task, as faults see it. It is the target of its events, and of those that were held."""

    life: TaskLife
    chain: OperatorChain

    def carry_out(self, mail: Rest) -> None:
        """Carry out a message, now."""

    def drop_mail(self) -> None:
        """Mail that has come is not read any more."""

    def work_stood_still(self, for_ns: int) -> int:
        """No work was done for a while. Returns when the interrupted slice ends."""


class TaskPause:
    """A while in which a task does nothing. ``held``: the events that came meanwhile, as ``(target, operation,
    payload)``."""

    __slots__ = ("began_ns", "held", "until_ns")

    def __init__(self, began_ns: int, until_ns: int) -> None:
        self.began_ns, self.until_ns = began_ns, until_ns
        self.held: list[tuple[Any, str, Any]] = []

    def hold(self, target: Any, operation: str, payload: Any) -> None:
        """Keep an event for later."""
        self.held.append((target, operation, payload))

    def fingerprint(self, now_ns: int) -> object:
        """When it ends, and the events held."""
        return (self.until_ns - now_ns, tuple((operation, str(payload)) for _, operation, payload in self.held))


class TaskFaults:
    """Implements :class:`engine.runtime.kernel.hook.TaskHook` for one task."""

    def __init__(
        self,
        plan: SubtaskPlan,
        vertex: VertexPlan,
        task: DisturbedTask,
        kernel: Kernel,
        interference: Interference,
        deaths: Deaths,
        tracks_records: bool,
    ) -> None:
        self.task = task
        self.task_id = (plan.vertex, plan.subtask)
        self.name = plan.name
        self.names = (plan.name, f"{WORKER}[{plan.subtask}]", *vertex.names_of(plan.subtask))
        """All names that faults may mean it by."""
        self.pause: TaskPause | None = None
        """The present pause, with the events that came meanwhile."""
        self.disturbs_time = interference.disturbs_time
        self._kernel = kernel
        self._interference = interference
        self._deaths = deaths
        self._is_reached = False
        """Whether a zombie has learned that it is one."""
        self._outlives_nothing = tracks_records
        """Whether its successor takes over its channels at once, so that there are no zombies."""
        self._kept_back: list[tuple[int, Event]] = []
        """Elements kept from the task for a while: input channel and element."""
        self._steps: dict[str | tuple[str | None, int] | None, Step] = {}
        """By point, and position of the operator if it is one's: a step keeps nothing, so the task has one of each."""
        self._is_source = vertex.is_source
        self._is_sink = [not (one.chained_outputs or one.edge_outputs) for one in vertex.operators]

    # -- points ---------------------------------------------------------------------------------------------------

    def visit(self, point: str, phase: str) -> None:
        """The task, or the zombie that it is, has come to a named point."""
        self._interference.at(point, phase, f"{ZOMBIE}{self.name}" if self.task.life.disowned else self.name)

    def around(
        self, point: str | None, operator: Operator | None = None, rest: Rest | None = None
    ) -> AbstractContextManager[bool]:
        place = point if operator is None else (point, self.task.chain.operators.index(operator))
        step = self._steps.get(place)
        if step is None:
            points = self._points(point, operator)
            step = self._steps[place] = Step(self._interference, points, self.name, self.task.life)
        return step if rest is None else _StepWithRest(self, step, rest)

    def _points(self, point: str | None, operator: Operator | None) -> tuple[str, ...]:
        if point is None:
            return ()
        if operator is None:
            return (point,)
        if point == "user.snapshot" and self._is_source and operator is self.task.chain.operators[0]:
            return ("source.offset-capture", point)
        if point in _OF_A_SINK and self._sinks(operator):
            return _OF_A_SINK[point]
        return _OF_EACH_OPERATOR.get(point, (point,))

    def _sinks(self, operator: Operator) -> bool:
        operators = self.task.chain.operators
        return any(is_sink and operator is one for is_sink, one in zip(self._is_sink, operators, strict=True))

    def within_process(self, receive: Callable[[Batch], None]) -> Callable[[Batch], None]:
        return partial(_receive, self.around("user.process"), receive)

    # -- death ----------------------------------------------------------------------------------------------------

    @contextmanager
    def alone(self, *, is_dead: bool = False) -> Iterator[None]:
        try:
            yield
        except StruckDown as struck:
            if struck.target == PROCESS:
                raise
            struck.is_over = True
            if is_dead:
                self.task.life.perish()
            else:
                self.die(struck.cause)
            if struck.target != self.name:
                self._deaths.condemn(struck.target, struck.cause)

    def in_deployment(self, point: str, step: Callable[[], None]) -> None:
        """See the hook. The other tasks are deployed nevertheless: each is in a process of its own."""
        self._visit_created(point, BEFORE)
        step()
        self._visit_created(point, AFTER)

    def _visit_created(self, point: str, phase: str) -> None:
        if self.task.life.state == CREATED:
            with self.alone():
                self.visit(point, phase)

    def die(self, cause: str) -> None:
        """The process of the task is gone. Its open files are not closed, the files it has left are not deleted; the
        job manager hears of it, because the connection is gone."""
        if self.task.life.is_alive:
            self.pause = None
            self.task.life.fail(TaskKilledError(f"{self.name} was {cause}"), with_process=True)

    # -- pauses ---------------------------------------------------------------------------------------------------

    def may(self, operation: str, payload: object = None, target: object = None) -> bool:
        """See the hook. A paused task does nothing; one that cannot be reached is not cancelled."""
        if operation == "cancel":
            return self._may_cancel()
        if self.pause is not None:
            self.pause.hold(self.task if target is None else target, operation, payload)
            return False
        return True

    def _may_cancel(self) -> bool:
        if self.task.life.disowned and not self._is_reached and not self._outlives_nothing:
            return False
        self.pause = None
        return True

    def begin_pause(self, for_ns: int) -> None:
        """Do nothing for a while. Nothing happens when the task is paused, or has ended."""
        life = self.task.life
        if not life.is_alive or self.pause is not None or life.disowned:
            return
        now = self._kernel.now_ns
        self.pause = pause = TaskPause(now, now + for_ns)
        life.trace_state("paused")
        self._kernel.schedule(now + for_ns, "happens", self.task, ("end_pause", pause))
        self._deaths.task_paused(self, pause)

    def happens(self, event: tuple[str, Any]) -> None:
        """See the hook: the end of a pause, of a zombie's last step, or the rest of a step that was put off."""
        operation, payload = event
        if operation == "end_pause":
            self._end_pause(payload)
        elif operation == "end_zombie":
            self._is_reached = True
            self.task.life.cancel()
        elif self.pause is not None:
            self.pause.hold(self.task, "happens", event)
        else:
            # It does not wait for the record in service: it belongs to a step that began before that.
            self.task.carry_out(payload)

    def _end_pause(self, pause: TaskPause) -> None:
        """Go on with the held events. A zombie has no mail."""
        if self.pause is not pause:
            return
        self.pause = None
        task, kernel = self.task, self._kernel
        task.life.trace_state("resumed")
        now = kernel.now_ns
        ends_ns = task.work_stood_still(now - pause.began_ns)
        for target, operation, payload in pause.held:
            if not (task.life.disowned and operation in ("receive_mail", "read_mail")):
                kernel.schedule(now, operation, target, payload)
        if task.life.disowned:
            task.drop_mail()
            kernel.schedule(max(now, ends_ns), "happens", task, ("end_zombie", None))

    def put_off(self, rest: Rest) -> None:
        """Do the rest of the present step once the pause is over."""
        assert self.pause is not None, self.name
        self.pause.hold(self.task, "happens", ("go_on", rest))

    # -- time -----------------------------------------------------------------------------------------------------

    def clock_ns(self) -> int:
        return self._kernel.now_ns + self._interference.clock_skew_ns(self.name)

    def clock_ms(self) -> int:
        return self.clock_ns() // 1_000_000

    def hold_ns(self) -> int:
        return self._interference.hold_ns(self.name, self._is_source)

    def take_time(self, index: int, event: Event) -> None:
        """See the hook. Events after one that is kept back are kept back, too."""
        if not self._kept_back:
            delay_ns = self._interference.watermark_delay_ns(self.name)
            if not delay_ns:
                self.task.chain.take_time(index, event)
                return
            due_ns = self._kernel.now_ns + delay_ns
            self._kernel.schedule(due_ns, "receive_mail", self.task, ("release_watermarks", ()))
        self._kept_back.append((index, event))
        if event == Watermark(MAX_TIMESTAMP_MS):
            # The end of data follows: the effects of the watermarks must come before it.
            self.release_watermarks()

    def release_watermarks(self) -> None:
        """Release the watermarks that were kept from the task (mail)."""
        kept_back, self._kept_back = self._kept_back, []
        for index, event in kept_back:
            self.task.chain.take_time(index, event)

    def fingerprint(self) -> object:
        pause = None if self.pause is None else self.pause.fingerprint(self._kernel.now_ns)
        return (tuple(self._kept_back), self.task.life.disowned, pause)


def _receive(step: AbstractContextManager[bool], receive: Callable[[Batch], None], batch: Batch) -> None:
    with step:
        receive(batch)


class MayBeDisowned(Protocol):
    """The life of a task."""

    disowned: bool


class _NoTask:
    disowned = False


_IS_NO_TASK = _NoTask()


@lru_cache(4096)  # The cases of a search have the same few actors, and mostly the same weights.
def _visits(
    points: tuple[str, ...], actor: str, weights: Weights
) -> tuple[int, tuple[Visit, ...], tuple[Visit, ...]]:
    """The opportunities that an actor has at its points, and its visits there: before a step, and after it."""
    return (
        sum(weights.by_point.get(point, 1) for point in points),
        tuple((point, BEFORE, actor) for point in points),
        tuple((point, AFTER, actor) for point in reversed(points)),
    )


class Step:
    """A step of an actor that visits points. ``life``: that of the actor, if it may be a zombie."""

    __slots__ = ("_after", "_before", "_interference", "_life", "_visited", "_weight")

    def __init__(
        self, interference: Interference, points: tuple[str, ...], actor: str, life: MayBeDisowned | None = None
    ) -> None:
        self._interference, self._visited, self._life = interference, interference.visited, life or _IS_NO_TASK
        self._weight, self._before, self._after = _visits(points, actor, self._visited.weights)

    def __enter__(self) -> bool:
        # Written out here and below: `NotedVisits.passes`. Nothing about faults is asked as often.
        visited, weight = self._visited, self._weight
        if weight <= visited.calm and not self._life.disowned:
            visited.calm -= weight
            visited.passed += self._before
        else:
            self._come_by(self._before)
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            visited, weight = self._visited, self._weight
            if weight <= visited.calm and not self._life.disowned:
                visited.calm -= weight
                visited.passed += self._after
            else:
                self._come_by(self._after)

    def _come_by(self, visits: Iterable[Visit]) -> None:
        zombie = ZOMBIE if self._life.disowned else ""
        for point, phase, actor in visits:
            self._interference.at(point, phase, zombie + actor)


class _StepWithRest:
    """One step of a task, which may be put off."""

    __slots__ = ("_faults", "_is_put_off", "_rest", "_step")

    def __init__(self, faults: TaskFaults, step: Step, rest: Rest) -> None:
        self._faults, self._step, self._rest = faults, step, rest
        self._is_put_off = False

    def __enter__(self) -> bool:
        self._step.__enter__()
        if self._faults.pause is not None:
            self._faults.put_off(self._rest)
            self._is_put_off = True
        return not self._is_put_off

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_put_off:
            self._step.__exit__(kind, error, traceback)
