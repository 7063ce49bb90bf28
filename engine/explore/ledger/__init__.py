"""The effect ledger: which source records were lost, applied twice, or seen in output that was taken back; and which
crash and checkpoint did it.

``EffectLedger`` is given to a run (``Execution(..., provenance=ledger)``), ``reference`` says what the effects should
be, and ``findings`` compares the two.
"""

from __future__ import annotations

from engine.explore.ledger.effect_reference import EffectReference, reference
from engine.explore.ledger.entries import Origin, Place, Restart
from engine.explore.ledger.findings import (
    KINDS,
    LOST,
    TWICE,
    UNEXPECTED,
    VISIBLE,
    Finding,
    Findings,
    Seen,
    findings,
    seen_in_files,
)
from engine.explore.ledger.invariant import EffectsInvariant, rows_of
from engine.explore.ledger.ledger import EffectLedger
from engine.explore.ledger.ranges import Effects, RangeSet

__all__ = [
    "KINDS",
    "LOST",
    "TWICE",
    "UNEXPECTED",
    "VISIBLE",
    "EffectLedger",
    "EffectReference",
    "Effects",
    "EffectsInvariant",
    "Finding",
    "Findings",
    "Origin",
    "Place",
    "RangeSet",
    "Restart",
    "Seen",
    "findings",
    "reference",
    "rows_of",
    "seen_in_files",
]
