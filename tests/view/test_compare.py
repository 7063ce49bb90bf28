"""Two protocols over one job: what one crash makes of each, in step."""

from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from engine.explore.run import Subject
from engine.view import compare_modes, comparison_page, comparison_table, verdict_of
from engine.view.pairing import pairs_of
from examples.teaching import counting
from tests.view.recorded import CASE


def test_one_record_counts_twice() -> None:
    """With one schedule and one crash, aligned counts each record once; at least once, the orphan counts twice."""
    subject = Subject(lambda _: counting.job(), label="counting")

    aligned, at_least_once = runs = compare_modes(subject, CASE, ["aligned", "at-least-once"])

    assert aligned.sentences == ()
    assert at_least_once.measures["records counted twice"] == "1"
    assert at_least_once.measures["records replayed"] != "0"
    assert len(at_least_once.sentences) == 1
    assert "arrived at count[0] before its snapshot of checkpoint 1, on an input whose" in at_least_once.sentences[0]
    assert not at_least_once.breaks
    assert verdict_of(runs) == "mode aligned counts each record once, mode at-least-once counts 1 record twice"
    assert comparison_table(runs)["rows"][1] == ["records counted twice", "0", "1"]
    assert comparison_page("two", runs).count("counted twice: it arrived") >= 1
    # The job manager has died after it had written the checkpoint: no oracle has judged it, and it was restored.
    cut = at_least_once.data["cuts"][0]
    assert (cut["state"], cut["orphans"], cut["byChannel"][0][1]) == ("written", 1, 1)
    told = at_least_once.data["chapters"]
    assert any("(in all: 1 at count)" in text for text, _ in told)
    assert "⚡ crash:job manager@after:manifest.rename#1 strikes" in [text for text, _ in told]
    (twice,) = [one for one in at_least_once.data["ledger"]["outputs"] if one["row"] == "('b', 2)"]
    names = [name for name, _ in twice["way"]]
    assert names == [
        "read", "what had failed before", "attempt 2 begins", "read again", "the cut of checkpoint 2 ends",
        "it is complete",
    ]  # fmt: skip


def _run(words: list[str]) -> dict[str, Any]:
    return {
        "actions": [[number, 0, "record", word, 0] for number, word in enumerate(words)],
        "steps": [{"r": [number, number + 1]} for number in range(len(words))],
    }


@given(st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("abcd")))
def test_pairs_go_through_both_runs(one: list[str], other: list[str]) -> None:
    """Every step of each run is in some pair, in order, and no run goes back."""
    pairs = pairs_of(_run(one), _run(other))

    for side, words in ((0, one), (1, other)):
        steps = [pair[side] for pair in pairs if pair[side] >= 0]
        assert steps == sorted(steps)
        assert list(dict.fromkeys(steps)) == list(range(len(words)))
