"""Delta debugging, pure: makes a list or a number that fails smaller, by asking whether something smaller still fails.

Rules.
1. What is given fails; so does what is returned. A question is asked of each list at most once in a row, and an answer
   is never assumed: the predicate need not be monotone.
2. A returned list is *1-minimal*: without any one of its elements it does not fail.
3. The order of elements is kept, and the order of questions depends on nothing but the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A 1-minimal sublist that fails (Zeller & Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002).

    Nothing at all is tried first, for often none of the items matter; then each half; then everything but a chunk, with
    chunks half as large each time that this does not help. (The original also asks for each small chunk alone. That
    doubles the questions and finds what halving has found already, unless the items are far from independent.)
    """
    kept = list(items)
    if not kept or fails(()):
        return []
    chunks = 2
    while len(kept) > 1:
        pieces = _cut(kept, chunks)
        # With two chunks, everything but one of them is the other one.
        smaller = next((rest for rest in (pieces if chunks == 2 else _complements(pieces)) if fails(rest)), None)
        if smaller is not None:
            kept, chunks = smaller, max(chunks - 1, 2)
        elif chunks == len(kept):
            break
        else:
            chunks = min(2 * chunks, len(kept))
    return kept


def _cut(items: list[T], chunks: int) -> list[list[T]]:
    """``chunks`` pieces that differ in length by one at most."""
    assert 1 <= chunks <= len(items), (chunks, len(items))
    bounds = [len(items) * number // chunks for number in range(chunks + 1)]
    return [items[first:end] for first, end in pairwise(bounds)]


def _complements(pieces: list[list[T]]) -> list[list[T]]:
    """From the last piece to the first: what comes late is more often without effect."""
    return [
        [item for at, piece in enumerate(pieces) if at != left_out for item in piece]
        for left_out in range(len(pieces) - 1, -1, -1)
    ]


def smallest(value: int, least: int, fails: Callable[[int], bool]) -> int:
    """A number from ``least`` to ``value`` that fails, while the one below it does not (or it is ``least``).

    ``value`` is known to fail. Asks for ``least`` and then halves the distance, so that it takes about log2 questions.
    """
    assert least <= value, (least, value)
    if value == least or fails(least):
        return least
    passing, failing = least, value
    while failing - passing > 1:
        middle = (failing + passing) // 2
        if fails(middle):
            failing = middle
        else:
            passing = middle
    return failing
