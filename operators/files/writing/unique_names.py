"""Unique names, which keep the files of different attempts apart.

Flink draws a random UUID for a hidden file, or a series of files, that must never collide with another attempt's. A
name here has the same shape and is as unique within one output directory. But it is computed from its origin
(incarnation, attempt, subtask) and the number of names given before. So the same run makes the same names, and a name
shows its attempt.

    00000003-0000-0002-0001-00000000002a      incarnation 3, attempt 2, subtask 1, the 43rd name

The parts are hexadecimal; the attempt takes the second and third group.
"""

from __future__ import annotations

import re

UNIQUE_NAME_PATTERN = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Matches a unique name, and no other text of that length."""

_ANY_NAME = re.compile(rf"(?P<unique>{UNIQUE_NAME_PATTERN})|(?P<incarnation>\d+)-(?P<attempt>\d+)")


def unique_name(incarnation: int, attempt: int, subtask: int, number: int) -> str:
    """The name ``number`` (from 0) that this subtask gives in this attempt: 36 characters, shaped like a UUID."""
    assert 0 <= incarnation < 1 << 32, incarnation
    assert 0 <= attempt < 1 << 32, attempt
    assert 0 <= subtask < 1 << 16, subtask
    assert 0 <= number < 1 << 48, number
    return f"{incarnation:08x}-{attempt >> 16:04x}-{attempt & 0xFFFF:04x}-{subtask:04x}-{number:012x}"


def attempt_of(name: str) -> tuple[int, int] | None:
    """Incarnation and attempt in which ``name`` was given; ``None`` when it is not a unique name.

    Names of older versions, ``{incarnation}-{attempt}``, are understood too.
    """
    match = _ANY_NAME.fullmatch(name)
    if match is None:
        return None
    if match["unique"] is None:
        return int(match["incarnation"]), int(match["attempt"])
    incarnation, high, low, _, _ = match["unique"].split("-")
    return int(incarnation, 16), int(high + low, 16)


class UniqueNames:
    """Gives the unique names of one subtask in one attempt, one per call."""

    __slots__ = ("_attempt", "_incarnation", "_subtask", "given")

    def __init__(self, incarnation: int, attempt: int, subtask: int) -> None:
        self._incarnation = incarnation
        self._attempt = attempt
        self._subtask = subtask
        self.given = 0

    def __call__(self) -> str:
        """The next one."""
        name = unique_name(self._incarnation, self._attempt, self._subtask, self.given)
        self.given += 1
        return name
