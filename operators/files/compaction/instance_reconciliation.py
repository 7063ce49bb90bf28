"""What restored writers and compactors do about files that failed attempts have left, where final names are unique
(:mod:`operators.files.writing.directory_reconciliation` is the same for names with one counter for each subtask).

A name says who has given it: incarnation, attempt, subtask and number (:mod:`operators.files.writing.unique_names`). A
checkpoint holds, for each subtask, in which attempt it was taken, how many names had been given by then, and how far
each name that was in use had counted. So a file was opened *behind* the checkpoint if its name was given

* in a later attempt than that in which the checkpoint was taken; or
* in that attempt, and after the checkpoint; or before, and the file has a number that was not reached by then.

Files of earlier attempts are in the checkpoint, or were dealt with when the attempt began that took it.

* Hidden files that were opened behind the checkpoint are deleted. Visible ones, and what they were compacted to, are
  hidden again: their records will be replayed.
* A file that was open in the checkpoint is given to this attempt alone: :mod:`operators.files.writing.open_part_fence`.
* Without any such state no checkpoint of this sink has completed: what is visible belongs to somebody else.

The files of subtask ``s`` are looked after by subtask ``s`` modulo the parallelism.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Any

from engine.elements.errors import OutputAheadError
from operators.files.compaction.compactor import PREFIX
from operators.files.writing import UNIQUE_NAME_PATTERN, OpenPartFence, RecoverableWriter, name_taken
from state_backends.base import list_of, row, text, whole

Attempt = tuple[int, int]
"""Incarnation and attempt."""


def parts_of(unique: str) -> tuple[Attempt, int, int]:
    """Who has given a unique name: the attempt, the subtask, and how many it had given before."""
    incarnation, high, low, subtask, number = unique.split("-")
    return (int(incarnation, 16), int(high + low, 16)), int(subtask, 16), int(number, 16)


INSTANCE_STATE = row(whole, whole, whole, whole, list_of(row(text, whole)))
"""The shape of what a subtask files: itself, incarnation, attempt, names given, and those in use with their next
counters."""


class RestoredInstances:
    """The names that all subtasks had given in a checkpoint."""

    def __init__(self, states: Iterable[Any]) -> None:
        self._by_subtask: dict[int, tuple[Attempt, int, dict[str, int]]] = {}
        for subtask, incarnation, attempt, given, in_use in states:
            self._by_subtask[subtask] = (incarnation, attempt), given, dict(map(tuple, in_use))

    @property
    def is_empty(self) -> bool:
        """Whether no checkpoint has ever been taken."""
        return not self._by_subtask

    def opened_behind(self, unique: str, counter: int) -> bool:
        """Whether the file of this name and number was opened behind the checkpoint."""
        attempt, subtask, number = parts_of(unique)
        known = self._by_subtask.get(subtask)
        if known is None:
            # A subtask that was not there: there had been more before, or there were more later.
            return attempt > max((taken for taken, _, _ in self._by_subtask.values()), default=(-1, -1))
        taken, given, in_use = known
        if attempt != taken:
            return attempt > taken
        return number >= given or counter >= in_use.get(unique, counter + 1)


class InstanceReconciliation:
    """Brings the directory of one subtask back to what a checkpoint covers. ``attempt``: the one that restores now."""

    def __init__(
        self,
        writer: RecoverableWriter,
        prefix: str,
        suffix: str,
        subtask: int,
        parallelism: int,
        attempt: Attempt,
    ) -> None:
        self._writer = writer
        self._subtask = subtask
        self._parallelism = parallelism
        self._attempt = attempt
        name = rf"{re.escape(prefix)}-(?P<unique>{UNIQUE_NAME_PATTERN})-(?P<counter>\d+){re.escape(suffix)}"
        temporary = rf"\.(?:inprogress|setaside)\.(?P<temporary>{UNIQUE_NAME_PATTERN})"
        self._visible = re.compile(rf"(?:{PREFIX})?{name}")
        self._hidden = re.compile(rf"\.{{1,2}}{name}(?:{temporary})?")
        self._compacting = re.compile(rf"\.{PREFIX}{name}{temporary}")
        self.open_parts = OpenPartFence(writer, attempt)

    def clean_up(self, restored: RestoredInstances) -> None:
        """Delete and hide what writers opened behind the checkpoint. Raises ``StorageError`` when the directory holds
        the output of another run."""
        for relative in self._writer.files():
            name = posixpath.basename(relative)
            if match := self._visible.fullmatch(name):
                if restored.is_empty and self._is_mine(match["unique"]):
                    # Or to this job, whose only checkpoints cannot be read. No restart changes either.
                    raise OutputAheadError(str(name_taken(self._writer.path(relative))))
                if self._is_behind(match, restored):
                    self.open_parts.hide(relative)
            elif (match := self._hidden.fullmatch(name)) and self._is_behind(match, restored):
                self._writer.delete(relative)

    def clean_up_compacting(self, restored: RestoredInstances) -> None:
        """Delete what compactors had begun behind the checkpoint."""
        for relative in self._writer.files():
            match = self._compacting.fullmatch(posixpath.basename(relative))
            if match and self._is_earlier(match["temporary"]) and restored.opened_behind(match["temporary"], 0):
                self._writer.delete(relative)

    def _is_mine(self, unique: str) -> bool:
        return parts_of(unique)[1] % self._parallelism == self._subtask

    def _is_earlier(self, unique: str) -> bool:
        return self._is_mine(unique) and parts_of(unique)[0] < self._attempt

    def _is_behind(self, match: re.Match[str], restored: RestoredInstances) -> bool:
        unique = match["unique"]
        return self._is_earlier(unique) and restored.opened_behind(unique, int(match["counter"]))
