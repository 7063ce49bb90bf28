"""Make a failing case concrete (``concrete``), and as small as possible (``shrinking``; ``ddmin``: delta debugging)."""

from __future__ import annotations

from engine.explore.shrink.concrete import concretised as concretised
from engine.explore.shrink.shrinking import (
    WAITING as WAITING,
    Budget as Budget,
    InvariantsFactory as InvariantsFactory,
    Shrunk as Shrunk,
    Size as Size,
    case_key as case_key,
    counted as counted,
    removals as removals,
    same_invariant as same_invariant,
    shorter_bounds as shorter_bounds,
    shrink as shrink,
    size_of as size_of,
)
