"""Suggests a name for one that was typed and does not exist, if one is close to it."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter


def nearest(typed: str, known: Iterable[str]) -> str | None:
    """The known name that is close to the typed one, ``None`` when none is: a wrong guess misleads its reader.

    Close is at most one typing slip in three letters (a letter too many, too few, wrong, or swapped with its
    neighbour), or a beginning of at least three letters. Capitals and an ending that both share (``.py``) do not count.
    """
    return next(iter(neighbours(typed, known)), None)


def neighbours(typed: str, known: Iterable[str], *, within: int | None = None) -> list[str]:
    """Up to three such names, the closest first; ``within`` so many slips."""
    found: list[tuple[int, str]] = []
    for name in known:
        slips = _slips(*_without_ending(typed.lower(), name.lower()))
        if slips is not None and (within is None or slips <= within):
            found.append((slips, name))
    return [name for _, name in sorted(found, key=itemgetter(0))[:3]]


def _without_ending(typed: str, name: str) -> tuple[str, str]:
    stem, dot, ending = typed.rpartition(".")
    return (stem, name.removesuffix(dot + ending)) if dot and name.endswith(dot + ending) else (typed, name)


def _slips(typed: str, name: str) -> int | None:
    """How many slips lead from one to the other (optimal string alignment); ``None`` = too many."""
    allowed = max(1, len(typed) // 3)
    if abs(len(typed) - len(name)) <= allowed:
        before: list[int] = []
        row = list(range(len(name) + 1))
        for i, letter in enumerate(typed, 1):
            previous, row = row, [i]
            for j, other in enumerate(name, 1):
                slips = min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (letter != other))
                if i > 1 and j > 1 and letter == name[j - 2] and other == typed[i - 2]:
                    slips = min(slips, before[j - 2] + 1)
                row.append(slips)
            before = previous
        if row[-1] <= allowed:
            return row[-1]
    return allowed + 1 if len(typed) >= 3 and name.startswith(typed) else None
