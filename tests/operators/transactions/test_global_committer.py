"""The one committer after all writers, or after all committers: when it commits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from operators.transactions import END_OF_INPUT, CommitRules, messages, summary
from operators.transactions.committables import CommitFailedError, committable
from operators.transactions.global_committer_machine import GlobalCommitterMachine
from tests.operators.transactions.readers import Readers, fed


def behind_writers(readers: Readers, rules: CommitRules | None = None) -> GlobalCommitterMachine:
    return GlobalCommitterMachine(readers, rules, commit_on_input=False)


def behind_committers(readers: Readers) -> GlobalCommitterMachine:
    return GlobalCommitterMachine(readers, commit_on_input=True)


def test_a_checkpoint_is_committed_as_a_whole() -> None:
    """It commits all subtasks together, after the last has sent its part, even if the checkpoint is complete before."""
    readers = Readers()
    machine = fed(behind_writers(readers), messages(1, 0, 2, ["a"]))
    machine.notify(1)
    fed(machine, [summary(1, 1, 2, 2), committable(1, 1, "b")])
    machine.notify(2)
    assert readers.rounds == []

    machine.add(committable(1, 1, "c"))

    assert machine.notify(3) == [(1, ["a", "b", "c"])]
    assert readers.rounds == [["a", "b", "c"]]


def test_behind_committers_no_notification_is_waited_for() -> None:
    """Committers send only complete checkpoints: the last message commits all of it."""
    readers = Readers()
    machine = fed(behind_committers(readers), messages(1, 0, 2, ["a"]), [summary(1, 1, 2, 2), committable(1, 1, "b")])
    assert readers.rounds == []

    assert machine.add(committable(1, 1, "c")) == [(1, ["a", "b", "c"])]

    assert machine.notify(1) == []
    assert readers.rounds == [["a", "b", "c"]]


def test_behind_committers_what_an_aborted_checkpoint_left_out_is_not_waited_for() -> None:
    """A later summary of a subtask says that it sends no more for the checkpoint before."""
    readers = Readers()
    machine = fed(behind_committers(readers), messages(1, 0, 2, ["a"]), messages(2, 0, 2, ["b"]))
    assert readers.rounds == []

    fed(machine, messages(2, 1, 2, ["c"]))

    assert readers.rounds == [["a"], ["b", "c"]]


def test_nothing_is_committed_before_its_checkpoint_is_complete() -> None:
    """This holds even if all committables are here."""
    readers = Readers()
    machine = fed(behind_writers(readers), messages(2, 0, 1, ["a"]))
    machine.notify(1)
    assert readers.rounds == []

    machine.notify(2)

    assert readers.rounds == [["a"]]


def test_behind_writers_late_committables_wait_for_the_next_notification() -> None:
    """The notification of their own checkpoint came earlier."""
    readers = Readers()
    machine = behind_writers(readers)
    fed(machine, [summary(1, 0, 1, 1)]).notify(1)
    machine.add(committable(1, 0, "a"))
    assert readers.rounds == []

    machine.notify(2)

    assert readers.rounds == [["a"]]


def test_a_subtask_that_never_saw_an_aborted_checkpoint_is_not_waited_for() -> None:
    """Its next summary says that it sends no more for that checkpoint."""
    readers = Readers()
    machine = fed(behind_writers(readers), messages(1, 0, 2, ["a"]), messages(2, 0, 2, ["b"]))

    fed(machine, messages(2, 1, 2, ["c"])).notify(2)

    assert readers.rounds == [["a"], ["b", "c"]]


def test_an_older_checkpoint_that_is_not_whole_holds_the_newer_back() -> None:
    """Programs that follow the commits see them in order."""
    readers = Readers()
    first = [summary(1, 0, 1, 2), committable(1, 0, "a")]
    machine = fed(behind_committers(readers), first, messages(2, 0, 1, ["c"]))
    assert readers.rounds == []

    machine.add(committable(1, 0, "b"))

    assert readers.rounds == [["a", "b"], ["c"]]


@pytest.mark.parametrize("behind", [behind_writers, behind_committers])
def test_a_subtask_that_has_ended_is_not_waited_for(behind: Callable[[Readers], GlobalCommitterMachine]) -> None:
    """It has said so; the others go on."""
    readers = Readers()
    machine = fed(
        behind(readers),
        messages(1, 0, 2, ["rest"]),
        [summary(END_OF_INPUT, 0, 2, 0)],
        messages(1, 1, 2, ["a"]),
        messages(2, 1, 2, ["b"]),
    )

    machine.notify(2)

    assert readers.rounds == [["rest", "a"], ["b"]]
    assert machine.state() == []


def test_behind_writers_the_end_of_the_input_waits_for_nobody() -> None:
    """All committables have come; the last checkpoint commits them, or without checkpoints the end does."""
    for checkpoint_follows in (True, False):
        readers = Readers()
        machine = fed(behind_writers(readers), messages(4, 0, 2, ["a"]), messages(6, 1, 2, ["b"]))
        machine.end_of_input(checkpoint_follows=checkpoint_follows)
        if checkpoint_follows:
            machine.notify(5)
            assert readers.rounds == [["a"]]
            machine.notify(6)

        assert readers.rounds == [["a"], ["b"]]


def test_behind_committers_more_comes_behind_the_end() -> None:
    """The rows that the last checkpoint covers are committed when it is complete, and reported then."""
    readers = Readers()
    machine = behind_committers(readers)
    machine.end_of_input(checkpoint_follows=True)
    machine.notify(7)
    fed(machine, messages(7, 0, 2, ["a"]))
    assert readers.rounds == []

    fed(machine, messages(7, 1, 2, ["b"]))

    assert readers.rounds == [["a", "b"]]


def test_a_restore_behind_writers_commits_at_once() -> None:
    """The state of a checkpoint has all its committables, whatever the parallelism is now."""
    state = fed(behind_writers(Readers()), messages(1, 0, 2, ["a"]), messages(1, 1, 2, ["b"])).state()
    readers = Readers()

    behind_writers(readers).restore(state, 0, 1)

    assert readers.rounds == [["a", "b"]]


def test_a_restore_behind_committers_commits_what_is_whole() -> None:
    """Only books with a subtask count: those merged by an earlier restore may be one part reported twice."""
    part, rest = messages(1, 0, 2, ["a"]), messages(1, 1, 2, ["b"])
    whole = fed(behind_writers(Readers()), part, rest).state()
    readers = Readers()
    behind_committers(readers).restore(whole, 0, 1)
    assert readers.rounds == [["a", "b"]]

    once = behind_committers(Readers())
    once.restore(fed(behind_committers(Readers()), part).state(), 0, 1)
    twice_told = fed(once, part).state()
    readers = Readers()
    machine = behind_committers(readers)
    machine.restore(twice_told, 0, 1)
    assert readers.rounds == []

    fed(machine, part, rest)
    assert len(readers.rounds) == 1


def test_a_restore_behind_committers_waits_for_their_reports() -> None:
    """One of them had reported checkpoint 1 before the barrier of 2, the other had not: it reports it again."""
    state = fed(behind_committers(Readers()), messages(1, 0, 2, ["a"])).state()
    readers = Readers()
    machine = behind_committers(readers)
    machine.restore(state, 0, 2)
    assert readers.rounds == []

    fed(machine, messages(2, 0, 2, []))
    assert readers.rounds == []
    fed(machine, messages(1, 1, 2, ["b"]), messages(2, 1, 2, []))

    assert readers.rounds[0] == ["a", "b"]


def test_rounds_are_bounded() -> None:
    """Then the task fails, and everything is still booked."""

    readers = Readers(a=9)
    machine = fed(behind_writers(readers, CommitRules(max_retries=1)), messages(1, 0, 1, ["a"]))

    with pytest.raises(CommitFailedError, match="in 2 rounds"):
        machine.notify(1)

    assert len(readers.rounds) == 2
    assert len(machine.state()) == 1
