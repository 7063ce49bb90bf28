"""Visible output: a sink commits with a completed checkpoint all of its rows, and no others."""

from __future__ import annotations

from tests.scenarios.story import CHECKPOINT, Kill, Story, Wait


def test_the_sink_commits_when_the_checkpoint_is_complete() -> None:
    """Records wait in the sink while the snapshot is being written, and come out with its completion."""
    story = Story(storage_ms=10)
    story.commit(story.source("a", "x", "y", CHECKPOINT, "z", Wait(80)))

    told = story.tell()

    assert told.committed_before(checkpoint=1) == []
    assert told.committed_by(checkpoint=1) == ["x", "y"]
    assert told.committed_by(checkpoint=2) == ["z"]


def test_the_last_checkpoint_commits_the_rest() -> None:
    """A job without a checkpoint on its way takes one at its end, which commits everything."""
    story = Story()
    story.commit(story.source("a", "x", "y", "z"))

    told = story.tell()

    assert told.completed() == [1]
    assert told.committed == ["x", "y", "z"]


def test_nothing_of_an_aborted_checkpoint_is_committed_by_itself() -> None:
    """Rows that a sink held for an aborted checkpoint are committed later, with a completed one, and only once."""
    story = Story(storage_ms=10)
    story.commit(story.source("a", "x", CHECKPOINT, "y", Wait(3), Kill("a"), "z", Wait(60)))

    told = story.tell()

    assert told.aborted() == [1]
    assert told.committed_before(checkpoint=2) == []
    assert told.committed == ["x", "y", "z"]


def test_a_commit_whose_notification_was_lost_is_made_up_for() -> None:
    """A sink that died between completion and notification commits when it is restored."""
    story = Story(restart_ms=5)
    story.commit(story.source("a", "x", CHECKPOINT, "y", Wait(10), "z"))
    # At the instant of the checkpoint, in the order of the seed: before, between and after its steps.
    story.also_kill("a", at_ms=0.5)

    told = story.tell()

    assert len(told.attempts()) == 2
    assert told.committed == ["x", "y", "z"]


def test_at_no_order_of_events_is_a_commit_lost_or_repeated() -> None:
    """A kill at the very instant at which a checkpoint begins, or completes, each told with a hundred seeds."""
    restored_from = set()
    for seed in range(200):
        story = Story(seed=str(seed), storage_ms=1)
        words = story.source("a", "x", CHECKPOINT, "y", Wait(10), "z").rebalance()
        story.commit(words.map(lambda word: word, name="copy", parallelism=2))
        story.also_kill("copy[0]", at_ms=0.5 if seed % 2 else 2.5)

        told = story.tell()

        restored_from.add(told.attempts()[1])
        assert sorted(told.committed) == ["x", "y", "z"], f"seed {seed}"
    assert restored_from == {None, 1}


def test_two_sinks_commit_with_the_same_checkpoint() -> None:
    """Both ends of a job show the same prefix of the input, whichever is killed."""
    story = Story()
    words = story.source("a", "x", "y", CHECKPOINT, "z", Kill("out"), Wait(2), "z")
    story.commit(words)
    story.count(words)
    story.also_kill("count", at_ms=20)

    told = story.tell()

    assert sorted(map(str, told.committed_by(1))) == ["('x', 1)", "('y', 1)", "x", "y"]
    assert sorted(map(str, told.committed)) == sorted(
        ["x", "y", "z", "z", "('x', 1)", "('y', 1)", "('z', 1)", "('z', 2)"]
    )
