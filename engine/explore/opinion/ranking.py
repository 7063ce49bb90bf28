"""Deduplication and top-n, as changes (docs/ranking.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from engine.explore.opinion.elements import EvaluatedStep, NotModelled, Record, Spec
from engine.explore.opinion.plain_state import Timers, by_encoding


class _Kept(EvaluatedStep):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        if spec.given.get("ttl_ms") is not None:
            raise NotModelled("its keys expire by the virtual clock, which depends on costs and schedules")
        self.kept: dict[Any, Any] = {}


class First(_Kept):
    """The first record of each key, on arrival."""

    def on_record(self, record: Record, which: int) -> None:
        if record.key not in self.kept:
            self.kept[record.key] = True
            self.emit(record.value, record.stamp)


class Best(_Kept):
    """As changes: the last record of a key by arrival, or the first or last by event time. At equal times, arrival
    decides."""

    def on_record(self, record: Record, which: int) -> None:
        keeps_last = self.spec.given["keep"] == "last"
        time_ms = 0 if self.spec.given["time"] == "processing" else record.stamp
        before = self.kept.get(record.key)
        if before is None:
            self.emit(("+I", record.value), record.stamp)
        elif (before[0] <= time_ms) if keeps_last else (time_ms < before[0]):
            self.emit(("-U", before[1]), record.stamp)
            self.emit(("+U", record.value), record.stamp)
        else:
            return
        self.kept[record.key] = (time_ms, record.value)


class FirstInTime(_Kept):
    """The record with the least timestamp of each key, once the watermark has reached it. Others of the key are
    dropped, and so are records at or below the watermark."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._timers = Timers()

    def on_record(self, record: Record, which: int) -> None:
        before = self.kept.get(record.key)
        assert record.stamp is not None
        if record.stamp > self.watermark_ms and (before is None or record.stamp < before[0]):
            self.kept[record.key] = (record.stamp, record.value)
            self._timers.add(record.stamp, record.key)

    def on_watermark(self, ms: int) -> None:
        while (timer := self._timers.next_due(ms)) is not None:
            time_ms, key, _ = timer
            if self.kept[key][0] == time_ms:
                # Any further record has a later time, or is late: none is less.
                self.emit(self.kept[key][1], time_ms)


class TopN(_Kept):
    """The ``n`` greatest records of each key, or the least, as changes. Equal records are ranked by their encoding."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._sign = 1 if spec.given.get("ascending") else -1

    def _before(self, one: Any, other: Any) -> int:
        by = self.spec.given["by"]
        first, second = by(one), by(other)
        if first == second:
            return -1 if by_encoding(one) < by_encoding(other) else 1
        return self._sign * (-1 if first < second else 1)

    def on_record(self, record: Record, which: int) -> None:
        n, value, changes = self.spec.given["n"], record.value, self.spec.given.get("changes")
        rows = list(self.kept.get(record.key, ()))
        before = rows[:n]
        if changes and value[0] in ("-U", "-D"):
            at = next((at for at, row in enumerate(rows) if by_encoding(row) == by_encoding(value[1])), None)
            if at is None:
                return
            del rows[at]
        else:
            rows = sorted([*rows, value[1] if changes else value], key=cmp_to_key(self._before))
        self.kept[record.key] = rows if changes else rows[:n]
        differences = _ranked if self.spec.given.get("with_rank", True) else _unranked
        for change in differences(before, rows[:n]):
            self.emit(change, record.stamp)


def _ranked(before: list[Any], after: list[Any]) -> list[Any]:
    """Rank by rank: a rank with another record is updated, a new rank inserted, a rank that is gone deleted."""
    changes: list[Any] = []
    for at in range(max(len(before), len(after))):
        if at >= len(after):
            changes.append(("-D", (at + 1, before[at])))
        elif at >= len(before):
            changes.append(("+I", (at + 1, after[at])))
        elif by_encoding(before[at]) != by_encoding(after[at]):
            changes += [("-U", (at + 1, before[at])), ("+U", (at + 1, after[at]))]
    return changes


def _unranked(before: list[Any], after: list[Any]) -> list[Any]:
    """Records that left, then records that entered."""
    left, come = list(before), []
    for row in after:
        same = next((at for at, one in enumerate(left) if by_encoding(one) == by_encoding(row)), None)
        if same is None:
            come.append(row)
        else:
            del left[same]
    return [*(("-D", row) for row in left), *(("+I", row) for row in come)]


STEPS: dict[str, Callable[[Spec], EvaluatedStep]] = {
    "operators.ranking.deduplication.KeepFirstOperator": First,
    "operators.ranking.deduplication.KeepBestOperator": Best,
    "operators.ranking.deduplication.FirstByWatermarkOperator": FirstInTime,
    "operators.ranking.top_n.TopNOperator": TopN,
}
