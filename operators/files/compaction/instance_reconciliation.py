"""Finds files that were opened after a checkpoint, where final names are unique. How a restored sink and its compactors
handle them is in :mod:`operators.files.writing.directory_reconciliation`.

A name contains its origin: incarnation, attempt, subtask and number (:mod:`operators.files.writing.unique_names`). For
each subtask, a checkpoint holds its attempt, the number of names given by then, and the counter of each name in use. So
a file was opened *after* the checkpoint if its name was given

* in a later attempt than the checkpoint's; or
* in that attempt, and after the checkpoint; or before it, but the file has a number that was not reached by then.

Files of earlier attempts are in the checkpoint, or were handled at the start of the attempt that took it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from operators.files.compaction.compactor import PREFIX
from operators.files.writing import UNIQUE_NAME_PATTERN, Patterns
from state_backends.base import list_of, row, text, whole

Attempt = tuple[int, int]
"""Incarnation and attempt."""


def parts_of(unique: str) -> tuple[Attempt, int, int]:
    """The origin of a unique name: the attempt, the subtask, and how many names it had given before."""
    incarnation, high, low, subtask, number = unique.split("-")
    return (int(incarnation, 16), int(high + low, 16)), int(subtask, 16), int(number, 16)


INSTANCE_STATE = row(whole, whole, whole, whole, list_of(row(text, whole)))
"""The shape of a subtask's state: its number, incarnation, attempt, names given, and the names in use with their next
counters."""


class RestoredInstances:
    """The names that all subtasks had given at a checkpoint."""

    def __init__(self, states: Iterable[Any]) -> None:
        self._by_subtask: dict[int, tuple[Attempt, int, dict[str, int]]] = {}
        for subtask, incarnation, attempt, given, in_use in states:
            self._by_subtask[subtask] = (incarnation, attempt), given, dict(map(tuple, in_use))

    @property
    def is_empty(self) -> bool:
        return not self._by_subtask

    def owner(self, match: re.Match[str]) -> int:
        return parts_of(match["opened_in"])[1]

    def opened_behind(self, match: re.Match[str], bucket_id: str) -> bool:
        unique, counter = match["opened_in"], int(match.groupdict().get("counter", 0))
        attempt, subtask, number = parts_of(unique)
        known = self._by_subtask.get(subtask)
        if known is None:
            # A subtask that is not in the checkpoint: the parallelism was higher before, or was raised later.
            return attempt > max((taken for taken, _, _ in self._by_subtask.values()), default=(-1, -1))
        taken, given, in_use = known
        if attempt != taken:
            return attempt > taken
        return number >= given or counter >= in_use.get(unique, counter + 1)


def unique_names(prefix: str, suffix: str) -> Patterns:
    """Patterns of the names of parts, where each instance of a bucket has its own, and of the files that they are
    compacted to."""
    name = rf"{re.escape(prefix)}-(?P<opened_in>{UNIQUE_NAME_PATTERN})-(?P<counter>\d+){re.escape(suffix)}"
    temporary = rf"\.(?:inprogress|setaside)\.{UNIQUE_NAME_PATTERN}"
    return re.compile(rf"(?:{PREFIX})?{name}"), re.compile(rf"\.{{1,2}}{name}(?:{temporary})?")


def compacting_names(prefix: str, suffix: str) -> Patterns:
    """Patterns of files that compactors have begun, and of no name that readers see."""
    name = rf"{re.escape(prefix)}-{UNIQUE_NAME_PATTERN}-\d+{re.escape(suffix)}"
    hidden = rf"\.{PREFIX}{name}\.(?:inprogress|setaside)\.(?P<opened_in>{UNIQUE_NAME_PATTERN})"
    return re.compile(r"(?!)"), re.compile(hidden)
