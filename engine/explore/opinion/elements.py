"""The elements that flow through the evaluator, and its form of an operator: a *step*.

A step is the meaning of one operator in one subtask, taken from the pages under ``docs/``. It runs the functions that
the user gave to the operator, and none of the operator's own code.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.elements.batch import MIN_TIMESTAMP_MS


class NotModelled(BaseException):
    """The evaluator cannot compute the result of an operator. Not an ``Exception``: a function of the user that catches
    those must not hide it."""


class Record(NamedTuple):
    """``at_ms``: how long the sources had waited when it was read. Only this orders records of different channels."""

    value: Any
    stamp: int | None = None
    key: Any = None
    at_ms: int = 0


class Mark(NamedTuple):
    """A watermark; with ``idle`` instead: the stream has become idle, or (``False``) is active again."""

    ms: int = MIN_TIMESTAMP_MS
    at_ms: int = 0
    idle: bool | None = None


Element = Record | Mark


@dataclass(frozen=True, slots=True)
class Order:
    """One of the orders in which a job may be evaluated.

    ``deep``      whether emitted records are handled before more is read, or everything is read first;
    ``last``      whether the last of several channels comes first;
    ``in_turn``   whether channels take turns record by record, or each is emptied before the next;
    ``mixed``     a seed that shuffles the order of channels, 0 = no shuffling;
    ``every``     after how many records of a source a watermark follows; 0 = only where required, as before a pause.
    """

    name: str
    deep: bool = True
    last: bool = False
    in_turn: bool = False
    mixed: int = 0
    every: int = 1


@dataclass(slots=True)
class Spec:
    """One operator in one subtask. ``given``: the arguments that its class got from the job, by parameter name."""

    uid: str
    kind: str
    given: Mapping[str, Any]
    subtask: int
    parallelism: int
    order: Order
    keyed: bool
    owner: Any = None
    """Of a sink: the object whose ``create_operator`` makes the operator."""


@dataclass(slots=True)
class Targets:
    """Receivers of a step's elements: ``records`` by side output (``None`` = the main one), ``marks`` everywhere."""

    records: dict[str | None, list[Callable[[Record], None]]] = field(default_factory=dict)
    marks: list[Callable[[Mark], None]] = field(default_factory=list)


class EvaluatedStep:
    """Base of all steps: passes watermarks on."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.outlet = Targets()
        self.at_ms = 0
        self.watermark_ms = MIN_TIMESTAMP_MS

    def on_record(self, record: Record, which: int) -> None:
        """Handle a record of input ``which`` (0 or 1)."""
        raise TypeError(f"{type(self).__name__} takes no records")

    def on_watermark(self, ms: int) -> None:
        """Event time has reached ``ms``, which is more than before. The watermark follows the records emitted here."""

    def take(self, record: Record, which: int = 0) -> None:
        self.at_ms = max(self.at_ms, record.at_ms)
        self.on_record(record, which)

    def take_mark(self, mark: Mark) -> None:
        """A watermark, or news of idleness."""
        self.at_ms = max(self.at_ms, mark.at_ms)
        if mark.idle is None:
            if mark.ms <= self.watermark_ms:
                return
            # A watermark never falls (docs/event-time-and-windows.md).
            self.watermark_ms = mark.ms
            self.on_watermark(mark.ms)
        self.mark(mark)

    def emit(self, value: Any, stamp: int | None, tag: str | None = None) -> None:
        """Send a record on, without its key: the function may have changed the fields that gave the key."""
        for send in self.outlet.records.get(tag, ()):
            send(Record(value, stamp, None, self.at_ms))

    def emit_all(self, values: Any, stamp: int | None) -> None:
        """The same for the return value of a function: any number of records, or ``None`` for no record."""
        for value in () if values is None else list(values):
            self.emit(value, stamp)

    def mark(self, mark: Mark) -> None:
        """Send a watermark on, to side outputs too."""
        for send in self.outlet.marks:
            send(mark._replace(at_ms=self.at_ms))


class Pass(EvaluatedStep):
    """Sends every record on, with its timestamp."""

    def on_record(self, record: Record, which: int) -> None:
        self.emit(record.value, record.stamp)


def own_copy(function: Any) -> Any:
    """The function object of one subtask: a class is instantiated, an instance copied."""
    return function() if isinstance(function, type) else copy.copy(function)


def is_a(thing: Any, name: str) -> bool:
    """Whether a class, or the class of an object, is derived from the one with this full name."""
    kind = thing if isinstance(thing, type) else type(thing)
    return any(f"{one.__module__}.{one.__qualname__}" == name for one in kind.__mro__)
