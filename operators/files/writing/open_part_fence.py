"""Open parts of a checkpoint, given to the attempt that restores it, and to nobody else.

A part that was open in the checkpoint may still be written by a task of the failed attempt that nobody can reach (a
zombie), and a later checkpoint may have committed it. So nobody goes on writing *that* file: it is set aside, from
wherever it is, and this attempt gets a copy of what the checkpoint covers, under a hidden name of its own. A zombie
then writes to, and fails to commit, what nobody looks at. What is set aside stays until the part is visible, for the
next attempt may have to begin with the same checkpoint. (Hadoop's writer has leases for this.)
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from operators.files.writing.bucket import BucketState
from operators.files.writing.recoverable_writer import IN_PROGRESS, RecoverableWriter, ResumeHandle

_SET_ASIDE = ".setaside."

RETRACTED = ".retracted."
"""In the name of a file that was visible once. It stays: the checkpoint that had committed it may be restored yet."""


class OpenPartFence:
    """What one subtask has set aside. ``attempt``: incarnation and attempt that restores now."""

    def __init__(self, writer: RecoverableWriter, attempt: tuple[int, int]) -> None:
        self._writer = writer
        self._attempt = attempt
        self._set_aside: dict[str, list[str]] = {}
        """By target: files that are kept until it is visible."""
        self.retracted = 0
        """How many visible files were taken out of sight."""

    def keep(self, relative: str, target: str) -> None:
        """A file that was set aside for ``target``, now or by an earlier attempt."""
        known = self._set_aside.setdefault(target, [])
        if relative not in known:
            known.append(relative)

    def hide(self, relative: str) -> None:
        """Take a visible file out of readers' sight: its records will be replayed."""
        bucket_id, name = posixpath.split(relative)
        incarnation, attempt = self._attempt
        self._writer.rename(relative, posixpath.join(bucket_id, f".{name}{RETRACTED}{incarnation}-{attempt}"))
        self.retracted += 1

    def fence(self, states: Iterable[BucketState]) -> list[BucketState]:
        """Give every file that was open in the checkpoint to this attempt alone: the states with the copies in place of
        the files. Raises ``StorageError`` when a file has become shorter."""
        return [state if state.in_progress is None else self._fenced(state, *state.in_progress) for state in states]

    def _fenced(
        self, state: BucketState, temporary: str, target: str, size_bytes: int, created_at_ms: int
    ) -> BucketState:
        writer = self._writer
        # The last one: buckets and parts may be called by any name.
        beginning, _, unique = temporary.rpartition(IN_PROGRESS)
        kept = f"{beginning}{_SET_ASIDE}{unique}"
        visible = writer.exists(target)
        if visible and not writer.supports_resume() and writer.size(target) == size_bytes:
            # A restore from this very checkpoint has committed it as it was.
            return state
        if writer.exists(temporary):
            writer.rename(temporary, kept)
        if writer.exists(kept):
            if visible:
                self.hide(target)
        elif visible:
            writer.rename(target, kept)
            self.retracted += 1
        else:
            # Nothing is left of it, as the restore will find out.
            return state
        self._look_for_others(target)
        stream = writer.open_copy(kept, ResumeHandle(temporary, target, size_bytes))
        copy = stream.close_for_commit()
        return state._replace(in_progress=(*copy, created_at_ms))

    def _look_for_others(self, target: str) -> None:
        """Delete the copies of attempts that have restored the same checkpoint, and of zombies; keep what was set
        aside."""
        bucket_id, name = posixpath.split(target)
        for other in self._writer.names_in(bucket_id):
            if other.startswith(f".{name}{IN_PROGRESS}"):
                self._writer.delete(posixpath.join(bucket_id, other))
            elif other.startswith(f".{name}{_SET_ASIDE}"):
                self.keep(posixpath.join(bucket_id, other), target)

    def let_go(self, target: str) -> list[str]:
        """What was set aside for ``target``, which somebody else will delete when it is visible."""
        return self._set_aside.pop(target, [])

    def forget_committed(self) -> None:
        """Delete what was set aside for files that are visible now: a restore can begin with those."""
        for target in [target for target in self._set_aside if self._writer.exists(target)]:
            for relative in self.let_go(target):
                if self._writer.exists(relative):
                    self._writer.delete(relative)
