"""Operators that keep every record in operator state and emit them at the end of their input.

Any change to the state on the way (a restore, another parallelism) shows in the output: each record once.
Each kind keeps them in another mode of operator state:

``hold split``      a split list: elements are dealt out anew when the parallelism changes;
``hold union``      a union list: after a restore every subtask has everything, and keeps its own by number;
``hold broadcast``  a map that all subtasks fill alike, from broadcast edges; each emits its own by number;
``own``             no state: of what is broadcast to all, each subtask passes its own on at once.
"""

from __future__ import annotations

from engine.elements.batch import Batch
from engine.elements.operator import Operator

SPLIT, UNION, BROADCAST, OWN = "hold split", "hold union", "hold broadcast", "own"
HELD = (SPLIT, UNION, BROADCAST, OWN)
SHARED = (BROADCAST, OWN)
"""Kinds whose subtasks must all get every record."""


class HoldInState:
    """Describes such an operator."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def create_operator(self) -> Operator:
        operators = {SPLIT: _HoldSplit, UNION: _HoldUnion, BROADCAST: _HoldBroadcast, OWN: _Own}
        return operators[self.name]()


class _Sharing(Operator):
    """The number of a record decides which subtask owns it."""

    def _is_own(self, record: tuple[int, int]) -> bool:
        return record[1] % self.context.parallelism == self.context.subtask

    def _emit(self, records: list[tuple[int, int]]) -> None:
        self.output.emit(Batch(records))


class _Own(_Sharing):
    def process_batch(self, batch: Batch) -> None:
        self._emit([record for record in batch.values if self._is_own(record)])


class _HoldSplit(_Sharing):
    def initialize_state(self) -> None:
        self._held = self.context.operator_backend().list_state("held")

    def process_batch(self, batch: Batch) -> None:
        self._held.add_all(batch.values)

    def finish(self) -> None:
        self._emit([(label, number) for label, number in self._held.get()])
        self._held.clear()


class _HoldUnion(_HoldSplit):
    def initialize_state(self) -> None:
        self._held = self.context.operator_backend().union_list_state("held")
        self._held.update([one for one in self._held.get() if self._is_own(one)])


class _HoldBroadcast(_Sharing):
    def initialize_state(self) -> None:
        self._times = self.context.operator_backend().broadcast_state("times")

    def process_batch(self, batch: Batch) -> None:
        for record in batch.values:
            self._times.put(record, (self._times.get(record) or 0) + 1)

    def finish(self) -> None:
        own = [(record, times) for record, times in self._times.entries() if self._is_own(record)]
        self._emit([record for record, times in own for _ in range(times)])
        self._times.clear()
