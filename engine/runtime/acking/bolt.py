"""Tracks what one task handles and sends: it acknowledges each tuple, and anchors to it the tuples made from it.

(Storm: a bolt.) The channels of a task that dies are cut: the records on them are lost.

A function of the task may claim the tuple in hand, and say later that it has handled it. A tuple is acknowledged when
the task is through with it and every claim is released: its children until then are in one message with its own edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.elements.batch import Batch
from engine.graph.partitioner import Routed, Router
from engine.protocols.acking.anchoring import (
    AckerMessage,
    AnchoredTuple,
    IdStream,
    acks_of,
    child_of,
    fails_of,
    resets_of,
)
from engine.runtime.acking.acked_channel import AckedChannel
from engine.runtime.channels import Channel, TracedBatch
from engine.runtime.tasks import TaskPlace

if TYPE_CHECKING:
    from engine.runtime.acking.acking_run import AckingRun


class Bolt:
    """Implements :class:`engine.runtime.tasks.tracking.TaskTracking`, and
    :class:`engine.elements.record_tracking.RecordTracking` for the functions of the task."""

    def __init__(self, run: AckingRun, place: TaskPlace) -> None:
        environment = place.environment
        self.run = run
        self.new_id = IdStream(f"{run.seed}/{environment.incarnation}/{environment.attempt}/{place.name}")
        self.current: tuple[AnchoredTuple, ...] = ()
        """The tuples being handled, tracked ones only: everything emitted meanwhile is anchored to them."""
        self._name = place.name
        self._latency_ns = environment.cost.latency_ns(place.vertex.names_of(place.plan.subtask))

    def say(self, message: AckerMessage) -> None:
        """Tell the acker of a root."""
        self.run.send(self._name, self._latency_ns, message)

    def receiver(self, process: Callable[[Batch], None]) -> Callable[[Batch], None]:
        return partial(self._receive, process)

    def _receive(self, process: Callable[[Batch], None], batch: Batch) -> None:
        """Take records of an input channel, one tuple at a time."""
        assert isinstance(batch, TracedBatch), f"records without tuples: {batch!r}"
        for one, part in batch.by_cause():
            self.current = (one,) if one.edges else ()
            claim = self.claim()
            process(part)
            self.current = ()
            self.acknowledge(claim)

    # -- for functions --------------------------------------------------------------------------------------------

    def claim(self) -> tuple[AnchoredTuple, ...]:
        for one in self.current:
            one.claims += 1
        return self.current

    def acknowledge(self, claim: Iterable[AnchoredTuple]) -> None:
        for one in claim:
            one.claims -= 1
            # Not before the last claim is released: a function may still emit records anchored to it.
            if not one.claims and not one.failed:
                for message in acks_of(one):
                    self.say(message)

    def fail(self, claim: Iterable[AnchoredTuple]) -> None:
        for one in claim:
            one.claims -= 1
            if not one.failed:
                one.failed = True
                for message in fails_of(one):
                    self.say(message)

    def restart_timeout(self, claim: Iterable[AnchoredTuple]) -> None:
        for one in claim:
            for message in resets_of(one):
                self.say(message)

    def emit_for(self, claims: Sequence[Sequence[AnchoredTuple]], emit: Callable[[], None]) -> None:
        before = self.current
        self.current = tuple([one for claim in claims for one in claim])
        emit()
        self.current = before

    # -- sending --------------------------------------------------------------------------------------------------

    def router(self, router: Router) -> AckedRouter:
        return AckedRouter(router, self)

    def task_died(self, inputs: Iterable[Channel], outputs: Iterable[Channel]) -> None:
        statistics = self.run.statistics
        for channel in inputs:
            assert isinstance(channel, AckedChannel), channel.name
            statistics.lost += channel.receiver_died()
        for channel in outputs:
            assert isinstance(channel, AckedChannel), channel.name
            statistics.lost += channel.sender_died()

    def fingerprint(self) -> object:
        return self.new_id.fingerprint()


class AckedRouter:
    """Sends each record in a tuple of its own."""

    __slots__ = ("_bolt", "_router")

    def __init__(self, router: Router, bolt: Bolt) -> None:
        self._router = router
        self._bolt = bolt

    def route(self, batch: Batch) -> Routed:
        """See :class:`engine.graph.partitioner.Router`."""
        bolt = self._bolt
        anchors, new_id = bolt.current, bolt.new_id
        routed: list[tuple[int, Batch]] = [
            (channel, TracedBatch.of(part, [child_of(anchors, new_id) for _ in part.values]))
            for channel, part in self._router.route(batch)
        ]
        bolt.run.statistics.data += sum([len(part) for _, part in routed])
        return routed

    def fingerprint(self) -> object:
        return self._router.fingerprint()
