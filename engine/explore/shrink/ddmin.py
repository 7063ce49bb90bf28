"""Delta debugging, pure: makes a failing list or number smaller by testing whether smaller ones still fail.

Rules.
1. The argument fails; so does the result. Each list is tested at most once in a row, and a result is never assumed: the
   predicate need not be monotone.
2. A returned list is *1-minimal*: without any one of its elements it does not fail.
3. The order of elements is kept, and the order of tests depends only on the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A 1-minimal sublist that fails (Zeller & Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002).

    The empty list is tested first, because often none of the items matter; then each half; then everything but a chunk,
    with chunks half as large each time that this does not help. (The original also tests each small chunk alone. That
    doubles the tests and finds only what halving has found already, unless the items are far from independent.)
    """
    kept = list(items)
    if not kept or fails(()):
        return []
    chunks = 2
    while len(kept) > 1:
        pieces = _cut(kept, chunks)
        # With two chunks, the complement of one is the other.
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
    """From the last piece to the first: late items are more often without effect."""
    return [
        [item for at, piece in enumerate(pieces) if at != left_out for item in piece]
        for left_out in range(len(pieces) - 1, -1, -1)
    ]


def smallest(value: int, least: int, fails: Callable[[int], bool]) -> int:
    """A number from ``least`` to ``value`` that fails, while the one below it does not (or it is ``least``).

    ``value`` must fail. Tests ``least`` and then halves the distance, so it takes about log2 tests.
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
