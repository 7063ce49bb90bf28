"""When partitions are committed (Flink: ``PartitionCommitTrigger``): pure machines and their predicates.

| trigger | remembers | committable when |
|---|---|---|
| process-time | partition, and when it was first named | delay 0, or now > then + delay |
| partition-time | partition; checkpoint, and the watermark at its snapshot | that watermark > its time + delay |

Both comparisons are strict.

* The watermark that counts is the committer's at *its snapshot* of the checkpoint: after it, the checkpoint has no
  record of an earlier time. A checkpoint without such a snapshot cannot be judged: an error. Judging one forgets all up
  to it, so judging an older one later is an error too.
* A committable partition is forgotten. Later records name it again, and it is committed again.
* At the end of the input everything is committable.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from engine.elements.batch import MIN_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError, StateError
from operators.files.writing import DEFAULT_PARTITION_NAME, partition_values
from operators.table.partitions.partition_time import (
    DefaultPartitionTimeExtractor,
    PartitionTimeError,
    PartitionTimeExtractor,
    local_to_epoch_ms,
    time_zone,
)
from state_backends.base import Shape, number, row, whole

PROCESS_TIME, PARTITION_TIME = "process-time", "partition-time"
TRIGGERS = (PROCESS_TIME, PARTITION_TIME)


class CommitPredicate(Protocol):
    """Whether a partition may be committed; triggers and writers ask it."""

    def is_committable(self, partition: str, created_ms: int, now_ms: int, watermark_ms: int) -> bool:
        """``created_ms``: since when it is known, by the same clock as ``now_ms``."""


class ProcessTimePredicate:
    """``delay_ms`` after the partition became known."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms

    def is_committable(self, partition: str, created_ms: int, now_ms: int, watermark_ms: int) -> bool:
        return self._delay_ms == 0 or now_ms > created_ms + self._delay_ms


class PartitionTimePredicate:
    """``delay_ms`` of event time after the partition's time.

    ``columns``  the partition columns, in the order in which they stand in paths.
    """

    def __init__(
        self, delay_ms: int, columns: Sequence[str], extractor: PartitionTimeExtractor, zone: datetime.tzinfo
    ) -> None:
        self._delay_ms = delay_ms
        self._columns = tuple(columns)
        self._extractor = extractor
        self._zone = zone

    def partition_time_ms(self, partition: str) -> int:
        """The time of ``partition`` (its path), in ms. Raises :class:`PartitionTimeError`."""
        values = [
            DEFAULT_PARTITION_NAME if value is None else value for value in partition_values(partition, self._columns)
        ]
        try:
            local = self._extractor.extract(self._columns, values)
            if local.tzinfo is not None:
                raise ValueError(f"{local!r} has a time zone; a partition is for a local time, without one")
            return local_to_epoch_ms(local, self._zone)
        except PartitionTimeError:
            raise
        except Exception as error:
            raise PartitionTimeError(
                f"the time extractor {type(self._extractor).__name__} has failed on partition {partition!r}: "
                f"{type(error).__name__}: {error}\n"
                "  fix it, or filter the records of such partitions out"
            ) from error

    def is_committable(self, partition: str, created_ms: int, now_ms: int, watermark_ms: int) -> bool:
        return watermark_ms > self.partition_time_ms(partition) + self._delay_ms


_PENDING_WITH_TIME, _PENDING, _WATERMARKS = "pending-partitions-with-time", "pending-partitions", "watermarks"


class CommitTrigger(Protocol):
    """The interface of a trigger; its state is plain values, by the name of the list that holds it."""

    def state_shapes(self, partition: Shape) -> Mapping[str, Shape]:
        """By name of a list: the shape of its elements, ``partition`` being that of the path of one."""

    def add(self, partition: str, now_ms: int) -> None:
        """A writer has announced ``partition``."""

    def snapshot(self, checkpoint_id: int, watermark_ms: int) -> dict[str, list[Any]]:
        """The committer takes its snapshot of ``checkpoint_id``: the elements of each list."""

    def restore(self, lists: dict[str, list[Any]]) -> None:
        """The elements of each list, all empty in a state of the other trigger."""

    def take_committable(self, checkpoint_id: int, now_ms: int) -> list[str]:
        """The partitions to commit when ``checkpoint_id`` has been announced by all writers; they are forgotten.

        Raises :class:`StateError` for a checkpoint that cannot be judged.
        """

    def take_all(self) -> list[str]:
        """The same at the end of the input."""

    def fingerprint(self) -> object:
        """The remembered state."""


