"""Service times: how long operators take for a record, by the laws of the setting ``service``.

A task whose operators have laws takes one record at a time. The time of a record is the sum over its operators, and is
drawn when the record before it has been handled. So the task needs no branch for it: where no operator has a law,
nothing is built differently. The numbers of a stream, and their times, are made in blocks. Each becomes a choice when
its record is next.

A function of the record gives the law of a record when the task begins with it, and the time is drawn then: that is the
task's one branch. The function sees the record as it comes to the task, so it can be that of the first operator only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Protocol

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.laws import Constant, Draw, Law, sample_ns, times_ns
from engine.elements.suggestions import nearest
from engine.graph.plan import ExecutionPlan, SubtaskPlan, VertexPlan
from engine.runtime.config import ServiceOfRecord
from engine.runtime.kernel import ChoiceRecorder

Receiver = Callable[[Batch], None]

_FIRST_BLOCK, _LARGEST_BLOCK = 4, 1_024
"""A short run makes few times that it does not need."""


class ServedTask(Protocol):
    """The part of a task that has a service time."""

    record_cost_ns: int


class ServiceTimes:
    """The laws of a run, by the name of a subtask, vertex or operator."""

    def __init__(
        self, laws: Mapping[str, Law | ServiceOfRecord], plan: ExecutionPlan, choices: ChoiceRecorder
    ) -> None:
        self._laws = laws
        self._choices = choices
        self._drawn: dict[str, DrawnTimes] = {}
        """By task, over all its attempts."""
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
            if isinstance(laws[name], ServiceOfRecord) and not _is_of_first(name, names[name]):
                raise ConfigurationError(
                    f"service: {name!r} is not the first operator of its task {names[name].name!r}, so the record that"
                    " comes to it is not known when its time begins; put chain=False on it, or give it a law"
                )

    def of(
        self, plan: SubtaskPlan, vertex: VertexPlan, fixed_ns: int, factor: float
    ) -> ServiceTime | RecordServiceTime | None:
        """That of a subtask; ``None`` when no operator of it has a law. ``fixed_ns``: what the cost model charges for
        a record, on top; ``factor``: that of a straggler."""
        found: list[Law | ServiceOfRecord] = []
        # An operator alone has the name of its vertex.
        for name in dict.fromkeys((vertex.name, *(operator.name for operator in vertex.operators))):
            law = self._laws.get(f"{name}[{plan.subtask}]", self._laws.get(name))
            if law is not None:
                found.append(law)
        if not found:
            return None
        stream, always = f"service of {plan.name}", [one for one in found if not isinstance(one, ServiceOfRecord)]
        if len(always) < len(found):
            return RecordServiceTime(partial(self._choices.draw, stream), found, fixed_ns, factor)
        if plan.name not in self._drawn:
            self._drawn[plan.name] = DrawnTimes(self._choices, stream, always, fixed_ns, factor)
        return ServiceTime(self._drawn[plan.name])


def _is_of_first(name: str, vertex: VertexPlan) -> bool:
    """Whether a name is that of the task, or of its first operator."""
    later = {operator.name for operator in vertex.operators[1:]} - {vertex.name}
    return name not in later and name.rpartition("[")[0] not in later


def _names(vertex: VertexPlan) -> list[str]:
    return [name for subtask in range(vertex.parallelism) for name in vertex.names_of(subtask)]


class DrawnTimes:
    """The costs of records: sums of the times of some laws, drawn from a stream that nothing else reads."""

    __slots__ = ("_block", "_choices", "_costs_ns", "_factor", "_fixed_ns", "_laws", "_random", "_stream", "_words")

    def __init__(
        self, choices: ChoiceRecorder, stream: str, laws: list[Law], fixed_ns: int = 0, factor: float = 1.0
    ) -> None:
        self._choices = choices
        self._stream = stream
        self._laws = laws
        self._random = [law for law in laws if not isinstance(law, Constant)]
        """A constant draws nothing: it is no choice."""
        self._fixed_ns = fixed_ns
        self._factor = factor
        self._block = _FIRST_BLOCK
        self._words: list[int] = []
        """Values that are no choices yet, the next one last."""
        self._costs_ns: list[int] = []
        """What they mean, the next one last."""

    def next_ns(self) -> int:
        """The next cost, at least 1 ns. The values behind it are choices from now on."""
        if not self._costs_ns and not self._look_ahead():
            draw = partial(self._choices.draw, self._stream)
            return _cost_ns(self._fixed_ns, sum([sample_ns(law, draw) for law in self._laws]), self._factor)
        words, add, stream = self._words, self._choices.log.add_word, self._stream
        for _ in self._random:
            add(stream, words.pop())
        return self._costs_ns.pop()

    def _look_ahead(self) -> bool:
        count, each = self._block, len(self._random)
        words = self._choices.words_ahead(self._stream, count * each)
        if words is None:
            return False
        self._block = min(2 * count, _LARGEST_BLOCK)
        always_ns = sum([law.quantile_ns(0) for law in self._laws if isinstance(law, Constant)])
        words.reverse()
        # The times of each law, the next one last.
        columns = [times_ns(law, words[each - 1 - at :: each]) for at, law in enumerate(self._random)]
        times = columns[0] if each == 1 else map(sum, zip(*columns, strict=True)) if each else [0] * count
        fixed_ns, factor = self._fixed_ns, self._factor
        self._costs_ns = [max(1, fixed_ns + round((always_ns + time_ns) * factor)) for time_ns in times]
        self._words = words
        return True


class ServiceTime:
    """The service time of one task in one attempt."""

    __slots__ = ("_drawn", "busy_ns")
    price: ClassVar[None] = None
    """The time of a record does not depend on it."""

    def __init__(self, drawn: DrawnTimes) -> None:
        self._drawn = drawn
        self.busy_ns = 0
        """What the records so far have taken together."""

    def begin(self, task: ServedTask) -> None:
        """Draw the time of the first record."""
        task.record_cost_ns = self._drawn.next_ns()

    def receiver(self, task: ServedTask, receive: Receiver) -> Receiver:
        """Hands records on, and then draws the time of the next one."""
        return partial(self._served, task, receive)

    def _served(self, task: ServedTask, receive: Receiver, batch: Batch) -> None:
        receive(batch)
        self.busy_ns += task.record_cost_ns
        task.record_cost_ns = self._drawn.next_ns()


class RecordServiceTime:
    """The service time of one task in one attempt, if it depends on the record."""

    __slots__ = ("_draw", "_factor", "_fixed_ns", "_services", "busy_ns")

    def __init__(self, draw: Draw, services: list[Law | ServiceOfRecord], fixed_ns: int, factor: float) -> None:
        self._draw = draw
        self._services = services
        self._fixed_ns = fixed_ns
        self._factor = factor
        self.busy_ns = 0
        """What the records so far have taken together."""

    def begin(self, task: ServedTask) -> None:
        """It takes time, and how much is known when there is a record."""
        task.record_cost_ns = 1

    def price(self, value: Any) -> int:
        """Draw the time of a record that comes to the task, at least 1 ns."""
        laws = [one(value) if isinstance(one, ServiceOfRecord) else one for one in self._services]
        return _cost_ns(self._fixed_ns, sum([sample_ns(law, self._draw) for law in laws]), self._factor)

    def receiver(self, task: ServedTask, receive: Receiver) -> Receiver:
        """Hands records on."""
        return partial(self._served, task, receive)

    def _served(self, task: ServedTask, receive: Receiver, batch: Batch) -> None:
        receive(batch)
        self.busy_ns += task.record_cost_ns


def _cost_ns(fixed_ns: int, time_ns: int, factor: float) -> int:
    return max(1, fixed_ns + round(time_ns * factor))
