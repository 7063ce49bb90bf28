"""The parts of a run that keeps a ledger of causes (:mod:`engine.observe.provenance`).

Each class here takes the place of a part of a task when it is built: receivers that report whose records come, outputs
that report which operator emits, routers that put the cause on records sent. A run without provenance has none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.partitioner import Routed, Router
from engine.graph.plan import OperatorPlan
from engine.observe.provenance import (
    AT_ONCE,
    COMMITS,
    KEYED,
    PLAIN,
    SINK,
    SOURCE,
    STATE,
    Cause,
    OperatorFacts,
    TaskFacts,
    TaskProvenance,
)
from engine.runtime.channels import ChainOutput, Channel, TracedBatch
from engine.runtime.tasks.environment import TaskPlace
from operators.sources import SourceOperator

if TYPE_CHECKING:
    from engine.runtime.tasks.operator_chain import OperatorChain


class WatchedRouter:
    """Puts the cause on every record sent."""

    __slots__ = ("_router", "_sender")

    def __init__(self, router: Router, sender: OperatorChain) -> None:
        self._router = router
        self._sender = sender

    def route(self, batch: Batch) -> Routed:
        """See :class:`engine.graph.partitioner.Router`."""
        assert self._sender.watched is not None
        cause = self._sender.watched.provenance.cause
        return [
            (channel, TracedBatch(part.values, part.timestamps, part.keys, [cause] * part.size))
            for channel, part in self._router.route(batch)
        ]

    def fingerprint(self) -> object:
        return self._router.fingerprint()


class _Reached(Operator):
    """Stands before an operator that has state or is a sink, and reports the records that reach it."""

    def __init__(self, operator: Operator, uid: str, task: TaskProvenance) -> None:
        self._operator = operator
        self._uid = uid
        self._task = task

    def process_batch(self, batch: Batch) -> None:
        values = _counted(self._operator, batch.values)
        if len(values):
            self._task.reaches(self._uid, values)
        self._operator.process_batch(batch)

    def process_watermark(self, timestamp_ms: int) -> None:
        self._operator.process_watermark(timestamp_ms)

    def process_watermark_status(self, idle: bool) -> None:
        self._operator.process_watermark_status(idle)


class WatchedOutput(ChainOutput):
    """The output of one operator; it reports that this operator emits."""

    __slots__ = ("_facts", "_send", "_task")

    def __init__(self, task: TaskProvenance, facts: OperatorFacts) -> None:
        super().__init__()
        self._task = task
        self._facts = facts

    def seal(self) -> None:
        """Bind ``emit``."""
        super().seal()
        self._send = self.emit
        self.emit = self._emit

    def _emit(self, batch: Batch) -> None:
        if batch.size:
            on_its_own = self._task.emits(self._facts.uid)
            self._send(batch)
            if on_its_own:
                self._task.emitted()

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Records of side output ``tag``."""
        if len(batch):
            on_its_own = self._task.emits(self._facts.uid)
            super().emit_side(tag, batch)
            if on_its_own:
                self._task.emitted()


def _counted(operator: Operator, values: Sequence[Any]) -> Sequence[Any]:
    """The values that are effects on an operator."""
    return values if operator.summaries_of is None else operator.summaries_of(values)


def _receive(
    process: Callable[[Batch], None], head: Operator | None, uid: str, task: TaskProvenance, batch: Batch
) -> None:
    """Take records of an input channel, one cause at a time. ``head``: the operator that they are effects on."""
    assert isinstance(batch, TracedBatch), f"records without causes: {batch!r}"
    for cause, part in batch.by_cause():
        task.handles(cause, part.keys, part.size)
        values = () if head is None else _counted(head, part.values)
        if len(values):
            task.reaches(uid, values)
        process(part)
        task.handled()


class WatchedChain:
    """The operators of one task, as the ledger of causes sees them."""

    def __init__(self, place: TaskPlace, provenance: TaskProvenance, facts: TaskFacts, head: Operator) -> None:
        self._environment = place.environment
        self.provenance = provenance
        """Takes the task's reports."""
        self._facts = facts.operators
        self._head = head

    @classmethod
    def of(cls, place: TaskPlace, operators: Sequence[Operator], plans: Sequence[OperatorPlan]) -> WatchedChain:
        """The chain of ``operators``, none of which is set up yet."""
        environment = place.environment
        assert environment.provenance is not None
        facts = TaskFacts(
            place.name,
            place.vertex.name,
            place.plan.subtask,
            place.vertex.parallelism,
            place.vertex.max_parallelism,
            place.attempt,
            environment.incarnation,
            tuple(map(_facts, operators, plans)),
        )
        chain = cls(place, environment.provenance.task(facts, place.kernel.clock_ns), facts, operators[0])
        for operator, one in zip(operators, facts.operators, strict=True):
            operator.lineage = chain.provenance.lineage(one.uid)
            if isinstance(operator, SourceOperator):
                operator.on_read = partial(chain.provenance.read, one.uid)
        return chain

    def output(self, position: int) -> ChainOutput:
        """The output of the operator at ``position``."""
        return WatchedOutput(self.provenance, self._facts[position])

    def seen(self, operator: Operator, position: int) -> Operator:
        """The wrapper around a chained operator, or the operator itself."""
        facts = self._facts[position]
        return _Reached(operator, facts.uid, self.provenance) if facts.role in (SINK, STATE) else operator

    def stored(
        self, checkpoint_id: int, side: str, channels: Iterable[Channel], batches: Mapping[int, Sequence[Batch]]
    ) -> None:
        """Records in flight, by index of their channel, are written into a checkpoint."""
        for channel in channels:
            causes: list[Cause] = []
            for batch in batches.get(channel.index, ()):
                assert isinstance(batch, TracedBatch), f"records without causes: {batch!r}"
                causes += batch.causes
            if causes:
                name = self._environment.channel_name(channel.plan)
                self.provenance.stored(checkpoint_id, side, name.edge, name.sender, name.receiver, causes)

    def receiver(self, process: Callable[[Batch], None]) -> Callable[[Batch], None]:
        """The receiver before the head of the chain."""
        facts = self._facts[0]
        head = self._head if facts.role in (SINK, STATE) else None
        return partial(_receive, process, head, facts.uid, self.provenance)


def _facts(operator: Operator, plan: OperatorPlan) -> OperatorFacts:
    role, exposes = PLAIN, AT_ONCE
    is_last = not plan.chained_outputs and not plan.edge_outputs
    if isinstance(operator, SourceOperator):
        role = SOURCE
    elif is_last:
        # A sink that keeps its count, say, in the state commits nothing; it goes back with the checkpoint.
        kind = type(operator)
        role = SINK
        if kind.notify_checkpoint_complete is not Operator.notify_checkpoint_complete:
            exposes = COMMITS
        elif kind.snapshot_state is not Operator.snapshot_state:
            role = STATE
    elif plan.keyed:
        role = KEYED
    elif type(operator).snapshot_state is not Operator.snapshot_state:
        role = STATE
    return OperatorFacts(plan.uid, plan.name, role, exposes, plan.key_type, is_last, operator.summaries_of is not None)
