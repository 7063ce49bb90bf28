"""Which data files of a store are in checkpoint storage, and which of them a new checkpoint may refer to.

Pure bookkeeping: it takes notes of uploads, confirmations and aborts, and gives the base. The rules I1 to I8 are at the
top of :mod:`state_backends.rows.incremental`, which does the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from state_backends.snapshots import FileStateHandle, StateScope

NO_FILES: Mapping[str, FileStateHandle] = MappingProxyType({})
_NONE_COMPLETED = -1


class RestoredBase(NamedTuple):
    """The identity and files that a restored backend takes over from its snapshot.

    :ivar backend_id: the identity
    :ivar checkpoint_id: the number of the snapshot
    :ivar files: its data files in the shared scope, by name
    """

    backend_id: str
    checkpoint_id: int
    files: Mapping[str, FileStateHandle]


class UploadHistory:
    """The data files of each checkpoint in checkpoint storage, and those that a new checkpoint may refer to."""

    __slots__ = ("_chain_start", "_last", "_uploads")

    def __init__(self, restored: RestoredBase | None = None) -> None:
        self._uploads: dict[int, Mapping[str, FileStateHandle]] = {}
        self._last = _NONE_COMPLETED
        self._chain_start = _NONE_COMPLETED
        if restored is not None:
            self._uploads[restored.checkpoint_id] = dict(restored.files)
            self._last = restored.checkpoint_id

    @property
    def tracked(self) -> tuple[int, ...]:
        """The checkpoints whose files are remembered, ascending."""
        return tuple(sorted(self._uploads))

    @property
    def base_checkpoint(self) -> int | None:
        """The checkpoint that a new one may build on, if any."""
        return self._last if self._last in self._uploads else None

    def base(self) -> Mapping[str, FileStateHandle]:
        """The handles of the data files of that checkpoint, by name."""
        # Only of the last confirmed one: files of others may be deleted at any time (mutant "unconfirmed base").
        return self._uploads.get(self._last, NO_FILES)

    def uploaded(self, checkpoint_id: int, files: Mapping[str, FileStateHandle]) -> None:
        """A checkpoint has these data files in shared storage: its own uploads and the files it refers to."""
        assert checkpoint_id not in self._uploads, f"checkpoint {checkpoint_id} was taken twice"
        if checkpoint_id > self._last and checkpoint_id >= self._chain_start:
            self._uploads[checkpoint_id] = dict(files)

    def restart(self, checkpoint_id: int) -> None:
        """A checkpoint has no files at all: no later one may refer to files uploaded before it."""
        self._chain_start = max(self._chain_start, checkpoint_id)
        self._forget_before(self._chain_start)

    def complete(self, checkpoint_id: int) -> None:
        """A checkpoint is confirmed: it is the base, unless a newer one is. Unknown numbers change nothing."""
        # No remembered checkpoint is older than the last one.
        if checkpoint_id in self._uploads:
            self._last = checkpoint_id
            self._forget_before(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        """A checkpoint will never complete: its files will be deleted."""
        self._uploads.pop(checkpoint_id, None)

    def subsumed(self, checkpoint_id: int) -> None:
        """No restore will use the checkpoint: its uploads may be deleted, so it is no base any more. In the usual
        order of messages, a newer one is the base already."""
        self._forget_before(checkpoint_id + 1)

    def _forget_before(self, checkpoint_id: int) -> None:
        self._uploads = {known: files for known, files in self._uploads.items() if known >= checkpoint_id}

    def validate(self) -> None:
        for checkpoint_id, files in self._uploads.items():
            assert checkpoint_id >= max(self._last, self._chain_start, 0), self._uploads
            assert all(file.scope is StateScope.SHARED for file in files.values()), files
            # Two names never refer to the same copy.
            assert len({file.path for file in files.values()}) == len(files), files
