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
from engine.runtime.channels import ChainOutput, RecordWriter, WatermarkValve
from engine.runtime.storage import RestoredOperator, take_over_state
from engine.runtime.tasks.environment import TaskPlace
from engine.runtime.tasks.task_context import TaskOperatorContext
from engine.runtime.tasks.watched import WatchedChain
from state_backends.local import TaskLocalRecovery


class OperatorChain:
    """The operators of the task at a place. ``inputs``: how many channels bring event time."""

    def __init__(self, place: TaskPlace, inputs: int) -> None:
        self.plans = place.vertex.operators
        self.operators = [plan.factory() for plan in self.plans]
        self.contexts: list[TaskOperatorContext] = []
        self.valve = WatermarkValve(inputs)
        self.watched: WatchedChain | None = None
        """Reports the causes of records; absent when the run keeps no ledger."""
        self._place = place
        self._around = place.around

    # -- building ---------------------------------------------------------------------------------------------

    def connect(
        self,
        writers: Iterable[RecordWriter],
        context_of: Callable[[OperatorPlan, ChainOutput], TaskOperatorContext],
        watched: WatchedChain | None,
    ) -> None:
        """Connect the operators with each other and with the writers of their edges."""
        self.watched = watched
        by_edge = {writer.edge: writer for writer in writers}
        plans, seen = self.plans, self.operators
        outputs = [ChainOutput() for _ in plans]
        if watched is not None:
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

    def receiver(self, target_input: int) -> Callable[[Batch], None]:
        """The receiver for the records of an input of the head, 0 or 1."""
        head = self.operators[0]
        if target_input == 0:
            return head.process_batch
        assert isinstance(head, TwoInputOperator), self.plans[0].name
        return head.process_batch_2

    # -- life -------------------------------------------------------------------------------------------------

    def open(
        self, restored: Mapping[str, RestoredOperator], checkpoint_id: int | None, local: TaskLocalRecovery | None
    ) -> None:
        """Take over state and open."""
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
