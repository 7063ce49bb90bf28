"""First-fit packing with a bounded look back (Flink: ``BinPacking``, table compaction).

Rules: items are taken in the order in which they come. Each goes to the first open bin in which it still fits. If there
is none, a new bin is opened for it, even if the item alone is heavier than the limit. When more than ``LOOK_BACK`` bins
are open, the oldest is closed. The result is the closed bins in the order of their closing, then the open ones in the
order of their opening. That is the order in which all of them were opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from engine.elements.errors import ConfigurationError

LOOK_BACK = 10
"""How many bins are open at most."""

Item = TypeVar("Item")


def pack(
    items: Iterable[Item], target: int, weight: Callable[[Item], int], look_back: int = LOOK_BACK
) -> list[list[Item]]:
    """Packs ``items`` into bins that weigh ``target`` at most, except single items that are heavier.

    Raises :class:`engine.elements.errors.ConfigurationError` when ``target`` or ``look_back`` is below 1.
    """
    if target < 1 or look_back < 1:
        raise ConfigurationError(f"bins of size {target}, {look_back} of them open: both must be 1 at least")
    bins: list[list[Item]] = []
    weights: list[int] = []
    first_open = 0
    for item in items:
        heavy = weight(item)
        for position in range(first_open, len(bins)):
            if weights[position] + heavy <= target:
                bins[position].append(item)
                weights[position] += heavy
                break
        else:
            bins.append([item])
            weights.append(heavy)
            if len(bins) - first_open > look_back:
                first_open += 1
    return bins
