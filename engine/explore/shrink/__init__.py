"""A failing case made concrete (``concrete``), and as small as it gets (``shrinking``; ``ddmin``: delta debugging)."""

from __future__ import annotations

from engine.explore.shrink.concrete import concretised
from engine.explore.shrink.shrinking import (
    WAITING,
    Budget,
    InvariantsFactory,
    Shrunk,
    Size,
    case_key,
    counted,
    removals,
    same_invariant,
    shorter_bounds,
    shrink,
    size_of,
)

__all__ = [
    "WAITING",
    "Budget",
    "InvariantsFactory",
    "Shrunk",
    "Size",
    "case_key",
    "concretised",
    "counted",
    "removals",
    "same_invariant",
    "shorter_bounds",
    "shrink",
    "size_of",
]
