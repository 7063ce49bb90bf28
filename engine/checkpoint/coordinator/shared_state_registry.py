"""Which files several checkpoints share, and when each may be deleted (Flink: ``SharedStateRegistryImpl``).

Not a counter: every key remembers its file, the checkpoint that brought it (*created by*) and the newest one that
uses it (*last used*). That survives messages that come late, twice, or for a checkpoint that is long gone.

Rules
-----
G1  Registering an unknown key stores the file, created by and last used by that checkpoint; a placeholder for an
    unknown key is an error. Under a known key a placeholder stands for the stored file. An equal file is fine, any
    other one is an error, except that a marker gives way to a real file. *Last used* only grows. The flag that keeps
    the creator is ignored at the first registration and sticks once set.
G2  Keys come from physical locations. Two uploads of equal content have two keys.
G3  ``unregister_unused(lowest)`` forgets every entry last used below ``lowest``; its file is deleted if it was
    created above the highest snapshot that was restored without a claim. Of the entries that stay, those created by
    a restored snapshot that shares nothing, or with the flag, put this snapshot *in use*: it must not be discarded.
G4  The files of snapshots restored in mode LEGACY (or NO_CLAIM, should one be registered) are never deleted.
G5  A marker has nothing to delete. It stands for a whole handle, to show that "something of this snapshot is still
    referenced".
G8  Once a message is registered, discarding it deletes its private files only. Before, it deletes its uploads too,
    but never a placeholder.
G9  After ``close`` every registration fails; the caller then discards the message.

(G6 and G7, the times of all this, are rules of the coordinator.) Invariant: a file that is reachable from a retained
checkpoint, or acknowledged for a pending one that can still complete, exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import NamedTuple

from engine.elements.errors import StateError
from state_backends.base import value_class


class RestoreMode(Enum):
    """Who owns a snapshot that a job was started from (Flink: ``RestoreMode``)."""

    CLAIM = "claim"
    NO_CLAIM = "no-claim"
    LEGACY = "legacy"


class SharingFilesStrategy(Enum):
    """Which files a snapshot may use and lend (Flink: ``SnapshotType.SharingFilesStrategy``)."""

    FORWARD_BACKWARD = "uses older files, and later snapshots may use its own"
    FORWARD = "uses no older files, but later snapshots may use its own"
    NO_SHARING = "uses none and lends none"


class SharedStateError(StateError):
    """Shared state cannot be registered."""


class UnknownPlaceholderError(SharedStateError):
    """A message refers to a file that the registry does not know (any more)."""

    def __init__(self, key: str, checkpoint_id: int) -> None:
        super().__init__(
            f"checkpoint {checkpoint_id} refers to shared state {key!r}, which is not registered: it was deleted when "
            "the last checkpoint that used it was subsumed\n  the checkpoint cannot complete; the next one uploads it"
        )


class HandleMismatchError(SharedStateError):
    """Two different files claim one key."""

    def __init__(self, key: str, checkpoint_id: int, stored: object, offered: object) -> None:
        super().__init__(
            f"checkpoint {checkpoint_id} brings {offered!r} as shared state {key!r}, but that is {stored!r}\n"
            "  a key names one file for ever: file names must not repeat"
        )


class RegistryClosedError(SharedStateError):
    """The job is over."""

    def __init__(self, key: str, checkpoint_id: int) -> None:
        super().__init__(f"shared state {key!r} of checkpoint {checkpoint_id} comes after the end of the job")


@value_class
class SharedState:
    """One reference to shared state, as in a task's message.

    ``handle``         the uploaded file, equal only to itself; ``None``: a placeholder for the registered file;
    ``is_marker``      nothing to delete (G5); ``handle`` is ``None`` then too;
    ``keeps_creator``  private files of the creator are used through this, so it must stay (G1).
    """

    key: str
    handle: object = None
    is_marker: bool = False
    keeps_creator: bool = False

    def __post_init__(self) -> None:
        assert not self.is_marker or self.handle is None, self

    @classmethod
    def marker(cls, uid: str, subtask: int, checkpoint_id: int) -> SharedState:
        """Stands for the whole keyed state of one subtask of an operator in a checkpoint (G5)."""
        return cls(f"keyed state of {uid}[{subtask}] in {checkpoint_id}", is_marker=True)

    @property
    def is_placeholder(self) -> bool:
        """Whether it names a file that an earlier message brought."""
        return self.handle is None and not self.is_marker


@dataclass(slots=True)
class _Entry:
    handle: object
    created_by: int
    last_used: int
    keeps_creator: bool = False


class Unused(NamedTuple):
    """``handles`` are to be deleted; the snapshots ``in_use`` must not be discarded, although subsumed."""

    handles: tuple[object, ...]
    in_use: tuple[int, ...]


class SharedStateRegistry:
    """All shared state of one job; see the rules at the top of the module."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._restored: dict[int, SharingFilesStrategy] = {}
        self._highest_not_claimed = -1
        self.is_open = True
        """Whether anything may still be registered."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Everything registered, in the order of first registration."""
        return tuple(self._entries)

    def register(self, state: SharedState, checkpoint_id: int) -> SharedState:
        """``checkpoint_id`` uses ``state``; returns it with the file that stands under its key from now on.

        :raises RegistryClosedError: after :meth:`close`
        :raises UnknownPlaceholderError: for a placeholder whose file is not registered
        :raises HandleMismatchError: when another file is registered under the key
        """
        if not self.is_open:
            raise RegistryClosedError(state.key, checkpoint_id)
        entry = self._entries.get(state.key)
        if entry is None:
            if state.is_placeholder:
                raise UnknownPlaceholderError(state.key, checkpoint_id)
            self._entries[state.key] = _Entry(state.handle, checkpoint_id, checkpoint_id)
            return state
        if not state.is_placeholder and state.handle != entry.handle:
            if entry.handle is not None:
                raise HandleMismatchError(state.key, checkpoint_id, entry.handle, state.handle)
            entry.handle = state.handle
        # A placeholder is a use as well (mutant "placeholders do not count").
        entry.last_used = max(entry.last_used, checkpoint_id)
        entry.keeps_creator = entry.keeps_creator or state.keeps_creator
        is_marker = entry.handle is None
        if state.handle is entry.handle and state.is_marker == is_marker:
            return state
        return SharedState(state.key, entry.handle, is_marker, state.keeps_creator)

    def register_all(self, states: Iterable[SharedState], checkpoint_id: int) -> tuple[SharedState, ...]:
        """:meth:`register` for each. An error leaves those before it registered: they were uploaded, and the next
        completion collects them."""
        return tuple([self.register(state, checkpoint_id) for state in states])

    def register_restored(
        self, states: Iterable[SharedState], checkpoint_id: int, mode: RestoreMode, sharing: SharingFilesStrategy
    ) -> None:
        """Register the states that a restored snapshot uses; errors as in :meth:`register`."""
        self.register_all(states, checkpoint_id)
        self._restored[checkpoint_id] = sharing
        if mode is not RestoreMode.CLAIM:
            self._highest_not_claimed = max(self._highest_not_claimed, checkpoint_id)

    def unregister_unused(self, lowest_id: int | None) -> Unused:
        """Forget entries that no checkpoint from ``lowest_id`` on uses; ``None``: everything, since none is left."""
        unused: list[object] = []
        in_use: dict[int, None] = {}
        for key, entry in list(self._entries.items()):
            # By the last use, not by the creator (mutant "deleted while referenced").
            if lowest_id is None or entry.last_used < lowest_id:
                del self._entries[key]
                if entry.handle is not None and entry.created_by > self._highest_not_claimed:
                    # Only this place deletes it (mutant "files outlive their last user").
                    unused.append(entry.handle)
            elif self._keeps_its_creator(entry):
                in_use[entry.created_by] = None
        return Unused(tuple(unused), tuple(sorted(in_use)))

    def _keeps_its_creator(self, entry: _Entry) -> bool:
        sharing = self._restored.get(entry.created_by)
        return sharing is not None and (sharing is SharingFilesStrategy.NO_SHARING or entry.keeps_creator)

    def close(self) -> None:
        """The job is over: nothing is registered any more."""
        self.is_open = False

    def validate(self) -> None:
        for key, entry in self._entries.items():
            assert entry.created_by <= entry.last_used, (key, entry)
        assert self._highest_not_claimed == -1 or self._highest_not_claimed in self._restored, self._restored

    def fingerprint(self) -> tuple[object, ...]:
        """All state that determines future behaviour. A key stands for its file (G2). Keys are sorted: their order
        is only that in which unused files are deleted."""
        return (
            tuple(
                (key, entry.handle is None, entry.created_by, entry.last_used, entry.keeps_creator)
                for key, entry in sorted(self._entries.items(), key=itemgetter(0))
            ),
            tuple((checkpoint_id, sharing.name) for checkpoint_id, sharing in sorted(self._restored.items())),
            self._highest_not_claimed,
            self.is_open,
        )
