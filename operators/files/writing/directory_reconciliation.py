"""Handles the files that failed attempts have left in the directory of a restored file sink.

Flink leaves them there: hidden files of checkpoints that never completed stay for ever. And a restore from an older
checkpoint, after newer ones had committed files, repeats their records. This step comes before the restore, and resets
the directory to exactly the files of the checkpoint:

* Hidden files that earlier attempts opened after the checkpoint are deleted: no checkpoint can commit them any more.
* Visible files opened after the checkpoint, which a *later* checkpoint has committed, are hidden again: their records
  will be replayed.
* A file that was open in the checkpoint is given to this attempt alone (``OpenPartFence``).
* Without any counters no checkpoint of this sink has completed. Then visible files belong to another job: an error.

Part ``c`` of subtask ``s`` was opened after the checkpoint if ``c`` is at least the counter of ``s`` in it; in a
bucket that was active then, at least the bucket's own counter, which may be lower. A subtask that is not in the
checkpoint existed before (then ``c`` is below all counters) or later (then above).

The files of subtask ``s`` belong to subtask ``s`` modulo the parallelism; an open file to the subtask with its state.

A part that was open in the checkpoint may still be written by an unreachable task of the failed attempt (a zombie), and
a later checkpoint may have committed it. So *that* file is never continued: it is set aside, under any name, and this
attempt gets a copy of the checkpoint's content, under its own hidden name. Then a zombie writes to a file that is never
read, and fails to commit it. The file set aside stays until the part is visible, because the next attempt may have to
begin with the same checkpoint. (Hadoop's writer has leases for this.)
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from engine.elements.errors import OutputAheadError
from operators.files.writing.bucket import BucketState
from operators.files.writing.recoverable_writer import IN_PROGRESS, RecoverableWriter, ResumeHandle, name_taken
from operators.files.writing.unique_names import attempt_of
from state_backends.base import list_of, path_below, row, whole

if TYPE_CHECKING:
    from engine.elements.operator import OperatorContext

_SET_ASIDE = ".setaside."

RETRACTED = ".retracted."
"""In the name of a file that was visible once. It stays: the checkpoint that committed it may still be restored."""

PART_COUNTERS = "part-counters"
"""The union list in which subtasks store their counters."""

COUNTER_STATE = row(whole, whole, more=(list_of(row(path_below, whole)),))
"""The shape of :meth:`operators.files.writing.subtask_buckets.Buckets.counters`. (Checkpoints of older versions do not
say which buckets lag.)"""


class RestoredNames(Protocol):
    """The file names in a checkpoint. A match belongs to one of its patterns. The group ``opened_in``, if there is one,
    is the unique name with the attempt that opened the file."""

    @property
    def is_empty(self) -> bool:
        """Whether no checkpoint has ever been taken."""

    def owner(self, match: re.Match[str]) -> int:
        """The subtask that opened the file."""

    def opened_behind(self, match: re.Match[str], bucket_id: str) -> bool:
        """Whether the file was opened after the checkpoint."""


Patterns = tuple[re.Pattern[str], re.Pattern[str]]
"""Patterns of visible names, and of hidden ones."""


def counted_names(prefix: str, suffix: str) -> Patterns:
    """Patterns of the names of parts that subtasks count, for :class:`RestoredCounters`."""
    name = rf"{re.escape(prefix)}-(?P<subtask>\d+)-(?P<counter>\d+){re.escape(suffix)}"
    return (
        re.compile(name),
        re.compile(rf"\.(?P<target>{name})\.(?P<kind>inprogress|setaside)\.(?P<opened_in>[0-9a-f-]+)"),
    )


class RestoredCounters:
    """The counters of all subtasks in a checkpoint."""

    def __init__(self, states: Iterable[Any]) -> None:
        self.by_subtask: dict[int, int] = {}
        self._lagging: dict[tuple[int, str], int] = {}
        # (Checkpoints of older versions do not say which buckets lag.)
        for subtask, counter, *lagging in states:
            self.by_subtask[subtask] = max(counter, self.by_subtask.get(subtask, 0))
            self._lagging.update(((subtask, bucket), lower) for pairs in lagging for bucket, lower in pairs)
        self._greatest = max(self.by_subtask.values(), default=0)

    @property
    def is_empty(self) -> bool:
        return not self.by_subtask

    def owner(self, match: re.Match[str]) -> int:
        return int(match["subtask"])

    def opened_behind(self, match: re.Match[str], bucket_id: str) -> bool:
        subtask = int(match["subtask"])
        first = self._lagging.get((subtask, bucket_id), self.by_subtask.get(subtask, self._greatest))
        return int(match["counter"]) >= first


class OpenPartFence:
    """Open parts of a checkpoint, and the files that one subtask has set aside for them. ``attempt``: the incarnation
    and attempt that restores now; ``count``: gets the name of a metric for each visible file that is hidden."""

    def __init__(self, writer: RecoverableWriter, attempt: tuple[int, int], count: Callable[[str], None]) -> None:
        self._writer = writer
        self._attempt = attempt
        self._count = count
        self.set_aside: dict[str, list[str]] = {}
        """By target: files that are kept until it is visible."""

    def keep(self, relative: str, target: str) -> None:
        """Keep a file that this or an earlier attempt has set aside for ``target``."""
        known = self.set_aside.setdefault(target, [])
        if relative not in known:
            known.append(relative)

    def hide(self, relative: str) -> None:
        """Hide a visible file, because its records will be replayed."""
        bucket_id, name = posixpath.split(relative)
        incarnation, attempt = self._attempt
        self._writer.rename(relative, posixpath.join(bucket_id, f".{name}{RETRACTED}{incarnation}-{attempt}"))
        self._count("numCommittedFilesRetracted")

    def fence(self, states: Iterable[BucketState]) -> list[BucketState]:
        """Give every file that was open in the checkpoint to this attempt alone; returns the states with copies instead
        of the files. Raises ``StorageError`` when a file has become shorter."""
        # An attempt that is still alive may write into the old file (mutant "open part shared with a zombie").
        return [state if state.in_progress is None else self._fenced(state, *state.in_progress) for state in states]

    def _fenced(
        self, state: BucketState, temporary: str, target: str, size_bytes: int, created_at_ms: int
    ) -> BucketState:
        writer = self._writer
        # The last occurrence: names of buckets and parts may contain the same text.
        beginning, _, unique = temporary.rpartition(IN_PROGRESS)
        kept = f"{beginning}{_SET_ASIDE}{unique}"
        visible = writer.exists(target)
        if visible and not writer.supports_resume() and writer.size(target) == size_bytes:
            # A restore from this very checkpoint has committed it as it was.
            return state
        if writer.exists(temporary):
            writer.rename(temporary, kept)
        elif not visible and not writer.exists(kept):
            # The run has gone back before, to a newer checkpoint. The file set aside then begins with the same bytes
            # (test_going_back_again_after_going_back).
            bucket_id, name = posixpath.split(target)
            names = [one for one in writer.names_in(bucket_id) if one.startswith(f".{name}{_SET_ASIDE}")]
            kept = max([posixpath.join(bucket_id, one) for one in names], key=writer.size, default=kept)
        if writer.exists(kept):
            if visible:
                self.hide(target)
        elif visible:
            writer.rename(target, kept)
            self._count("numCommittedFilesRetracted")
        else:
            # The file is gone, as the restore will find out.
            return state
        self._look_for_others(target)
        stream = writer.open_copy(kept, ResumeHandle(temporary, target, size_bytes))
        copy = stream.close_for_commit()
        return state._replace(in_progress=(*copy, created_at_ms))

    def _look_for_others(self, target: str) -> None:
        """Delete the copies of attempts that have restored the same checkpoint, and of zombies; keep the files set
        aside."""
        bucket_id, name = posixpath.split(target)
        for other in self._writer.names_in(bucket_id):
            if other.startswith(f".{name}{IN_PROGRESS}"):
                self._writer.delete(posixpath.join(bucket_id, other))
            elif other.startswith(f".{name}{_SET_ASIDE}"):
                self.keep(posixpath.join(bucket_id, other), target)

    def let_go(self, target: str) -> list[str]:
        """The files set aside for ``target``; the caller takes over deleting them when it is visible."""
        return self.set_aside.pop(target, [])

    def forget_committed(self) -> None:
        """Delete the files set aside for files that are visible now: a restore can begin with those."""
        for target in [target for target in self.set_aside if self._writer.exists(target)]:
            for relative in self.let_go(target):
                if self._writer.exists(relative):
                    self._writer.delete(relative)


class DirectoryReconciliation:
    """Resets the directory of one subtask to the files of a checkpoint. ``restored`` are its names, ``patterns`` match
    them."""

    def __init__(
        self, writer: RecoverableWriter, context: OperatorContext, restored: RestoredNames, patterns: Patterns
    ) -> None:
        self._writer = writer
        self._context = context
        self._attempt = context.incarnation, context.attempt
        self._restored = restored
        self._visible, self._hidden = patterns
        self.open_parts = OpenPartFence(writer, self._attempt, context.metrics.count)

    def clean_up(self) -> None:
        """Delete or hide the files opened after the checkpoint. Raises ``StorageError`` when the directory holds the
        output of another run."""
        for relative in self._writer.files():
            bucket_id, name = posixpath.split(relative)
            if match := self._visible.fullmatch(name):
                if self._restored.is_empty and self._is_mine(match):
                    # Or to this job, if its only checkpoints are unreadable. A restart changes neither.
                    raise OutputAheadError(str(name_taken(self._writer.path(relative))))
                if self._is_behind(match, bucket_id):
                    self.open_parts.hide(relative)
            elif match := self._hidden.fullmatch(name):
                if self._is_behind(match, bucket_id):
                    self._writer.delete(relative)
                elif match.groupdict().get("kind") == "setaside":
                    self.open_parts.keep(relative, posixpath.join(bucket_id, match["target"]))

    def _is_mine(self, match: re.Match[str]) -> bool:
        return self._restored.owner(match) % self._context.parallelism == self._context.subtask

    def _is_behind(self, match: re.Match[str], bucket_id: str) -> bool:
        if name := match.groupdict().get("opened_in"):
            opened_in = attempt_of(name)
            if opened_in is None or opened_in >= self._attempt:
                return False
        return self._is_mine(match) and self._restored.opened_behind(match, bucket_id)
