"""Change records: how a changing result travels on a stream (Flink: ``RowKind``, changelogs).

A change is the tuple ``(kind, row)``. ``"+I"`` adds a row, ``"-D"`` removes one; ``"-U"`` and ``"+U"`` are the two
halves of an update: the old row, and the new one. A receiver that applies all changes in order has the present result;
one that applies a prefix has the result of that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine.elements.errors import StateError, shorten

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "+I", "-U", "+U", "-D"

Change = tuple[str, Any]
"""(kind, row)."""

_ADDS = {INSERT: True, UPDATE_AFTER: True, UPDATE_BEFORE: False, DELETE: False}


def adds(change: Any) -> bool:
    """Whether a change adds its row. Raises ``TypeError`` for a value that is not a change."""
    if not isinstance(change, tuple) or len(change) != 2 or change[0] not in _ADDS:
        raise TypeError(f"a change is a tuple (kind, row) with a kind out of {', '.join(_ADDS)}, not {shorten(change)}")
    return _ADDS[change[0]]


def find_row(rows: Sequence[Any], row: Any) -> int | None:
    """The first position of a row; ``None`` when it is not there. After a snapshot, a NaN does not even equal itself,
    so such rows are found by their text."""
    if row in rows:
        return rows.index(row)
    reads = repr(row)
    return next((position for position, one in enumerate(rows) if repr(one) == reads), None)


def materialize(changes: Iterable[Change]) -> list[Any]:
    """The rows that remain after all changes, in the order in which they were added.

    Raises :class:`StateError` when a change removes a row that is not there.
    """
    rows: list[Any] = []
    for change in changes:
        if adds(change):
            rows.append(change[1])
            continue
        # The newest of equal rows, which cannot be told apart.
        from_behind = find_row(rows[::-1], change[1])
        if from_behind is None:
            raise StateError(
                f"{shorten(change)} takes away a row that is not there: changes are missing or out of order"
            )
        del rows[len(rows) - 1 - from_behind]
    return rows
