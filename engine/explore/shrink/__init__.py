"""Make a failing case concrete (``concrete``), and as small as possible (``shrinking``; ``ddmin``: delta debugging;
``case_parts``: what there is to remove).
"""

from __future__ import annotations

from engine.explore.shrink.case_parts import (
    Size as Size,
    case_key as case_key,
    counted as counted,
    removals as removals,
    size_of as size_of,
)
from engine.explore.shrink.concrete import concretised as concretised
from engine.explore.shrink.shrinking import (
    WAITING as WAITING,
    Budget as Budget,
    InvariantsFactory as InvariantsFactory,
    Shrunk as Shrunk,
    same_invariant as same_invariant,
    shorter_bounds as shorter_bounds,
    shrink as shrink,
)
