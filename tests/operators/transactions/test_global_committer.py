"""When the one committer behind all writers, or behind all committers, commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from operators.transactions import END_OF_INPUT, CommitRequest, CommitRules, messages, summary
from operators.transactions.commit_rules import FLINK_2
from operators.transactions.committables import CommitFailedError, Message, committable
from operators.transactions.global_committer_machine import GlobalCommitterMachine


class World:
    def __init__(self) -> None:
        self.commits: list[list[Any]] = []

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self.commits.append([request.committable for request in requests])


def behind_writers(world: World, rules: CommitRules | None = None) -> GlobalCommitterMachine:
    return GlobalCommitterMachine(world, rules, commit_on_input=False)


def behind_committers(world: World) -> GlobalCommitterMachine:
    return GlobalCommitterMachine(world, commit_on_input=True)


def fed(machine: GlobalCommitterMachine, *groups: list[Message]) -> GlobalCommitterMachine:
    for group in groups:
        for message in group:
            machine.add(message)
    return machine


def test_a_checkpoint_is_committed_as_a_whole() -> None:
    """All subtasks together, and not before the last of them has sent its part, though the checkpoint is complete."""
    world = World()
    machine = fed(behind_writers(world), messages(1, 0, 2, ["a"]))
    machine.notify(1)
    fed(machine, [summary(1, 1, 2, 2), committable(1, 1, "b")])
    machine.notify(2)
    assert world.commits == []

    machine.add(committable(1, 1, "c"))

    assert machine.notify(3) == [(1, ["a", "b", "c"])]
    assert world.commits == [["a", "b", "c"]]


def test_behind_committers_no_notification_is_waited_for() -> None:
    """What they send is of complete checkpoints: the last of it commits all of it."""
    world = World()
    machine = fed(behind_committers(world), messages(1, 0, 2, ["a"]), [summary(1, 1, 2, 2), committable(1, 1, "b")])
    assert world.commits == []

    assert machine.add(committable(1, 1, "c")) == [(1, ["a", "b", "c"])]

    assert machine.notify(1) == []
    assert world.commits == [["a", "b", "c"]]


def test_behind_committers_what_an_aborted_checkpoint_left_out_is_not_waited_for() -> None:
    """A later summary of a subtask says that nothing more comes from it for the checkpoint before."""
    world = World()
    machine = fed(behind_committers(world), messages(1, 0, 2, ["a"]), messages(2, 0, 2, ["b"]))
    assert world.commits == []

    fed(machine, messages(2, 1, 2, ["c"]))

    assert world.commits == [["a"], ["b", "c"]]


def test_nothing_is_committed_before_its_checkpoint_is_complete() -> None:
    """Even if all of it is here."""
    world = World()
    machine = fed(behind_writers(world), messages(2, 0, 1, ["a"]))
    machine.notify(1)
    assert world.commits == []

    machine.notify(2)

    assert world.commits == [["a"]]


def test_behind_writers_late_committables_wait_for_the_next_notification() -> None:
    """That of their own checkpoint has gone by."""
    world = World()
    machine = behind_writers(world)
    fed(machine, [summary(1, 0, 1, 1)]).notify(1)
    machine.add(committable(1, 0, "a"))
    assert world.commits == []

    machine.notify(2)

    assert world.commits == [["a"]]


def test_a_subtask_that_never_saw_an_aborted_checkpoint_is_not_waited_for() -> None:
    """Its next summary says that nothing more comes for that one."""
    world = World()
    machine = fed(behind_writers(world), messages(1, 0, 2, ["a"]), messages(2, 0, 2, ["b"]))

    fed(machine, messages(2, 1, 2, ["c"])).notify(2)

    assert world.commits == [["a"], ["b", "c"]]


def test_an_older_checkpoint_that_is_not_whole_holds_the_newer_back() -> None:
    """Whoever follows the commits sees them in order."""
    world = World()
    first = [summary(1, 0, 1, 2), committable(1, 0, "a")]
    machine = fed(behind_committers(world), first, messages(2, 0, 1, ["c"]))
    assert world.commits == []

    machine.add(committable(1, 0, "b"))

    assert world.commits == [["a", "b"], ["c"]]


@pytest.mark.parametrize("behind", [behind_writers, behind_committers])
def test_a_subtask_that_has_ended_is_not_waited_for(behind: Callable[[World], GlobalCommitterMachine]) -> None:
    """It has said so; the others go on."""
    world = World()
    machine = fed(
        behind(world),
        messages(1, 0, 2, ["rest"]),
        [summary(END_OF_INPUT, 0, 2, 0)],
        messages(1, 1, 2, ["a"]),
        messages(2, 1, 2, ["b"]),
    )

    machine.notify(2)

    assert world.commits == [["rest", "a"], ["b"]]
    assert machine.state() == []


def test_behind_writers_the_end_of_the_input_waits_for_nobody() -> None:
    """All that will ever come has come; the last checkpoint commits it, or without checkpoints the end does."""
    for checkpoint_follows in (True, False):
        world = World()
        machine = fed(behind_writers(world), messages(4, 0, 2, ["a"]), messages(6, 1, 2, ["b"]))
        machine.end_of_input(checkpoint_follows=checkpoint_follows)
        if checkpoint_follows:
            machine.notify(5)
            assert world.commits == [["a"]]
            machine.notify(6)

        assert world.commits == [["a"], ["b"]]


def test_behind_committers_more_comes_behind_the_end() -> None:
    """What the last checkpoint covers is committed when that is complete, and told then."""
    world = World()
    machine = behind_committers(world)
    machine.end_of_input(checkpoint_follows=True)
    machine.notify(7)
    fed(machine, messages(7, 0, 2, ["a"]))
    assert world.commits == []

    fed(machine, messages(7, 1, 2, ["b"]))

    assert world.commits == [["a", "b"]]


def test_a_restore_behind_writers_commits_at_once() -> None:
    """The state of a checkpoint holds everything of it, whatever the parallelism is now."""
    state = fed(behind_writers(World()), messages(1, 0, 2, ["a"]), messages(1, 1, 2, ["b"])).state()
    world = World()

    behind_writers(world).restore(state, 0, 1)

    assert world.commits == [["a", "b"]]


def test_a_restore_behind_committers_commits_what_is_whole() -> None:
    """Only books that name their subtask count: what an earlier restore has merged may be one part told twice."""
    part, rest = messages(1, 0, 2, ["a"]), messages(1, 1, 2, ["b"])
    whole = fed(behind_writers(World()), part, rest).state()
    world = World()
    behind_committers(world).restore(whole, 0, 1)
    assert world.commits == [["a", "b"]]

    once = behind_committers(World())
    once.restore(fed(behind_committers(World()), part).state(), 0, 1)
    twice_told = fed(once, part).state()
    world = World()
    machine = behind_committers(world)
    machine.restore(twice_told, 0, 1)
    assert world.commits == []

    fed(machine, part, rest)
    assert len(world.commits) == 1


def test_a_restore_behind_committers_waits_for_their_reports() -> None:
    """One of them had told of checkpoint 1 ahead of the barrier of 2, the other had not: it tells it again."""
    state = fed(behind_committers(World()), messages(1, 0, 2, ["a"])).state()
    world = World()
    machine = behind_committers(world)
    machine.restore(state, 0, 2)
    assert world.commits == []

    fed(machine, messages(2, 0, 2, []))
    assert world.commits == []
    fed(machine, messages(1, 1, 2, ["b"]), messages(2, 1, 2, []))

    assert world.commits[0] == ["a", "b"]


def test_a_restore_drops_what_lies_behind_its_checkpoint() -> None:
    """It comes again."""
    state = fed(behind_writers(World()), messages(2, 0, 1, ["ahead"])).state()
    world = World()
    machine = behind_writers(world)
    machine.restore(state, 0, 1)

    machine.notify(3)

    assert world.commits == []
    assert machine.state() == []


def test_by_the_rules_of_flink_any_notification_behind_the_end_commits_everything() -> None:
    """The next one."""
    world = World()
    machine = fed(behind_writers(world, FLINK_2), messages(END_OF_INPUT, 0, 1, ["a"]))
    machine.end_of_input(checkpoint_follows=True)

    machine.notify(1)

    assert world.commits == [["a"]]


def test_rounds_are_bounded() -> None:
    """Then the task fails, and everything is still booked."""

    class Stubborn(World):
        def commit(self, requests: Sequence[CommitRequest]) -> None:
            super().commit(requests)
            for request in requests:
                request.retry_later()

    world = Stubborn()
    machine = fed(behind_writers(world, CommitRules(max_retries=1)), messages(1, 0, 1, ["a"]))

    with pytest.raises(CommitFailedError, match="in 2 rounds"):
        machine.notify(1)

    assert len(world.commits) == 2
    assert len(machine.state()) == 1
