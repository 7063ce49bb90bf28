"""``Arrivals``: records that come from outside at times of their own, whether the job runs or not (an open loop).

Rules.

* Each record is due at a virtual time, by an arrival process. It is never read before. While the job is down, or has no
  room, records wait; afterwards this backlog is worked off. A closed loop would instead wait with the job.
* A position is the number of the next record in its split, when the process began, and when the record before was due.
  So a restore goes on with the same records at the same times, also in another process.
* One record at a time costs ``cost.source_record``: records that come together do not wait for each other's end.
* If the load is above the capacity, the backlog grows for ever. At ``most_waiting`` records the run ends with an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.elements.arrival_processes import ArrivalProcess, Part
from engine.elements.batch import Batch
from engine.elements.durations import duration_text, rounded_ns
from engine.elements.errors import (
    ConfigurationError,
    JobGraphError,
    OverloadError,
    UserFunctionError,
    WeirError,
    check_whole,
)
from engine.elements.operator import OperatorFactory
from engine.elements.source import SourceContext, SplitReader
from operators.sources.in_memory import NumberedSplits, split_index
from operators.sources.source_operator import SourceOperator
from operators.time import WatermarkStrategy
from state_backends.base import row, whole

MOST_WAITING = 1_000_000


class Arrivals:
    """An open-loop source: ``Arrivals(Poisson("8/s"), count=100_000, value=lambda i: i % 100)``.

    ``process``       when records are due: :class:`Poisson`, :class:`Periodic` or :class:`Trace`;
    ``count``         how many records come; by default all of a trace;
    ``value``         makes record ``i`` of its number ``i``, by a pure function; by default the number itself;
    ``splits``        parts that are read side by side. Record ``i`` is in split ``i mod splits``;
    ``most_waiting``  the run ends with :class:`OverloadError` when more records of a split are due and not sent.

    The event time of a record is the time at which it is due.
    """

    position_shape = staticmethod(row(whole, whole, whole))

    def __init__(
        self,
        process: ArrivalProcess,
        count: int | None = None,
        value: Callable[[int], Any] | None = None,
        *,
        splits: int = 1,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        _check_process(process)
        check_whole("count", count, 0, or_none=True)
        check_whole("splits", splits)
        check_whole("most_waiting", most_waiting)
        most = process.most
        if count is None and most is None:
            raise ConfigurationError(
                f"Arrivals of {type(process).__name__} have no end; give the number of records: count=100_000"
            )
        if most is not None and count is not None and count > most:
            raise ConfigurationError(
                f"count of Arrivals is {count}, but {type(process).__name__} has {most} records; leave count out, or"
                " give more times"
            )
        self.process = process
        self.count: int = (most or 0) if count is None else count
        self.value = value
        self.most_waiting = most_waiting
        self._splits = splits

    def splits(self, context: SourceContext) -> Sequence[str]:
        return NumberedSplits("arrivals", self._splits)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader that goes on at a position."""
        index = split_index(split, "arrivals", self._splits, context.name)
        count = (self.count + self._splits - 1 - index) // self._splits
        return _ArrivalReader(self, Part(index, self._splits, 0), count, position, split, context)

    def operator_factory(self, watermarks: WatermarkStrategy | None) -> OperatorFactory:
        """Its operators read one record at a time, when it is due."""
        return partial(ArrivalsOperator, self, watermarks)


def _check_process(process: object) -> None:
    # A class has the methods of its objects.
    if not isinstance(process, ArrivalProcess) or isinstance(process, type):
        raise ConfigurationError(
            f"process of Arrivals is {process!r} of type {type(process).__name__}; write Poisson('8/s'),"
            " Periodic('8/s') or Trace(['0s', '20ms'])"
        )


class _ArrivalReader:
    """Reads the records of one split that are due. ``due_ns``: when the last one that it returned was."""

    def __init__(
        self, source: Arrivals, part: Part, count: int, position: Any, split: str, context: SourceContext
    ) -> None:
        world = context.world
        if world is None:
            raise JobGraphError(f"source {context.name!r} waits for times of arrival, and no time passes here")
        number, began_ns, due_ns = (0, world.began_ns, world.began_ns) if position is None else position
        self._source, self._context, self._world = source, context, world
        self._part = Part(part.split, part.splits, began_ns)
        self._count = count
        self._number = number
        self.due_ns = due_ns
        self._stream = f"arrivals of {context.name}, {split}"
        self._ahead: deque[int] = deque()
        """When the next records are due: all that are due by now and one more, as far as there are any."""

    def _look_ahead(self, now_ns: int) -> None:
        if self._ahead and self._ahead[-1] > now_ns:
            return
        ahead, process, part, source = self._ahead, self._source.process, self._part, self._source
        before_ns, number = ahead[-1] if ahead else self.due_ns, self._number + len(ahead)
        while number < self._count and (not ahead or before_ns <= now_ns):
            if len(ahead) > source.most_waiting:
                raise self._overloaded(now_ns)
            before_ns = process.due_ns(part, number, before_ns, partial(self._world.number, self._stream, number))
            ahead.append(before_ns)
            number += 1

    def _overloaded(self, now_ns: int) -> OverloadError:
        waiting, passed = len(self._ahead), duration_text(rounded_ns(now_ns - self._part.began_ns))
        return OverloadError(
            f"source {self._context.name!r}: the load is above the capacity, and the queue grows for ever\n"
            f"  in {passed}, {self._number + waiting} records were due and {self._number} were sent:"
            f" {waiting} wait\n"
            "  lower the rate of arrivals, make the slowest operator faster or give it more subtasks; or wait for more"
            " records at the source (most_waiting)"
        )

    def is_due(self) -> bool:
        """Whether a record may be read now."""
        now_ns = self._context.processing_time_ns()
        self._look_ahead(now_ns)
        return bool(self._ahead) and self._ahead[0] <= now_ns

    def read(self, max_records: int) -> Batch | None:
        now_ns, ahead = self._context.processing_time_ns(), self._ahead
        self._look_ahead(now_ns)
        first, times_ms = self._number, list[int]()
        while ahead and ahead[0] <= now_ns and len(times_ms) < max_records:
            self.due_ns = ahead.popleft()
            times_ms.append(self.due_ns // 1_000_000)
        if not times_ms:
            return None if first == self._count else Batch([], times_ms)
        self._number += len(times_ms)
        part = self._part
        return Batch([self._value(part.split + at * part.splits) for at in range(first, self._number)], times_ms)

    def _value(self, number: int) -> Any:
        value = self._source.value
        try:
            return number if value is None else value(number)
        except WeirError:
            raise
        except Exception as error:
            raise UserFunctionError(self._context.name, "value", number, self._context.attempt, error) from error

    def position(self) -> tuple[int, int, int]:
        return (self._number, self._part.began_ns, self.due_ns)

    def available_at_ns(self, now_ns: int) -> int:
        self._look_ahead(now_ns)
        return self._ahead[0] if self._ahead else now_ns

    def close(self) -> None:
        pass


class ArrivalsOperator(SourceOperator):
    """Reads a source of arrivals."""

    def slice_limit(self, records: int) -> int:
        """One record, if one is due: with the next ones it would have to wait for all of them."""
        for split in self._unfinished:
            reader = self._open_split(split) if split.reader is None else split.reader
            # A reader around that of the source does not say it.
            if getattr(reader, "is_due", _always)():
                return 1
        return 0


def _always() -> bool:
    return True
