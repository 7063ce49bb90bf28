"""Jobs whose operators have coordinators: numbers dealt out on request."""

from __future__ import annotations

from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.elements.operator_coordination import OperatorCoordinator, SubtaskGateways
from engine.graph.job import Job
from engine.graph.job_graph import NodeRole
from engine.graph.stream import Outlet, Stream
from operators.sources import SequenceSource, SourceOperator

POLL_NS = 2_000
HAND = 3
"""Numbers dealt at once."""


class Dealer(OperatorCoordinator):
    """Hands out the numbers below ``total``, ``hand`` to each request, and ``None`` once there are none. Its state is
    the numbers that it has not handed out."""

    def __init__(self, numbers: Dealt) -> None:
        self._owner = numbers
        self._left = list(range(numbers.total))
        self._epoch = 0
        self._handed: dict[int, list[tuple[int, int]]] = {}

    def _note(self, what: str, *arguments: Any) -> None:
        self._owner.calls.append((what, *arguments))

    def start(self, gateways: SubtaskGateways) -> None:
        super().start(gateways)
        self._note("start", gateways.parallelism)

    def subtask_ready(self, subtask: int) -> None:
        self._note("ready", subtask)

    def handle_event(self, subtask: int, event: Any) -> None:
        self._owner.at_event(self)
        hand, self._left = self._left[:event], self._left[event:]
        self._handed.setdefault(subtask, []).extend((self._epoch, number) for number in hand)
        self.gateways.send(subtask, hand or None)

    def checkpoint(self, checkpoint_id: int) -> Any:
        self._epoch = checkpoint_id
        self._owner.at_checkpoint(checkpoint_id)
        return self._left

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any) -> None:
        self._note("reset", checkpoint_id, None if state is None else len(state))
        self._left = list(range(self._owner.total)) if state is None else state
        self._epoch = checkpoint_id or 0
        self._handed.clear()

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        self._note("subtask reset", subtask, checkpoint_id)
        handed = self._handed.get(subtask, [])
        lost = [one for one in handed if checkpoint_id is None or one[0] >= checkpoint_id]
        self._handed[subtask] = [one for one in handed if one not in lost]
        self._left = sorted([*self._left, *(number for _, number in lost)])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._note("complete", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._note("aborted", checkpoint_id)

    def close(self) -> None:
        self._note("close")

    def fingerprint(self) -> object:
        return (tuple(self._left), self._epoch)


class Dealt:
    """Makes readers of dealt numbers, and their dealer; ``calls`` lists the calls to the dealer."""

    name = "dealt"

    def __init__(self, total: int, *, ask: int = 0) -> None:
        self.total = total
        self.ask = ask
        self.calls: list[tuple[Any, ...]] = []

    def at_event(self, dealer: Dealer) -> None:
        """To be replaced: called before a request is answered."""

    def at_checkpoint(self, checkpoint_id: int) -> None:
        """To be replaced: called before the state is returned."""

    def create_coordinator(self) -> OperatorCoordinator:
        return Dealer(self)

    def create_operator(self) -> Operator:
        """A source that asks for numbers whenever it has none, or an operator that asks once per record."""
        return Asking(self.ask) if self.ask else Reading()

    def told(self, what: str) -> list[tuple[Any, ...]]:
        return [arguments for kind, *arguments in self.calls if kind == what]  # type: ignore[misc]


class Reading(SourceOperator):
    """A source whose numbers come from its coordinator."""

    def __init__(self) -> None:
        super().__init__(SequenceSource(0, 0))

    def initialize_state(self) -> None:
        self._state_of_numbers = self.context.operator_backend().list_state("dealt numbers")

    def open(self) -> None:
        self._numbers: list[int] = list(self._state_of_numbers.get())
        self._asked = self._is_over = False

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._state_of_numbers.update(self._numbers)

    def on_coordinator_event(self, event: Any) -> None:
        self._asked = False
        if event is None:
            self._is_over = True
        else:
            self._numbers += event

    def emit_next(self, max_records: int) -> int | None:
        ready, self._numbers = self._numbers[:max_records], self._numbers[max_records:]
        if ready:
            self.output.emit(Batch(ready))
            return len(ready)
        if self._is_over:
            return None
        if not self._asked:
            self._asked = True
            self.context.send_to_coordinator(HAND)
        return 0

    def available_at_ns(self, now_ns: int) -> int:
        return now_ns + POLL_NS

    def close(self) -> None:
        pass

    def fingerprint(self) -> object:
        return (tuple(self._numbers), self._asked, self._is_over)


class Asking(Operator):
    """Asks for one number at each of its first ``most`` records, and emits it when it comes. No checkpoint contains a
    request, so it repeats the requests that are unanswered in its state."""

    def __init__(self, most: int) -> None:
        self._most = most

    def initialize_state(self) -> None:
        self._state = self.context.operator_backend().list_state("asked and answered")

    def open(self) -> None:
        self._asked, self._answered = next(iter(self._state.get()), (0, 0))
        for _ in range(self._asked - self._answered):
            self.context.send_to_coordinator(1)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._state.update([(self._asked, self._answered)])

    def process_batch(self, batch: Batch) -> None:
        for _ in batch.values:
            if self._asked < self._most:
                self._asked += 1
                self.context.send_to_coordinator(1)

    def on_coordinator_event(self, event: Any) -> None:
        self._answered += 1
        self.output.emit(Batch(event))

    def fingerprint(self) -> object:
        return (self._asked, self._answered)


def dealing(numbers: Dealt, into: Any, *, parallelism: int = 3, keyed: bool = True) -> Job:
    """A source of dealt numbers; ``keyed``: shuffled over the subtasks that follow, which makes the job one region."""
    job = Job("dealing", parallelism=parallelism, max_parallelism=16)
    options: Any = {"name": "reader", "uid": "reader", "chain": False}
    source = Stream(job, (Outlet(job.add_operator("source", numbers.create_operator, options, role=NodeRole.SOURCE)),))
    if keyed:
        source = source.key_by(lambda number: number % 5).map(lambda number: number, name="spread", uid="spread")
    return source.collect(into, name="out", uid="out", chain=False)


def asking(numbers: Dealt, into: Any, *, records: int) -> Job:
    """Operators with input channels that get a number per record, each for its first ``numbers.ask`` records."""
    job = Job("asking", parallelism=2)
    ticks = job.source(SequenceSource(0, records), name="ticks").rebalance()
    return ticks.via(numbers, name="worker", chain=False).collect(into, name="out")
