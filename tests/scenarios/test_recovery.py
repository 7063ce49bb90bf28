"""Killed at the worst moments: the output is that of a run in which nothing happened."""

from __future__ import annotations

import pytest

from tests.scenarios.story import CHECKPOINT, Kill, Story, Wait


def test_killed_behind_a_checkpoint() -> None:
    """Records after the checkpoint are read again; records before it are not."""
    story = Story()
    story.count(story.source("a", "x", "x", CHECKPOINT, "x", Kill("count"), "x"))

    told = story.tell()

    assert told.attempts() == [None, 1]
    assert told.counts() == {"x": 4}


def test_killed_in_the_middle_of_alignment() -> None:
    """A task that dies while one input is blocked leaves no checkpoint; the attempt before it counts."""
    story = Story()
    a = story.source("a", "x", CHECKPOINT, Wait(20), "x", CHECKPOINT, "y", Wait(3), Kill("count"), Wait(30))
    b = story.source("b", "x", Wait(40), delay_ms=10)
    story.count(a.union(b))

    told = story.tell()

    assert told.blocked_channels() >= 3
    assert told.aborted() == [2]
    assert told.attempts() == [None, 1]
    assert told.counts() == {"x": 3, "y": 1}


def test_killed_while_the_snapshot_is_being_written() -> None:
    """All barriers were there but the state was not durable: the checkpoint never happened."""
    story = Story(storage_ms=10)
    story.count(story.source("a", "x", CHECKPOINT, "x", Wait(3), Kill("count"), "x", Wait(60)))

    told = story.tell()

    assert told.triggered()[0] == 1
    assert told.aborted() == [1]
    assert told.attempts() == [None, None]
    assert told.counts() == {"x": 3}


@pytest.mark.parametrize("late_ms", [0.001, 0.25, 1.0, 4.0])
def test_killed_again_right_after_the_restart(late_ms: float) -> None:
    """A second kill during recovery restores the same checkpoint once more."""
    story = Story(restart_ms=2)
    story.count(story.source("a", "x", CHECKPOINT, "y", Kill("count"), "x", Wait(10), "z"))
    story.also_kill("a", at_ms=1.5 + 2 + late_ms)

    told = story.tell()

    assert told.attempts() == [None, 1, 1]
    assert told.counts() == {"x": 2, "y": 1, "z": 1}


def test_killed_over_and_over_it_still_gets_on() -> None:
    """Each attempt gets one checkpoint further; no kill takes back committed rows."""
    story = Story(restart_ms=1)
    steps = [step for word in "abcdef" for step in (word, CHECKPOINT, Kill("count"), Wait(8))]
    story.count(story.source("a", *steps))

    told = story.tell()

    assert len(told.attempts()) == 7
    assert told.attempts() == sorted(told.attempts(), key=lambda restored: restored or 0)
    assert told.counts() == dict.fromkeys("abcdef", 1)


def test_the_source_is_killed_with_records_under_way() -> None:
    """Records that had left the source but reached no task are sent again, and none arrives twice."""
    story = Story()
    story.count(story.source("a", "x", CHECKPOINT, "y", "y", Wait(2), Kill("a"), "z", delay_ms=5))

    told = story.tell()

    assert told.counts() == {"x": 1, "y": 2, "z": 1}


def test_every_task_is_killed_at_once() -> None:
    """With all tasks dead the checkpoint is all there is, and it is enough."""
    story = Story(parallelism=2)
    words = story.source("a", "x", "y", CHECKPOINT, "x", Wait(1), "y", Wait(9))
    story.count(words, parallelism=2)
    for target in ("a", "count"):
        story.also_kill(target, at_ms=1.75)

    told = story.tell()

    assert told.attempts() == [None, 1]
    assert told.counts() == {"x": 2, "y": 2}


def test_a_kill_behind_the_last_record_repeats_nothing() -> None:
    """The input has ended but the last checkpoint is not complete: the rest is read again and committed once."""
    story = Story(storage_ms=10)
    story.count(story.source("a", "x", CHECKPOINT, Wait(40), "y"))
    story.also_kill("count", at_ms=46)

    told = story.tell()

    assert told.attempts() == [None, 1]
    assert told.counts() == {"x": 1, "y": 1}
