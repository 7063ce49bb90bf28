"""Mistakes about state that is ahead of what a snapshot would copy: running values, and open windows of columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from operators.columns import ColumnWindowOperator
from state_backends.base import sharded_table
from state_backends.base.sharded_table import ShardedTable
from tests.mutants.mutant import replaced

# --- running values ----------------------------------------------------------------------------------------------


@contextmanager
def running_values_not_in_a_snapshot() -> Iterator[None]:
    """A snapshot has the key groups as they are, without the values that have run ahead of them."""
    snapshot = ShardedTable.snapshot

    def of_key_groups(table: Any) -> Any:
        running, is_ahead = table._running, table._ahead
        table._running, table._ahead = None, False
        try:
            return snapshot(table)
        finally:
            table._running, table._ahead = running, is_ahead
            table.stale += running is not None

    with replaced(ShardedTable, snapshot=of_key_groups):
        yield


@contextmanager
def keys_of_running_values_remembered() -> Iterator[None]:
    """The keys that a snapshot has found are those of all later ones."""
    begin = ShardedTable.begin_running

    def remembering(table: Any, key: Any, first: Any) -> Any:
        remembered = table._running_keys
        found = begin(table, key, first)
        table._running_keys = remembered
        return found

    with replaced(ShardedTable, begin_running=remembering):
        yield


@contextmanager
def running_values_shared() -> Iterator[None]:
    """A snapshot shares running values whose parts the function of the user goes on to change."""
    snapshot = ShardedTable.snapshot

    def sharing(table: Any) -> Any:
        with replaced(sharded_table, values_are_immutable=lambda values: True):
            return snapshot(table)

    with replaced(ShardedTable, snapshot=sharing):
        yield


# --- windows of columns ------------------------------------------------------------------------------------------


@contextmanager
def waiting_records_not_in_a_snapshot() -> Iterator[None]:
    """A snapshot has what is folded, without the records that wait for it."""
    snapshot = ColumnWindowOperator.snapshot_state

    def of_what_is_folded(operator: Any, checkpoint_id: int) -> None:
        windows = operator._windows
        operator._windows = {start: window for start, window in windows.items() if len(window.slots)}
        with replaced(ColumnWindowOperator, _fold=lambda operator, start, window: None):
            snapshot(operator, checkpoint_id)
        operator._windows = windows

    with replaced(ColumnWindowOperator, snapshot_state=of_what_is_folded):
        yield


@contextmanager
def fired_windows_forgotten() -> Iterator[None]:
    """After a restore no window has fired yet."""
    restore = ColumnWindowOperator._restore

    def forgetting(operator: Any, parts: Any, fired: Any) -> None:
        restore(operator, parts, {})

    with replaced(ColumnWindowOperator, _restore=forgetting):
        yield
