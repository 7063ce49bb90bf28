"""Two runs in step: which step of one belongs to which step of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

_MOST_STEPS = 4_000
"""Longer runs are put in step by time: comparing their steps with each other would take minutes."""

Pair = tuple[int, int]


def pairs_of(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Pair]:
    """Pairs of steps, in the order of both runs. A run waits at its last step while only the other goes on; -1: it has
    not begun."""
    if max(len(one["steps"]), len(other["steps"])) > _MOST_STEPS:
        return _by_time(_times(one), _times(other))
    pairs: list[Pair] = []
    at, of = -1, -1
    matcher = SequenceMatcher(None, _words(one), _words(other), autojunk=False)
    for tag, first, end, other_first, other_end in matcher.get_opcodes():
        assert tag in ("equal", "replace", "delete", "insert")
        for left, right in zip_longest(range(first, end), range(other_first, other_end)):
            at, of = at if left is None else left, of if right is None else right
            pairs.append((at, of))
    return pairs


def _words(data: Mapping[str, Any]) -> list[tuple[tuple[int, str], ...]]:
    said = [(row[1], row[3].split(", sent after")[0]) for row in data["actions"]]
    return [tuple(said[slice(*step["r"])]) for step in data["steps"]]


def _times(data: Mapping[str, Any]) -> list[int]:
    actions, last, times = data["actions"], 0, []
    for step in data["steps"]:
        row = step["r"][0]
        last = actions[row][0] if row < len(actions) else last
        times.append(last)
    return times


def _by_time(one: Sequence[int], other: Sequence[int]) -> list[Pair]:
    pairs: list[Pair] = []
    at, of = -1, -1
    while at + 1 < len(one) or of + 1 < len(other):
        mine = one[at + 1] if at + 1 < len(one) else None
        theirs = other[of + 1] if of + 1 < len(other) else None
        if theirs is None or (mine is not None and mine <= theirs):
            at += 1
        if mine is None or (theirs is not None and theirs <= mine):
            of += 1
        pairs.append((at, of))
    return pairs
