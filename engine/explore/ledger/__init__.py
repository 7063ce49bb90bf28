"""The effect ledger: which source records were lost, applied twice, or visible in output that was taken back, and which
crash and checkpoint caused it.

``EffectLedger`` is passed to a run (``Execution(..., provenance=ledger)``), ``reference`` computes the expected
effects, and ``findings`` compares the two.
"""

from __future__ import annotations

from engine.explore.ledger.effect_reference import EffectReference as EffectReference, reference as reference
from engine.explore.ledger.effects_invariant import EffectsInvariant as EffectsInvariant, rows_of as rows_of
from engine.explore.ledger.findings import (
    KINDS as KINDS,
    LOST as LOST,
    TWICE as TWICE,
    UNEXPECTED as UNEXPECTED,
    VISIBLE as VISIBLE,
    Finding as Finding,
    Findings as Findings,
    Seen as Seen,
    findings as findings,
    seen_in_files as seen_in_files,
)
from engine.explore.ledger.ledger import EffectLedger as EffectLedger
from engine.explore.ledger.ledger_entries import Origin as Origin, Place as Place, Restart as Restart
from engine.explore.ledger.ranges import Effects as Effects, RangeSet as RangeSet
from engine.explore.ledger.words import ledger_cause_text as ledger_cause_text