class ProcessTimeTrigger:
    """See the rules of the module."""

    def __init__(self, delay_ms: int) -> None:
        self._predicate = ProcessTimePredicate(delay_ms)
        self._created_ms: dict[str, int] = {}

    def state_shapes(self, partition: Shape) -> Mapping[str, Shape]:
        return {_PENDING_WITH_TIME: row(partition, number)}

    def add(self, partition: str, now_ms: int) -> None:
        """See ``CommitTrigger``. The first time counts."""
        self._created_ms.setdefault(partition, now_ms)

    def snapshot(self, checkpoint_id: int, watermark_ms: int) -> dict[str, list[Any]]:
        return {_PENDING_WITH_TIME: list(self._created_ms.items())}

    def restore(self, lists: dict[str, list[Any]]) -> None:
        """See ``CommitTrigger``. Delays do not start again."""
        self._created_ms = dict(lists.get(_PENDING_WITH_TIME, ()))

    def take_committable(self, checkpoint_id: int, now_ms: int) -> list[str]:
        due = [
            partition
            for partition, created_ms in self._created_ms.items()
            if self._predicate.is_committable(partition, created_ms, now_ms, MIN_TIMESTAMP_MS)
        ]
        for partition in due:
            del self._created_ms[partition]
        return due

    def take_all(self) -> list[str]:
        everything, self._created_ms = list(self._created_ms), {}
        return everything

    def fingerprint(self) -> object:
        return tuple(self._created_ms)


class PartitionTimeTrigger:
    """See the rules of the module."""

    def __init__(self, predicate: PartitionTimePredicate) -> None:
        self._predicate = predicate
        self._pending: dict[str, None] = {}
        self._watermarks: dict[int, int] = {}

    def state_shapes(self, partition: Shape) -> Mapping[str, Shape]:
        return {_PENDING: partition, _WATERMARKS: row(whole, number)}

    def add(self, partition: str, now_ms: int) -> None:
        self._pending[partition] = None

    def snapshot(self, checkpoint_id: int, watermark_ms: int) -> dict[str, list[Any]]:
        self._watermarks[checkpoint_id] = watermark_ms
        return {_PENDING: list(self._pending), _WATERMARKS: sorted(self._watermarks.items())}

    def restore(self, lists: dict[str, list[Any]]) -> None:
        # The records of pending partitions do not come again (mutant "pending partitions not restored").
        self._pending = dict.fromkeys(lists.get(_PENDING, ()))
        self._watermarks = dict(lists.get(_WATERMARKS, ()))

    def take_committable(self, checkpoint_id: int, now_ms: int) -> list[str]:
        watermark_ms = self._watermarks.get(checkpoint_id)
        if watermark_ms is None:
            known = ", ".join(map(str, sorted(self._watermarks))) or "none"
            raise StateError(
                f"the committer of partitions has no watermark of checkpoint {checkpoint_id} (it has: {known}), so"
                " nobody can say which partitions that checkpoint holds whole\n"
                "  it was announced before the committer's snapshot of it, or after that of a newer one"
            )
        self._watermarks = {known: value for known, value in self._watermarks.items() if known > checkpoint_id}
        due = [
            partition
            for partition in self._pending
            if self._predicate.is_committable(partition, 0, now_ms, watermark_ms)
        ]
        for partition in due:
            del self._pending[partition]
        return due

    def take_all(self) -> list[str]:
        everything, self._pending = list(self._pending), {}
        return everything

    def fingerprint(self) -> object:
        return tuple(self._pending), tuple(sorted(self._watermarks.items()))


class PartitionTriggerSettings:
    """The settings of a trigger, checked.

    ``trigger``              ``"process-time"`` or ``"partition-time"``;
    ``delay_ms``             see the rules of the module;
    ``extractor``            how partitions are read as times;
    ``watermark_time_zone``  in which they are local times.

    Raises :class:`ConfigurationError`.
    """

    def __init__(
        self,
        trigger: str = PROCESS_TIME,
        delay_ms: int = 0,
        *,
        extractor: PartitionTimeExtractor | None = None,
        watermark_time_zone: str = "UTC",
    ) -> None:
        if trigger not in TRIGGERS:
            raise ConfigurationError(
                f"trigger is {trigger!r}; partitions are committed by {' or '.join(map(repr, TRIGGERS))}"
            )
        if type(delay_ms) is not int or delay_ms < 0:
            raise ConfigurationError(f"delay_ms is {delay_ms!r}; it must be a whole number of ms, 0 or more")
        if extractor is not None and not callable(getattr(extractor, "extract", None)):
            raise ConfigurationError(
                f"extractor is a {type(extractor).__name__}; it must have a method extract(columns, values)"
            )
        self.trigger = trigger
        self.delay_ms = delay_ms
        self.extractor = DefaultPartitionTimeExtractor() if extractor is None else extractor
        self.zone = time_zone(watermark_time_zone)

    def predicate(self, columns: Sequence[str]) -> ProcessTimePredicate | PartitionTimePredicate:
        """Whether a partition of a table with these columns may be committed."""
        if self.trigger == PROCESS_TIME:
            return ProcessTimePredicate(self.delay_ms)
        return PartitionTimePredicate(self.delay_ms, columns, self.extractor, self.zone)

    def check(self, columns: Sequence[str]) -> Callable[[str], object] | None:
        """A function that raises an error for a partition that can never be committed; ``None`` if all can be."""
        predicate = self.predicate(columns)
        return predicate.partition_time_ms if isinstance(predicate, PartitionTimePredicate) else None

    def create(self, columns: Sequence[str]) -> CommitTrigger:
        """A fresh trigger for a table with these columns."""
        predicate = self.predicate(columns)
        if isinstance(predicate, ProcessTimePredicate):
            return ProcessTimeTrigger(self.delay_ms)
        return PartitionTimeTrigger(predicate)
