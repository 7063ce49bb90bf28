"""Service times: how long operators take for a record, by the laws of the setting ``service``.

A task whose operators have laws takes one record at a time. The time of a record is the sum over its operators, and is
drawn when the record before it has been handled. So the task needs no branch for it: where no operator has a law,
nothing is built differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.laws import Law, sample_ns
from engine.elements.suggestions import nearest
from engine.graph.plan import ExecutionPlan, SubtaskPlan, VertexPlan

Receiver = Callable[[Batch], None]


class ServedTask(Protocol):
    """The part of a task that has a service time."""

    record_cost_ns: int


class ServiceTimes:
    """The laws of a run, by the name of a subtask, vertex or operator. ``draw``: of the run's choices."""

    def __init__(self, laws: Mapping[str, Law], plan: ExecutionPlan, draw: Callable[[str, int], int]) -> None:
        self._laws = laws
        self._draw = draw
        names = {name: vertex for vertex in plan.vertices for name in _names(vertex)}
        for name in laws:
            if name not in names:
                close = nearest(name, names)
                hint = f"did you mean {close!r}?" if close else f"there are: {', '.join(names)}"
                raise ConfigurationError(f"service: there is no operator {name!r} in the job; {hint}")
            if names[name].is_source:
                raise ConfigurationError(
                    f"service: {name!r} is in the task of a source, which takes cost.source_record for a record; give"
                    " the law to an operator after a shuffle, or put chain=False on it"
                )

    def of(self, plan: SubtaskPlan, vertex: VertexPlan) -> ServiceTime | None:
        """That of a subtask; ``None`` when no operator of it has a law."""
        found = []
        # An operator alone has the name of its vertex.
        for name in dict.fromkeys((vertex.name, *(operator.name for operator in vertex.operators))):
            law = self._laws.get(f"{name}[{plan.subtask}]", self._laws.get(name))
            if law is not None:
                found.append(law)
        return ServiceTime(found, partial(self._draw, f"service of {plan.name}")) if found else None


def _names(vertex: VertexPlan) -> list[str]:
    return [name for subtask in range(vertex.parallelism) for name in vertex.names_of(subtask)]


class ServiceTime:
    """The service time of one task. ``draw``: from a stream of its own."""

    __slots__ = ("_draw", "_factor", "_fixed_ns", "_laws", "busy_ns")

    def __init__(self, laws: list[Law], draw: Callable[[int], int]) -> None:
        self._laws = laws
        self._draw = draw
        self._fixed_ns, self._factor = 0, 1.0
        self.busy_ns = 0
        """What the records so far have taken together."""

    def begin(self, task: ServedTask, factor: float) -> None:
        """Draw the time of the first record. ``factor``: that of a straggler; the cost model's time comes on top."""
        self._fixed_ns, self._factor = task.record_cost_ns, factor
        self.next(task)

    def next(self, task: ServedTask) -> None:
        """Draw the time of the next record, at least 1 ns."""
        drawn_ns = sum([sample_ns(law, self._draw) for law in self._laws])
        task.record_cost_ns = max(1, self._fixed_ns + round(drawn_ns * self._factor))

    def receiver(self, task: ServedTask, receive: Receiver) -> Receiver:
        """Hands records on, and then draws the time of the next one."""
        return partial(self._served, task, receive)

    def _served(self, task: ServedTask, receive: Receiver, batch: Batch) -> None:
        receive(batch)
        self.busy_ns += task.record_cost_ns
        self.next(task)
