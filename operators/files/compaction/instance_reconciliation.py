"""Which files were opened behind a checkpoint, where final names are unique. What a restored sink does about them, its
compactors too, is in :mod:`operators.files.writing.directory_reconciliation`.

A name says who has given it: incarnation, attempt, subtask and number (:mod:`operators.files.writing.unique_names`). A
checkpoint holds, for each subtask, in which attempt it was taken, how many names had been given by then, and how far
each name that was in use had counted. So a file was opened *behind* the checkpoint if its name was given

* in a later attempt than that in which the checkpoint was taken; or
* in that attempt, and after the checkpoint; or before, and the file has a number that was not reached by then.

Files of earlier attempts are in the checkpoint, or were dealt with when the attempt began that took it.
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
        return not self._by_subtask

    def owner(self, match: re.Match[str]) -> int:
        return parts_of(match["opened_in"])[1]

    def opened_behind(self, match: re.Match[str], bucket_id: str) -> bool:
        unique, counter = match["opened_in"], int(match.groupdict().get("counter", 0))
        attempt, subtask, number = parts_of(unique)
        known = self._by_subtask.get(subtask)
        if known is None:
            # A subtask that was not there: there had been more before, or there were more later.
            return attempt > max((taken for taken, _, _ in self._by_subtask.values()), default=(-1, -1))
        taken, given, in_use = known
        if attempt != taken:
            return attempt > taken
        return number >= given or counter >= in_use.get(unique, counter + 1)


def unique_names(prefix: str, suffix: str) -> Patterns:
    """Patterns of the names of parts of which each instance of a bucket has its own, and of what they are compacted
    to."""
    name = rf"{re.escape(prefix)}-(?P<opened_in>{UNIQUE_NAME_PATTERN})-(?P<counter>\d+){re.escape(suffix)}"
    temporary = rf"\.(?:inprogress|setaside)\.{UNIQUE_NAME_PATTERN}"
    return re.compile(rf"(?:{PREFIX})?{name}"), re.compile(rf"\.{{1,2}}{name}(?:{temporary})?")


def compacting_names(prefix: str, suffix: str) -> Patterns:
    """Patterns of what compactors have begun, and of no name that readers see."""
    name = rf"{re.escape(prefix)}-{UNIQUE_NAME_PATTERN}-\d+{re.escape(suffix)}"
    hidden = rf"\.{PREFIX}{name}\.(?:inprogress|setaside)\.(?P<opened_in>{UNIQUE_NAME_PATTERN})"
    return re.compile(r"(?!)"), re.compile(hidden)
