"""The candidates for a restore, best first, and the attempts to restore from them in this order.

Rules (PrioritizedOperatorSubtaskState, BackendRestorerProcedure in Flink):

* A1 Keyed state: first the handles of the checkpoint, each replaced by a local handle of the same key groups if there
  is one; then the handles of the checkpoint as they are. A local handle without counterpart is ignored.
* A2 All other state: a local handle is used only when the checkpoint has exactly one handle and both divide their bytes
  in the same way. Otherwise the job was rescaled.
* A3 The candidate without local handles is always the last one. Without remote state there is no local state either.
* A4 Candidates are tried in order, each with a fresh backend. After a failure that backend is closed and the next
  candidate is tried. When all have failed, the error lists the reasons. A cancelled task stops trying.

A backend always restores from *remote* handles; a candidate's reader opens local copies where the candidate has them.
So the files that later checkpoints refer to do not depend on where the bytes came from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Generic, TypeVar

from state_backends.base import KeyGroupRange, RestoreCancelledError, StateRestoreError
from state_backends.snapshots.contract import StateReader
from state_backends.snapshots.handles import OperatorStateHandle, StreamStateHandle
from state_backends.snapshots.keyed_handles import KeyedStateHandle

Handle = TypeVar("Handle")
Backend = TypeVar("Backend")
RestoredHandle = TypeVar("RestoredHandle", KeyedStateHandle, OperatorStateHandle)


def keyed_alternatives(
    remote: Sequence[KeyedStateHandle], alternatives: Sequence[Sequence[KeyedStateHandle]]
) -> list[list[KeyedStateHandle]]:
    """Candidates for keyed state, best first (A1).

    :param remote: the handles in the checkpoint
    :param alternatives: local handles, best first
    """
    places: dict[KeyGroupRange, list[int]] = {}
    for place, handle in enumerate(remote):
        places.setdefault(handle.key_group_range, []).append(place)
    mixed = list(remote)
    replaced = False
    for alternative in alternatives:
        for handle in alternative:
            if free := places.get(handle.key_group_range):
                mixed[free.pop(0)] = handle
                replaced = True
    return [mixed, list(remote)] if replaced else [list(remote)]


def single_alternatives(
    remote: Sequence[Handle], alternatives: Sequence[Sequence[Handle]], is_same: Callable[[Handle, Handle], bool]
) -> list[list[Handle]]:
    """Candidates for state that is not keyed, best first (A2).

    :param is_same: whether a local handle (second) divides its bytes as the handle in the checkpoint (first) does
    """
    if len(remote) != 1:
        return [list(remote)]
    fitting = [list(one) for one in alternatives if len(one) == 1 and is_same(remote[0], one[0])]
    return [*fitting, list(remote)]


class LocalFirstReader:
    """Opens the local copy of a stream in checkpoint storage if there is one, otherwise the stream itself."""

    def __init__(
        self, remote: StateReader, local: StateReader, copies: Mapping[StreamStateHandle, StreamStateHandle]
    ) -> None:
        self._remote = remote
        self._local = local
        self._copies = copies

    def open(self, handle: StreamStateHandle) -> BinaryIO:
        copy = self._copies.get(handle)
        return self._remote.open(handle) if copy is None else self._local.open(copy)


@dataclass(frozen=True)
class RestoreCandidate(Generic[RestoredHandle]):
    """One way to restore some state.

    :ivar handles: as in the checkpoint
    :ivar reader: opens them
    :ivar local_handles: the number of handles that are read from a local copy
    """

    handles: tuple[RestoredHandle, ...]
    reader: StateReader
    local_handles: int = 0

    @property
    def source(self) -> str:
        """Its name in errors."""
        return "checkpoint storage" if self.local_handles == 0 else "the local copy"


def remote_only(handles: Sequence[RestoredHandle], reader: StateReader) -> list[RestoreCandidate[RestoredHandle]]:
    """The only candidate when there are no local copies."""
    return [RestoreCandidate(tuple(handles), reader)]


ReportRestore = Callable[[RestoreCandidate[RestoredHandle], Sequence[Exception]], None]
"""Called with the candidate that was restored, and the errors of those before it."""


def restore_backend(
    candidates: Sequence[RestoreCandidate[RestoredHandle]],
    create: Callable[[int], Backend],
    restore: Callable[[Backend, RestoreCandidate[RestoredHandle]], None],
    dispose: Callable[[Backend], None] | None = None,
    *,
    is_cancelled: Callable[[], bool] | None = None,
    report: ReportRestore[RestoredHandle] | None = None,
) -> Backend:
    """A backend restored from the first candidate that works (A4).

    :param candidates: best first, at least one
    :param create: makes a fresh backend for the n-th attempt, counted from 0; no two may share names of files
    :param restore: fills a backend
    :param dispose: closes a partly filled backend
    :param is_cancelled: whether the task was cancelled meanwhile
    :param report: called after success
    :raises StateRestoreError: when all of several candidates failed; when the only one fails, its own error is raised
    :raises RestoreCancelledError: when an attempt failed and the task was cancelled
    """
    assert candidates, "there is always the remote candidate"
    problems: list[Exception] = []
    for attempt, candidate in enumerate(candidates):
        try:
            backend = _attempt(attempt, candidate, create, restore, dispose)
        except AssertionError:
            raise
        except Exception as problem:
            if is_cancelled is not None and is_cancelled():
                raise RestoreCancelledError("the task was cancelled while its state was restored.") from problem
            if len(candidates) == 1:
                raise
            problems.append(problem)
            continue
        if report is not None:
            report(candidate, problems)
        return backend
    reasons = [f"from {one.source}: {problem}" for one, problem in zip(candidates, problems, strict=True)]
    raise StateRestoreError(reasons) from problems[-1]


def _attempt(
    attempt: int,
    candidate: RestoreCandidate[RestoredHandle],
    create: Callable[[int], Backend],
    restore: Callable[[Backend, RestoreCandidate[RestoredHandle]], None],
    dispose: Callable[[Backend], None] | None,
) -> Backend:
    backend = create(attempt)
    try:
        restore(backend, candidate)
    except Exception as problem:
        if dispose is not None:
            try:
                dispose(backend)
            except OSError as another:
                problem.add_note(f"what was restored in part could not be deleted: {another}")
        raise
    return backend
