"""When partitions are committed (Flink: ``PartitionCommitTrigger``): pure machines and their predicates.

| trigger | remembers | committable when |
|---|---|---|
| process-time | partition, and when it was first named | delay 0, or now > then + delay |
| partition-time | partition; checkpoint, and the watermark at its snapshot | that watermark > its time + delay |

Both comparisons are strict.

* The trigger compares with the committer's watermark at *its snapshot* of the checkpoint: after that, the checkpoint
  has no record of an earlier time. A checkpoint without such a snapshot is an error. A decision about a checkpoint
  forgets all up to it, so a later decision about an older one is an error, too.
* A committed partition is forgotten. Later records add it again, and it is committed again.
* At the end of the input everything is committable.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engine.elements.batch import MIN_TIMESTAMP_MS
from engine.elements.errors import StateError
from operators.files.writing import DEFAULT_PARTITION_NAME, partition_values
from operators.table.partitions.partition_time import PartitionTimeError, PartitionTimeExtractor, local_to_epoch_ms
from state_backends.base import Shape, number, row, whole


class CommitPredicate(Protocol):
    """Whether a partition may be committed; triggers and writers ask it."""

    def is_committable(self, partition: str, created_ms: int, now_ms: int, watermark_ms: int) -> bool:
        """``created_ms``: when it became known, by the same clock as ``now_ms``."""


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


class CommitTrigger:
    """The partitions that are not committed yet. Its state is lists of plain values, by name."""

    def __init__(self, predicate: CommitPredicate) -> None:
        self._predicate = predicate
        self._named_ms: dict[str, int] = {}
        """By partition: when it was first announced."""

    def add(self, partition: str, now_ms: int) -> None:
        """A writer has announced ``partition``. The first time counts."""
        self._named_ms.setdefault(partition, now_ms)

    def state_shapes(self, partition: Shape) -> Mapping[str, Shape]:
        """By name of a list: the shape of its elements, ``partition`` being that of the path of one."""
        raise TypeError(f"{type(self).__name__} has no state")

    def snapshot(self, checkpoint_id: int, watermark_ms: int) -> dict[str, list[Any]]:
        """The committer takes its snapshot of ``checkpoint_id``: the elements of each list."""
        raise TypeError(f"{type(self).__name__} has no state")

    def restore(self, lists: dict[str, list[Any]]) -> None:
        """The elements of each list, all empty in a state of the other trigger."""
        raise TypeError(f"{type(self).__name__} has no state")

    def take_committable(self, checkpoint_id: int, now_ms: int) -> list[str]:
        """The partitions to commit when ``checkpoint_id`` has been announced by all writers; they are forgotten.

        Raises :class:`StateError` for a checkpoint that cannot be judged.
        """
        return self._take_due(now_ms, MIN_TIMESTAMP_MS)

    def _take_due(self, now_ms: int, watermark_ms: int) -> list[str]:
        is_due = self._predicate.is_committable
        due = [one for one, named_ms in self._named_ms.items() if is_due(one, named_ms, now_ms, watermark_ms)]
        for partition in due:
            del self._named_ms[partition]
        return due

    def take_all(self) -> list[str]:
        """The same at the end of the input."""
        everything, self._named_ms = list(self._named_ms), {}
        return everything

    def fingerprint(self) -> object:
        return tuple(self._named_ms)


class ProcessTimeTrigger(CommitTrigger):
    """See the rules of the module. Delays do not start again after a restore."""

    def state_shapes(self, partition: Shape) -> Mapping[str, Shape]:
        return {_PENDING_WITH_TIME: row(partition, number)}

    def snapshot(self, checkpoint_id: int, watermark_ms: int) -> dict[str, list[Any]]:
        return {_PENDING_WITH_TIME: list(self._named_ms.items())}

    def restore(self, lists: dict[str, list[Any]]) -> None:
        self._named_ms = dict(lists.get(_PENDING_WITH_TIME, ()))


class PartitionTimeTrigger(CommitTrigger):
    """See the rules of the module."""

    def __init__(self, predicate: CommitPredicate) -> None:
        super().__init__(predicate)
        self._watermarks: dict[int, int] = {}

    def state_shapes(self, partition: Shape) -> Mapping[str, Shape]:
        return {_PENDING: partition, _WATERMARKS: row(whole, number)}

    def snapshot(self, checkpoint_id: int, watermark_ms: int) -> dict[str, list[Any]]:
        self._watermarks[checkpoint_id] = watermark_ms
        return {_PENDING: list(self._named_ms), _WATERMARKS: sorted(self._watermarks.items())}

    def restore(self, lists: dict[str, list[Any]]) -> None:
        # The records of pending partitions do not come again (mutant "pending partitions not restored").
        self._named_ms = dict.fromkeys(lists.get(_PENDING, ()), 0)
        self._watermarks = dict(lists.get(_WATERMARKS, ()))

    def take_committable(self, checkpoint_id: int, now_ms: int) -> list[str]:
        watermark_ms = self._watermarks.get(checkpoint_id)
        if watermark_ms is None:
            known = ", ".join(map(str, sorted(self._watermarks))) or "none"
            raise StateError(
                f"the committer of partitions has no watermark of checkpoint {checkpoint_id} (it has: {known}), so it"
                " is unknown which partitions that checkpoint holds whole\n"
                "  it was announced before the committer's snapshot of it, or after that of a newer one"
            )
        self._watermarks = {known: value for known, value in self._watermarks.items() if known > checkpoint_id}
        return self._take_due(now_ms, watermark_ms)

    def fingerprint(self) -> object:
        return super().fingerprint(), tuple(sorted(self._watermarks.items()))
