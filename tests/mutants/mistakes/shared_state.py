"""Mistakes about files that several checkpoints share, and about the log of changes: gone too early, or never."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.checkpoint.coordinator.checkpoint_ending import CheckpointEnding
from engine.checkpoint.coordinator.shared_state_registry import SharedStateRegistry, Unused
from state_backends.changelog.history import LogHistory
from state_backends.changelog.keyed_backend import ChangelogKeyedStateBackend
from state_backends.changelog.log import ChangeLog
from state_backends.rows import UploadHistory
from state_backends.rows.upload_history import NO_FILES
from tests.mutants.mutant import replaced

# --- shared files ------------------------------------------------------------------------------------------------


@contextmanager
def placeholders_do_not_count() -> Iterator[None]:
    """A checkpoint that refers to an older file by a placeholder does not count as its user."""
    register = SharedStateRegistry.register

    def uncounted(registry: Any, state: Any, checkpoint_id: int) -> Any:
        entry = registry._entries.get(state.key)
        before = None if entry is None else entry.last_used
        registered = register(registry, state, checkpoint_id)
        if entry is not None and before is not None and state.is_placeholder:
            entry.last_used = before
        return registered

    with replaced(SharedStateRegistry, register=uncounted):
        yield


@contextmanager
def files_outlive_their_last_user() -> Iterator[None]:
    """The registry forgets a file with the last checkpoint that used it, without deleting it."""
    unregister = SharedStateRegistry.unregister_unused

    def leaking(registry: Any, lowest_id: int | None) -> Unused:
        lent = [entry.handle for entry in registry._entries.values() if entry.last_used > entry.created_by]
        unused = unregister(registry, lowest_id)
        return unused._replace(handles=tuple(one for one in unused.handles if one not in lent))

    with replaced(SharedStateRegistry, unregister_unused=leaking):
        yield


@contextmanager
def aborted_uploads_forgotten() -> Iterator[None]:
    """An aborted checkpoint takes its uploads out of the registry, and nothing deletes them."""
    abort = CheckpointEnding.abort

    def forgetting(ending: Any, pending: Any, *why: Any, **more: Any) -> None:
        abort(ending, pending, *why, **more)
        entries, aborted = ending._retained._registry._entries, pending.checkpoint_id
        for key in [key for key, one in entries.items() if one.created_by == one.last_used == aborted]:
            del entries[key]

    with replaced(CheckpointEnding, abort=forgetting):
        yield


@contextmanager
def unconfirmed_base() -> Iterator[None]:
    """An incremental snapshot builds upon the last one that was taken, confirmed or not."""

    def newest(history: Any) -> Any:
        return history._uploads[max(history._uploads)] if history._uploads else NO_FILES

    with replaced(UploadHistory, base=newest):
        yield


# --- the changelog -----------------------------------------------------------------------------------------------


@contextmanager
def log_not_cut_for_a_materialisation() -> Iterator[None]:
    """A materialisation begins in the middle of a segment, whose changes it holds and which is replayed all the
    same."""
    materialize = ChangelogKeyedStateBackend.materialize

    def uncut(backend: Any) -> Any:
        with replaced(ChangeLog, cut=lambda log: None):
            return materialize(backend)

    with replaced(ChangelogKeyedStateBackend, materialize=uncut):
        yield


@contextmanager
def log_truncated_up_to_what_is_unconfirmed() -> Iterator[None]:
    """The log is truncated up to the newest materialisation, before any completed checkpoint refers to that."""
    collect = LogHistory._collect

    def hasty(history: Any) -> Any:
        confirmed = history._materializations[history._confirmed]
        upto, confirmed.upto = confirmed.upto, history.materialized_upto
        try:
            return collect(history)
        finally:
            confirmed.upto = upto

    with replaced(LogHistory, _collect=hasty):
        yield
