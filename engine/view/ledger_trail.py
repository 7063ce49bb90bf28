"""The ledger of a run for a page: each output with the record that caused it, its checkpoint and its attempt."""

from __future__ import annotations

from typing import Any

from engine.explore.ledger import EffectLedger, Findings, ledger_cause_text
from engine.view.shown import clean, shown

MOST_OUTPUTS = 300


def trail_of(ledger: EffectLedger, found: Findings) -> dict[str, Any]:
    """Plain data: ``outputs`` of sinks in the order in which readers were shown them, ``paragraphs`` of findings."""
    outputs: list[dict[str, Any]] = []
    for one in ledger.exposed:
        for cause, value in one.rows:
            origin = ledger.origins[cause[0]]
            how = "Readers saw it at once"
            if one.checkpoint_id is not None:
                how = f"Checkpoint {one.checkpoint_id} covers it, and its completion made {one.task} commit it"
            outputs.append(
                {
                    "sink": clean(ledger.names.get(one.uid, one.uid)),
                    "row": shown(value),
                    "cause": clean(ledger_cause_text(ledger, cause)),
                    "source": f"{origin.uid}/{origin.split}/{cause[1]}" if origin.is_source else "",
                    "checkpoint": one.checkpoint_id,
                    "attempt": one.attempt,
                    "how": clean(f"{how}, in attempt {one.attempt}{_began(ledger, one.attempt)}"),
                }
            )
            if len(outputs) == MOST_OUTPUTS:
                break
    return {
        "outputs": outputs[:MOST_OUTPUTS],
        "paragraphs": [clean(one, 1_000) for one in found.paragraphs(ledger)],
        "problem": found.problem,
    }


def _began(ledger: EffectLedger, attempt: int) -> str:
    """How an attempt that is not the first has begun."""
    starts = [one for one in ledger.restarts if one.attempt == attempt and one.number]
    if not starts:
        return ""
    source = "nothing" if starts[-1].checkpoint_id is None else f"checkpoint {starts[-1].checkpoint_id}"
    return f"; that attempt began from {source}, after {starts[-1].cause}"
