"""The ledger of a run for a page: each output with the record that caused it, its checkpoint and its attempt, and with
the rows of the diagram that it came by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def with_ways(trail: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The trail of a run with the way of each output: what happened, and at which row of the page's data."""
    return {**trail, "outputs": [{**one, "way": sorted(_way(one, data), key=_row_of)} for one in trail["outputs"]]}


def _row_of(stop: tuple[str, int]) -> int:
    return stop[1]


def _way(output: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    actions, attempt, checkpoint = data["actions"], output["attempt"], output["checkpoint"]
    for number, row in enumerate(data["reads"].get(output["source"], ())):
        yield "read again" if number else "read", row
    for cut in data["cuts"]:
        if (cut["id"], cut["attempt"]) == (checkpoint, attempt) and cut["at"]:
            last = max(row for _, row in cut["at"])
            yield f"the cut of checkpoint {checkpoint} ends", last
            rows = range(last, len(actions))
            complete = [row for row in rows if actions[row][3].endswith(f" {checkpoint} is complete")]
            yield from (("it is complete", row) for row in complete[:1])
    begun = [row for row, one in enumerate(actions) if one[3].startswith(f"attempt {attempt} starts ")]
    for row in begun[:1]:
        yield f"attempt {attempt} begins", row
        struck = [at for at in range(row) if actions[at][4] or actions[at][2] == "fault"]
        yield from (("what had failed before", at) for at in struck[-1:])


def _began(ledger: EffectLedger, attempt: int) -> str:
    """How an attempt that is not the first has begun."""
    starts = [one for one in ledger.restarts if one.attempt == attempt and one.number]
    if not starts:
        return ""
    source = "nothing" if starts[-1].checkpoint_id is None else f"checkpoint {starts[-1].checkpoint_id}"
    return f"; that attempt began from {source}, after {starts[-1].cause}"
