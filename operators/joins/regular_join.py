"""Regular join: all pairs of records of two streams with the same key, at any distance in time.

(Flink: ``StreamingJoinOperator``.)

Rules.

* Both sides are kept, for ever or with a time-to-live; state grows with the input.
* Results are changes ``(kind, (left, right))``. An outer join emits a record without a partner as ``(left, None)``.
  When the first partner comes, the join deletes that result (``-D``) before it adds the pair.
* With ``changes=True`` the inputs are changes, too: the retraction of a row deletes its pairs, and a row of the other
  side that loses its last partner is emitted with ``None`` again. The retraction of an unknown row (expired, say) has
  no effect and is counted (``numUnknownRetractions``).
* Equal rows are separate rows; a retraction removes the oldest.
* Results of one record leave in the order in which the rows of the other side came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.operator import TwoInputOperator
from operators.basic import item_in_hand
from operators.ranking import DELETE, INSERT, adds, find_row
from state_backends.api import MapState
from state_backends.base import MapStateDescriptor, StateTtlConfig

INNER, LEFT, RIGHT, FULL = "inner", "left", "right", "full"
KINDS = (INNER, LEFT, RIGHT, FULL)

NUMBERED_KEYS = 10_000
"""For this many keys of each side the next number is kept in memory; for others it is read from their rows."""


class _Side(NamedTuple):
    """One input. ``rows``: number of arrival -> (row, its number of partners on the other side); ``is_outer``: whether
    rows without a partner are emitted; ``next_numbers``: the next number of recently written keys, which saves reading
    their rows."""

    rows: MapState
    is_outer: bool
    is_left: bool
    next_numbers: dict[Any, int]

    def result(self, row: Any, other: Any) -> tuple[Any, Any]:
        """A row of this side beside one of the other."""
        return (row, other) if self.is_left else (other, row)

    def in_order(self) -> list[tuple[int, tuple[Any, int]]]:
        """The rows of the current key, oldest first."""
        return sorted(self.rows.entries(), key=lambda entry: entry[0])

    def add(self, key: Any, row: Any, met: int) -> None:
        """Keep a row of the current key."""
        # A counter in state would not do: rows expire one by one, and a counter that expires before the last of them
        # would give a number twice.
        number = self.next_numbers.get(key)
        if number is None:
            # Derived from the rows after a restore, too (mutant "rows of a join numbered anew").
            number = max(self.rows.keys(), default=-1) + 1
            if len(self.next_numbers) >= NUMBERED_KEYS:
                self.next_numbers.clear()
        self.next_numbers[key] = number + 1
        self.rows.put(number, (row, met))

    def remove(self, key: Any, number: int) -> None:
        """Remove a row of the current key. The next number then follows from the remaining rows."""
        self.rows.remove(number)
        self.next_numbers.pop(key, None)

    def find(self, row: Any) -> int | None:
        """The number of the oldest equal row."""
        entries = self.in_order()
        position = find_row([found for _, (found, _) in entries], row)
        return None if position is None else entries[position][0]


class RegularJoinOperator(TwoInputOperator):
    """``kind``: which sides keep rows without a partner; ``condition(left, right)``: which are partners."""

    def __init__(
        self,
        kind: str = INNER,
        *,
        condition: Callable[[Any, Any], Any] | None = None,
        ttl_ms: int | None = None,
        changes: bool = False,
    ) -> None:
        if kind not in KINDS:
            raise ConfigurationError(f"join: kind must be one of {', '.join(KINDS)}, got {kind!r}")
        self._kind = kind
        self._condition = condition
        self._ttl = None if ttl_ms is None else StateTtlConfig(ttl_ms)
        self._changes = changes

    def initialize_state(self) -> None:
        self._backend = self.context.keyed_backend()
        self._left = self._side("left", self._kind in (LEFT, FULL), is_left=True)
        self._right = self._side("right", self._kind in (RIGHT, FULL), is_left=False)

    def _side(self, name: str, is_outer: bool, *, is_left: bool) -> _Side:
        backend, ttl = self._backend, self._ttl
        return _Side(backend.map_state(MapStateDescriptor(f"{name}-rows", ttl=ttl)), is_outer, is_left, {})

    def process_batch_1(self, batch: Batch) -> None:
        self._join(self._left, self._right, batch)

    def process_batch_2(self, batch: Batch) -> None:
        self._join(self._right, self._left, batch)

    def _join(self, side: _Side, other: _Side, batch: Batch) -> None:
        keys, stamps = batch.keys, batch.timestamps
        if not batch:
            return
        assert keys is not None, "a regular join needs key_by before it"
        out: list[Any] = []
        counts: list[int] = []
        iterator = iter(batch.values)
        try:
            for key, value in zip(keys, iterator, strict=False):
                self._backend.set_current_key(key)
                before = len(out)
                if not self._changes:
                    self._insert(side, other, key, value, out)
                elif adds(value):
                    self._insert(side, other, key, value[1], out)
                else:
                    self._delete(side, other, key, value[1], out)
                counts.append(len(out) - before)
        except Exception as error:
            raise self.user_error("join", item_in_hand(batch.values, iterator), error) from error
        if out:
            out_stamps = None
            if stamps is not None:
                out_stamps = [stamp for stamp, count in zip(stamps, counts, strict=True) for _ in range(count)]
            self.output.emit(Batch(out, out_stamps))

    def _matches(self, side: _Side, other: _Side, row: Any) -> list[tuple[int, tuple[Any, int]]]:
        found, condition = other.in_order(), self._condition
        if condition is None:
            return found
        return [entry for entry in found if condition(*side.result(row, entry[1][0]))]

    def _insert(self, side: _Side, other: _Side, key: Any, row: Any, out: list[Any]) -> None:
        matches = self._matches(side, other, row)
        if not matches and side.is_outer:
            out.append((INSERT, side.result(row, None)))
        for number, (found, met) in matches:
            if other.is_outer:
                if not met:
                    out.append((DELETE, side.result(None, found)))
                other.rows.put(number, (found, met + 1))
            out.append((INSERT, side.result(row, found)))
        side.add(key, row, len(matches))

    def _delete(self, side: _Side, other: _Side, key: Any, row: Any, out: list[Any]) -> None:
        own = side.find(row)
        if own is None:
            self.context.metrics.count("numUnknownRetractions")
            return
        side.remove(key, own)
        matches = self._matches(side, other, row)
        if not matches and side.is_outer:
            out.append((DELETE, side.result(row, None)))
        for number, (found, met) in matches:
            out.append((DELETE, side.result(row, found)))
            if other.is_outer:
                other.rows.put(number, (found, met - 1))
                if met == 1:
                    out.append((INSERT, side.result(None, found)))
