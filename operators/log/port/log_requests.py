"""How a sink asks a log: it retries requests without an answer, and spreads batches over partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, TypeVarTuple

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from operators.log.port.transaction_log import LogTimeoutError

EXACTLY_ONCE, AT_LEAST_ONCE, NONE = "exactly-once", "at-least-once", "none"
DELIVERIES = (EXACTLY_ONCE, AT_LEAST_ONCE, NONE)

PartitionFunction = Callable[[Any, int], int]
"""``(record, number of partitions) -> partition``."""

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class RequestSettings(Protocol):
    """``partitions`` of the topic; ``partition``: chooses a record's partition, ``None`` = by the subtask's number;
    ``value``: what the log gets of a record, ``None`` = itself; ``retries``: how often a request without an answer is
    repeated."""

    partitions: int
    partition: PartitionFunction | None
    value: Callable[[Any], Any] | None
    retries: int


class Requests:
    """Asks the log on behalf of one subtask: repeats requests without an answer, spreads batches over partitions."""

    def __init__(self, spec: RequestSettings, operator: Operator) -> None:
        self._spec, self._operator = spec, operator

    def ask(self, request: Callable[[*_Ts], _T], *arguments: *_Ts) -> _T:
        """The answer; raises :class:`LogTimeoutError` when none came after all retries."""
        left = self._spec.retries
        while True:
            try:
                return request(*arguments)
            except LogTimeoutError:
                if left == 0:
                    raise
            left -= 1
            self._operator.context.metrics.count("numRequestsRetried")

    def by_partition(self, batch: Batch) -> dict[int, list[Any]]:
        """The values of a batch, by the partition that they go to."""
        spec, operator = self._spec, self._operator
        choose, count = spec.partition, spec.partitions
        values = batch.values if spec.value is None else list(map(self._value_of, batch.values))
        if choose is None:
            return {operator.context.subtask % count: values}
        chosen: dict[int, list[Any]] = {}
        for value in values:
            try:
                number = choose(value, count)
                if type(number) is not int or not 0 <= number < count:
                    raise ValueError(f"{number!r} is no partition of {count}")
            except Exception as error:
                raise operator.user_error("partition function", value, error) from error
            chosen.setdefault(number, []).append(value)
        return chosen

    def _value_of(self, record: Any) -> Any:
        assert self._spec.value is not None
        try:
            return self._spec.value(record)
        except Exception as error:
            raise self._operator.user_error("value", record, error) from error
