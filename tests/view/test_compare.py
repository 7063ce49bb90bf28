"""Two protocols over one job: what one crash makes of each, in step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, strategies as st

from engine import CollectedResults, CollectionSource, CollectSink, Job
from engine.explore.cases import DRAIN, FIFO, Case, Savepoint
from engine.explore.run import Bounds, Subject, Violation
from engine.faults.fault import parse_fault
from engine.view import case_page, cases_page, compare_modes, comparison_page, comparison_table, verdict_of
from engine.view.pairing import pairs_of
from examples.teaching import counting

CASE = Case(
    config={"batch_size": 1, "cost.source_record_ns": 0, "mode": "at-least-once"},
    faults=(parse_fault("crash:job manager@after:manifest.rename#1"),),
    checkpoints=(0,),
    scheduler=FIFO,
    schedule={1: 1, 2: 1, 3: 2},
    dropped={"right/sequence-0-of-1": ((1, 2),)},
)


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


def test_pages_of_cases() -> None:
    """A case has a page with its violation and the endings of a check; two cases stand side by side."""
    subject = Subject(lambda _: counting.job(), label="counting")
    violation = Violation("V1", "output 'out' is not exactly-once")
    endings = {"text": "2 states, 1 endings, none wrong", "list": []}

    one = case_page("one", subject, CASE, violations=[violation], endings=endings)
    two = cases_page("two", subject, [("first", CASE, ()), ("second", replace(CASE, faults=()), ())])

    assert "is not exactly-once" in one
    assert "none wrong" in one
    assert "job manager@after:manifest.rename#1 strikes" in one
    # Only in the first run: its row, and its place in the story.
    assert two.count("job manager@after:manifest.rename#1 strikes") == 2
    # The same ledger as of a run: an output leads to its records.
    assert '"cause":"record 0 of right/sequence-0-of-1"' in one


def test_a_case_that_keeps_no_ledger_has_a_page() -> None:
    """Tracked records, a job that goes on from another one's savepoint, damage, and a job that fails by itself."""
    subject = Subject(lambda _: counting.job(), label="counting")
    resumed = Case(savepoints=(Savepoint(DRAIN, 1),), scheduler=FIFO)

    def dividing(number: int) -> Job:
        job = Job("dividing")
        divided = job.source(CollectionSource([number]), name="one").map(lambda one: 1 // one)
        divided.sink(CollectSink(CollectedResults(transactional=False)), name="out")
        return job

    tracked = (Subject(lambda _: dividing(1), label="dividing"), Case(config={"mode": "acking"}, scheduler=FIFO))
    broken = (Subject(lambda _: dividing(0), label="dividing"), Case())
    damaged = replace(CASE, faults=(parse_fault("bit-flip:*_metadata#1=77"),))
    for one, case in ((subject, resumed), (subject, damaged), tracked, broken):
        assert '"ledger":null' in case_page("one", one, case, bounds=Bounds(events=2_000))


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
