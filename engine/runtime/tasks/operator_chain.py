"""The operators of one task, with their contexts, outputs and event time.

Records and event time enter at the head of the chain (Flink: ``OperatorChain``). Operators open last first: records
that one emits while it opens must find the next one open. They close first to last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.events import Event, Watermark, WatermarkStatus
from engine.elements.operator import Operator, TwoInputOperator
from engine.graph.plan import OperatorPlan
from engine.observe.trace_events import TimerFired
from engine.runtime.channels import ChainOutput, RecordWriter, WatermarkValve
from engine.runtime.storage import RestoredOperator, take_over_state
from engine.runtime.tasks.environment import TaskPlace
from engine.runtime.tasks.task_context import TaskOperatorContext
from engine.runtime.tasks.tracking import TaskTracking
from engine.runtime.tasks.watched import WatchedChain
from state_backends.local import TaskLocalRecovery


class OperatorChain:
    """The operators of the task at a place. ``inputs``: how many channels it has; ``back_edges``: where records come
    back."""

    def __init__(self, place: TaskPlace, inputs: int, back_edges: Iterable[int]) -> None:
        self.plans = place.vertex.operators
        self.operators: list[Operator] = [plan.factory() for plan in self.plans]
        self.contexts: list[TaskOperatorContext] = []
        self.valve = WatermarkValve(inputs)
        for index in back_edges:
            # No watermark ever comes on this channel.
            self.valve.on_status(index, True)
        self.watched: WatchedChain | None = None
        """Reports the causes of records; absent when the run keeps no ledger."""
        self._place = place
        self._around = place.around

    # -- building ---------------------------------------------------------------------------------------------

    def connect(
        self, writers: Iterable[RecordWriter], context_of: Callable[[OperatorPlan, ChainOutput], TaskOperatorContext]
    ) -> None:
        """Connect the operators with each other and with the writers of their edges."""
        by_edge = {writer.edge: writer for writer in writers}
        plans, seen = self.plans, self.operators
        outputs = [ChainOutput() for _ in plans]
        if self._place.environment.provenance is not None:
            self.watched = watched = WatchedChain.of(self._place, seen, plans)
            outputs = [watched.output(plan.position) for plan in plans]
            seen = [watched.seen(operator, plan.position) for operator, plan in zip(seen, plans, strict=True)]
        self.contexts = [context_of(plan, outputs[plan.position]) for plan in plans]
        for plan, operator, context, output in zip(plans, self.operators, self.contexts, outputs, strict=True):
            for tag, position in plan.chained_outputs:
                output.connect_operator(tag, seen[position])
            for tag, edge in plan.edge_outputs:
                output.connect_writer(tag, by_edge[edge])
            output.seal()
            operator.setup(context, output)

    def receiver(self, edge: int, tracking: TaskTracking | None) -> Callable[[Batch], None]:
        """The receiver for the records of an edge."""
        head = self.operators[0]
        receive = head.process_batch
        if self._place.environment.target_input(edge):
            assert isinstance(head, TwoInputOperator), self.plans[0].name
            receive = head.process_batch_2
        if tracking is not None:
            return tracking.receiver(receive)
        return receive if self.watched is None else self.watched.receiver(receive)

    # -- life -------------------------------------------------------------------------------------------------

    def open(
        self, restored: Mapping[str, RestoredOperator], checkpoint_id: int | None, local: TaskLocalRecovery | None
    ) -> None:
        """Take over state and open."""
        if self.watched is not None:
            self.watched.provenance.restored(checkpoint_id)
        for context in self.contexts:
            context.restore(restored.get(context.uid), checkpoint_id, local)
        # Last first: records that an operator emits while it opens must find the next one open (Flink does the same).
        for operator in reversed(self.operators):
            with self._around("user.restore", operator):
                take_over_state(operator)
        for operator in reversed(self.operators):
            operator.open()
        for context in self.contexts:
            context.refuse_unclaimed_state()

    def finish(self) -> None:
        """The last record has come."""
        for operator in self.operators:
            if type(operator).finish is not Operator.finish:
                with self._around("operator.finish"):
                    operator.finish()

    def close(self) -> None:
        """The task has received everything, and waits for nothing more."""
        for operator in self.operators:
            with self._around("user.close"):
                operator.close()

    def close_anyhow(self) -> None:
        """The task is dead already; an error while closing must not hide the cause."""
        for operator in self.operators:
            try:
                with self._around("user.close"):
                    operator.close()
            except AssertionError:
                raise
            except Exception as error:
                self._note(f"closing {self._place.name} after a failure: {error}")

    def dispose(self) -> None:
        """Close the state; the next start sweeps the files it leaves."""
        for context in self.contexts:
            try:
                context.close()
            except OSError as error:
                self._note(f"local state of {self._place.name} could not be deleted: {error}")

    def perish(self) -> None:
        """The process of the task is gone. Release what a dead process does not hold, open files above all."""
        for operator in self.operators:
            try:
                operator.abandon()
            except OSError as error:
                self._note(f"{self._place.name} died with a file that cannot be closed: {error}")
        for context in self.contexts:
            context.perish()

    def _note(self, text: str) -> None:
        self._place.environment.master.note(text)

    def materialize(self, position: int) -> None:
        """The keyed state of the operator at ``position`` is due to be materialised (mail)."""
        self.contexts[position].materialize()

    def timer_fires(self, position: int, time_ns: int) -> None:
        """A timer that the operator at ``position`` has asked for is due."""
        place = self._place
        if place.environment.instrument is not None:
            name = self.plans[position].name
            place.environment.instrument(TimerFired(place.kernel.now_ns, place.attempt, place.name, name, time_ns))
        self.operators[position].on_processing_time_ns(time_ns)

    # -- event time ---------------------------------------------------------------------------------------------

    def take_time(self, index: int, event: Event) -> None:
        """Event time of the input at ``index`` advances, or no longer counts."""
        if isinstance(event, Watermark):
            self._take_watermark(index, event.timestamp_ms)
            return
        assert isinstance(event, WatermarkStatus), event
        watermark, status = self.valve.on_status(index, event.idle)
        if watermark is not None:
            self.operators[0].process_watermark(watermark)
        if status is not None:
            self.operators[0].process_watermark_status(status)

    def _take_watermark(self, index: int, timestamp_ms: int) -> None:
        if timestamp_ms == MAX_TIMESTAMP_MS:
            # A stream that ends while it is idle still ends: the watermark of an idle channel would be ignored, and
            # the last windows would never fire.
            _, status = self.valve.on_status(index, False)
            if status is not None:
                self.operators[0].process_watermark_status(status)
        advanced = self.valve.on_watermark(index, timestamp_ms)
        if advanced is not None:
            self.operators[0].process_watermark(advanced)

    @property
    def has_union_state(self) -> bool:
        """Whether an operator keeps a union list."""
        backends = (context.operator for context in self.contexts)
        return any(backend is not None and backend.has_union_state for backend in backends)

    def fingerprint(self, *, is_running: bool) -> object:
        """A task that has died while it took over its state, say, has none yet."""
        return (
            self.valve.fingerprint(),
            tuple(operator.fingerprint() for operator in self.operators) if is_running else None,
            tuple(context.fingerprint() for context in self.contexts),
        )
