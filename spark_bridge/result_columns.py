"""The columns of the results of a Spark transform that declares none: those of its first batch hold for all.

They are state, so that a restored job does not take the columns of its next batch for the first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spark_bridge.errors import SparkBridgeError
from state_backends.api import OperatorStateBackend
from state_backends.base import list_of, row, text

Columns = Sequence[tuple[str, str]]
"""Names and types of Spark, in order."""

See = Callable[[Columns], None]
"""Is given the columns of a result before it is computed; raises :class:`SparkBridgeError` when they are wrong."""

_STATE = "spark-result-columns"


def shown_columns(columns: Columns) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


class FirstColumns:
    """``batch`` in the errors is the label of the first batch."""

    def __init__(self, backend: OperatorStateBackend) -> None:
        # Union state: each subtask of a transform by key knows the columns after a change of the parallelism.
        self._state = backend.union_list_state(_STATE, row(text, list_of(row(text, text))))
        self._batch, self._columns = "", tuple[tuple[str, str], ...]()
        for batch, columns in self._state.get()[:1]:
            self._batch, self._columns = batch, tuple((name, kind) for name, kind in columns)

    def check(self, batch: str, columns: Columns) -> None:
        """Raises :class:`SparkBridgeError` when the results of a batch have other columns than those of the first."""
        if not self._columns:
            self._batch, self._columns = batch, tuple(columns)
        elif tuple(columns) != self._columns:
            changes = "".join(f"\n  {change}" for change in self._changes(columns))
            raise SparkBridgeError(
                f"it returned other columns than for batch {self._batch!r}, the first one:{changes}\n"
                "  fix: select and cast the columns at the end of the function, so that every batch has the same; to go"
                f" on with the new ones, declare result_schema={shown_columns(columns)!r}"
            )

    def _changes(self, columns: Columns) -> Iterator[str]:
        before, now = dict(self._columns), dict(columns)
        for name, kind in now.items():
            if name not in before:
                yield f"column {name!r} is new: {kind}"
            elif before[name] != kind:
                yield f"column {name!r} is {kind}, and was {before[name]}"
        for name, kind in before.items():
            if name not in now:
                yield f"column {name!r} is missing, and was {kind}"
        if before == now:
            yield f"their order is {', '.join(now)}, and was {', '.join(before)}"

    def snapshot(self) -> None:
        """Bring the state up to date."""
        self._state.update([[self._batch, [list(one) for one in self._columns]]] if self._columns else [])

    def fingerprint(self) -> object:
        return self._columns
