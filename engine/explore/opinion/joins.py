"""Interval joins and regular joins (docs/joins.md). Window joins are windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.elements.batch import MIN_TIMESTAMP_MS
from engine.explore.opinion.elements import EvaluatedStep, NotModelled, Record, Spec


class _Pair:
    """The context of the function over a pair."""

    def __init__(self, step: EvaluatedStep, left_ms: int, right_ms: int) -> None:
        self._step, self.left_timestamp_ms, self.right_timestamp_ms = step, left_ms, right_ms
        self.timestamp_ms = max(left_ms, right_ms)

    def side_output(self, tag: str, value: Any) -> None:
        self._step.emit(value, self.timestamp_ms, tag)


class IntervalPairs(EvaluatedStep):
    """Pairs of one key with ``lower <= right - left <= upper``, each once, with the greater of both times.

    A record below the watermark is late and meets no other. A record in time must be kept as long as another record in
    time can still meet it. Keeping it longer changes no result, so here it is kept for ever.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._kept: tuple[dict[Any, list[tuple[int, Any]]], ...] = ({}, {})

    def on_record(self, record: Record, which: int) -> None:
        given = self.spec.given
        stamp, key = record.stamp, record.key
        assert stamp is not None, "an interval join needs event times"
        if stamp < self.watermark_ms != MIN_TIMESTAMP_MS:
            tag = given.get(("late_left_tag", "late_right_tag")[which])
            if tag is not None:
                self.emit(record.value, stamp, tag)
            return
        self._kept[which].setdefault(key, []).append((stamp, record.value))
        for other_ms, other in sorted(self._kept[1 - which].get(key, ()), key=lambda one: one[0]):
            times = (other_ms, stamp) if which else (stamp, other_ms)
            if given["interval"].lower_ms <= times[1] - times[0] <= given["interval"].upper_ms:
                pair = (other, record.value) if which else (record.value, other)
                self.emit_all(given["process"](*pair, _Pair(self, *times)), max(times))


class RegularJoin(EvaluatedStep):
    """All pairs of one key, as changes. A row of a side that an outer join keeps is emitted with ``None`` while it has
    no partner."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        kind = spec.given.get("kind", "inner")
        if spec.given.get("ttl_ms") is not None:
            raise NotModelled("its rows expire by the virtual clock, which depends on costs and schedules")
        self._outer = (kind in ("left", "full"), kind in ("right", "full"))
        self._rows: tuple[dict[Any, list[Any]], ...] = ({}, {})

    def on_record(self, record: Record, which: int) -> None:
        value, adds = record.value, True
        if self.spec.given.get("changes"):
            adds, value = value[0] in ("+I", "+U"), value[1]
        mine = self._rows[which].setdefault(record.key, [])
        others = self._rows[1 - which].setdefault(record.key, [])
        if not adds:
            # Of equal rows the oldest is removed; removing a row that is not there has no effect.
            at = next((at for at, row in enumerate(mine) if row == value or repr(row) == repr(value)), None)
            if at is None:
                return
            del mine[at]
        met = [other for other in others if self._meets(value, other, which)]
        kind, opposite = ("+I", "-D") if adds else ("-D", "+I")
        if not met and self._outer[which]:
            self._send(kind, value, None, which, record)
        for other in met:
            alone = self._outer[1 - which] and not any(self._meets(row, other, which) for row in mine)
            if alone and adds:
                self._send(opposite, None, other, which, record)
            self._send(kind, value, other, which, record)
            if alone and not adds:
                self._send(opposite, None, other, which, record)
        if adds:
            mine.append(value)

    def _meets(self, row: Any, other: Any, which: int) -> bool:
        condition = self.spec.given.get("condition")
        return condition is None or bool(condition(*((other, row) if which else (row, other))))

    def _send(self, kind: str, row: Any, other: Any, which: int, record: Record) -> None:
        self.emit((kind, (other, row) if which else (row, other)), record.stamp)


STEPS: dict[str, Callable[[Spec], EvaluatedStep]] = {
    "operators.joins.interval_join.IntervalJoinOperator": IntervalPairs,
    "operators.joins.regular_join.RegularJoinOperator": RegularJoin,
}
