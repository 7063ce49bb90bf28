"""Where a barrier cuts: records before it are in the checkpoint, records behind it in the next one."""

from __future__ import annotations

import pytest

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from tests.scenarios.story import CHECKPOINT, Kill, Story, Wait


def test_record_behind_the_barrier_lands_in_the_next_checkpoint() -> None:
    """A record behind the barrier on a blocked channel waits, and is counted in the next checkpoint."""
    story = Story()
    a = story.source("a", "x", CHECKPOINT, "y", Wait(20), CHECKPOINT)
    b = story.source("b", "x", delay_ms=10)
    story.count(a.union(b))

    told = story.tell()

    assert told.counts_in(checkpoint=1) == {"x": 2}
    assert told.counts_in(checkpoint=2) == {"x": 2, "y": 1}
    assert told.oracle.held


def test_record_before_the_barrier_is_waited_for() -> None:
    """A record that is still under way when the checkpoint begins lies before the barrier, so it is in it."""
    story = Story()
    a = story.source("a", "x", CHECKPOINT, Wait(20), "x")
    b = story.source("b", "slow", delay_ms=10)
    story.count(a.union(b))

    told = story.tell()

    assert told.counts_in(checkpoint=1) == {"x": 1, "slow": 1}
    assert told.blocked_channels() >= 1


def test_union_of_three_inputs_is_aligned() -> None:
    """The count waits for the barriers of all three inputs, however late each of them is."""
    story = Story()
    a = story.source("a", "a", CHECKPOINT, "late a", Wait(40))
    b = story.source("b", "b", Wait(2), "late b", delay_ms=6)
    c = story.source("c", "c", Wait(2), "late c", delay_ms=15)
    story.count(a.union(b, c))

    told = story.tell()

    assert told.counts_in(checkpoint=1) == {"a": 1, "b": 1, "c": 1}
    assert told.counts() == dict.fromkeys(("a", "b", "c", "late a", "late b", "late c"), 1)
    assert told.oracle.held


def test_an_input_that_has_ended_holds_up_no_checkpoint() -> None:
    """A source without further records still takes part: its barrier follows its last record."""
    story = Story()
    a = story.source("a", "x", Wait(5), CHECKPOINT, "x", Wait(5), CHECKPOINT, "x")
    b = story.source("b", "once")
    story.count(a.union(b))

    told = story.tell()

    assert told.completed() == [1, 2, 3]
    assert told.counts_in(checkpoint=1) == {"x": 1, "once": 1}
    assert told.counts_in(checkpoint=2) == {"x": 2, "once": 1}


def test_a_source_without_records_is_no_obstacle() -> None:
    """An empty input ends at once, and checkpoints complete all the same."""
    story = Story()
    a = story.source("a", "x", CHECKPOINT, "x")
    story.count(a.union(story.source("nothing")))

    told = story.tell()

    assert told.completed() == [1, 2]
    assert told.counts() == {"x": 2}


def test_without_alignment_the_record_behind_the_barrier_is_counted_too_early() -> None:
    """In at-least-once mode the same record gets into the checkpoint, and a restart counts it again."""
    story = Story(mode="at-least-once", restart_ms=1)
    a = story.source("a", "x", CHECKPOINT, "y", Wait(20), Kill("count"))
    b = story.source("b", "x", delay_ms=10)
    story.count(a.union(b))

    told = story.tell()

    verdict = told.oracle.verdict(1)
    assert verdict is not None
    assert (verdict.orphans, verdict.in_transit) == (1, 0)
    assert told.attempts() == [None, 1]
    assert max(count for word, count in told.committed if word == "y") == 2
    assert max(count for word, count in told.committed if word == "x") == 2


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_a_barrier_falls_between_two_records_of_a_batch(batch_size: int) -> None:
    """The batching of records does not matter: the cut is at the position of the source."""
    story = Story(batch_size=batch_size)
    story.count(story.source("a", "x", "x", "x", CHECKPOINT, "x", "x"))

    told = story.tell()

    assert told.counts_in(checkpoint=1) == {"x": 3}
    assert told.counts() == {"x": 5}


class Tag(Operator):
    """Says of each record which subtask got it."""

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(Batch([(self.context.subtask, value) for value in batch.values]))


@pytest.mark.parametrize(
    ("spread", "gets"),
    [("broadcast", ["xyz", "xyz", "xyz"]), ("rebalance", ["x", "y", "z"]), ("global", ["xyz", "", ""])],
)
def test_barriers_go_to_every_subtask(spread: str, gets: list[str]) -> None:
    """Whichever receiver gets the records, all get the barrier: the checkpoint completes and is consistent."""
    story = Story()
    words = story.source("a", "x", "y", "z", CHECKPOINT, Wait(3), "x", "y", "z")
    routed = {"broadcast": words.broadcast, "rebalance": words.rebalance, "global": words.global_}[spread]()
    story.commit(routed.via(Tag, name="tag", parallelism=3))

    told = story.tell()

    assert told.completed() == [1, 2]
    assert told.oracle.held
    for checkpoint in (1, 2):
        part = told.committed_by(checkpoint)
        assert ["".join(value for subtask, value in part if subtask == one) for one in range(3)] == gets
