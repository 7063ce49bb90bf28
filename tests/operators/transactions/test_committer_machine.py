"""What a committer commits and when: notifications, rounds, restores, the end of the input; and any mixture of these,
judged by the rows that readers see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.errors import ConfigurationError
from operators.transactions import END_OF_INPUT, CommitRequest, CommitRules, messages, summary
from operators.transactions.commit_rules import FLINK_1_15, FLINK_2
from operators.transactions.committables import CommitFailedError, CommittableProtocolError, Message, committable
from operators.transactions.committer_machine import CommitterMachine
from tests.operators.transactions.readers import Readers, fed

# --- notifications ----------------------------------------------------------------------------------------------


def test_a_notification_covers_all_checkpoints_before() -> None:
    """The oldest is first, each in a call of its own; later checkpoints stay."""
    readers = Readers()
    machine = fed(CommitterMachine(readers), *(messages(known, 0, 1, [f"of {known}"]) for known in (3, 1, 2)))

    done = machine.notify(2)

    assert [(one.checkpoint_id, one.payloads) for one in done] == [(1, ["of 1"]), (2, ["of 2"])]
    assert readers.rounds == [["of 1"], ["of 2"]]
    assert [element[0] for element in machine.state()] == [3]


def test_a_late_notification_of_an_older_checkpoint_changes_nothing() -> None:
    """The newer notification has covered everything that it covers."""
    readers = Readers()
    machine = fed(CommitterMachine(readers), messages(1, 0, 1, ["a"]), messages(3, 0, 1, ["b"]))
    machine.notify(2)

    assert machine.notify(1) == []
    assert readers.seen == ["a"]
    # The machine remembers that checkpoint 2 is complete.
    fed(machine, messages(2, 0, 1, ["late"]))
    assert readers.seen == ["a", "late"]


def test_committables_behind_their_notification_are_committed_when_all_have_come() -> None:
    """A barrier may have overtaken them; half of the announced committables are not committed."""
    readers = Readers()
    machine = fed(CommitterMachine(readers), [summary(1, 0, 1, 2), committable(1, 0, "a")])
    machine.notify(1)
    assert readers.seen == []

    done = machine.add(committable(1, 0, "b"))

    assert [one.payloads for one in done] == [["a", "b"]]
    assert machine.state() == []


def test_a_subtask_does_not_wait_for_another() -> None:
    """Each is committed when all that it has announced is there; the commit is reported when all are done."""
    readers = Readers()
    machine = fed(CommitterMachine(readers), [summary(1, 0, 2, 2), committable(1, 0, "a")], messages(1, 1, 2, ["b"]))
    assert machine.notify(1) == []
    assert readers.seen == ["b"]

    assert machine.add(committable(1, 0, "c")) == [(1, ["a", "c", "b"])]

    assert readers.rounds == [["b"], ["a", "c"]]


def test_what_has_failed_is_not_asked_for_again_behind_a_restore() -> None:
    """It was given up. Others committed beside unfinished ones are asked for again, for they were not reported."""

    class Judging(Readers):
        def commit(self, requests: Sequence[CommitRequest]) -> None:
            super().commit(requests)
            for request in requests:
                if request.committable == "bad":
                    request.signal_failed_with_known_reason("expired")
                elif request.committable == "later":
                    request.retry_later()

    machine = CommitterMachine(Judging(), CommitRules(retry_delay_ms=5))
    fed(machine, messages(1, 0, 1, ["good", "bad", "later"])).notify(1)
    readers = Readers()

    done = CommitterMachine(readers).restore(machine.state(), 0, 1)

    assert readers.seen == ["good", "later"]
    assert done == [(1, ["good", "later"])]


# --- rounds -----------------------------------------------------------------------------------------------------


def test_what_is_put_off_is_asked_for_again_at_once() -> None:
    """Later rounds have only the unfinished ones; metrics count the outcomes."""
    readers, counted = Readers(b=2), []
    machine = CommitterMachine(readers, count=lambda name, amount: counted.append((name, amount)))
    fed(machine, messages(1, 0, 1, ["a", "b"])).notify(1)

    assert readers.rounds == [["a", "b"], ["b"], ["b"]]
    assert counted == [("retriedCommittables", 1), ("retriedCommittables", 1), ("successfulCommittables", 2)]


def test_rounds_are_bounded() -> None:
    """Then the task fails, and all requests are still booked: a restore asks for them again."""
    readers = Readers(b=3)
    machine = fed(CommitterMachine(readers, CommitRules(max_retries=2)), messages(1, 0, 1, ["a", "b"]))

    with pytest.raises(CommitFailedError, match="1 committables of checkpoint 1 in 3 rounds") as caught:
        machine.notify(1)

    assert caught.value.kind == "retries_exhausted"
    assert len(readers.rounds) == 3
    assert machine.state() == [(1, 0, 1, 2, 0, 0, [("a", 0), ("b", 3)])]


def test_with_a_delay_every_round_waits_for_its_time() -> None:
    """No request is repeated before its time; after it, requests are repeated without a limit."""
    readers = Readers(a=3)
    machine = fed(CommitterMachine(readers, CommitRules(max_retries=0, retry_delay_ms=5)), messages(1, 0, 1, ["a"]))
    machine.notify(1)

    for round_number in range(2, 5):
        assert machine.needs_retry
        machine.commit_covered()
        assert len(readers.rounds) == round_number

    assert not machine.needs_retry
    assert not machine.books.up_to(machine.completed_id)


def test_behind_the_end_of_the_input_no_delay_is_waited_for() -> None:
    """No timer fires there; the rounds follow each other, and are bounded."""
    readers = Readers(a=3)
    machine = CommitterMachine(readers, CommitRules(max_retries=3, retry_delay_ms=5))
    fed(machine, messages(1, 0, 1, ["a"])).end_of_input(checkpoint_follows=True)

    machine.notify(1)

    assert len(readers.rounds) == 4
    assert not machine.needs_retry


def test_an_error_of_a_committer_leaves_everything_booked() -> None:
    """The task fails, and the state of the checkpoint still has all committables; a later notification asks again."""

    class Failing(Readers):
        def commit(self, requests: Sequence[CommitRequest]) -> None:
            super().commit(requests)
            if len(self.rounds) == 1:
                raise OSError("no route to host")

    readers = Failing()
    machine = fed(CommitterMachine(readers), messages(1, 0, 1, ["a"]))
    with pytest.raises(OSError, match="no route"):
        machine.notify(1)

    machine.notify(2)

    assert readers.rounds == [["a"], ["a"]]
    assert machine.state() == []


# --- restores ---------------------------------------------------------------------------------------------------


def test_a_restore_commits_what_its_checkpoint_covers() -> None:
    """It is unknown whether the notification came through."""
    state = fed(CommitterMachine(Readers()), messages(1, 0, 1, ["a"]), messages(2, 0, 1, ["b"])).state()
    readers = Readers()
    machine = CommitterMachine(readers)

    done = machine.restore(state, 0, 2)

    assert readers.seen == ["a", "b"]
    assert [one.checkpoint_id for one in done] == [1, 2]
    assert machine.state() == []


def test_a_restore_drops_what_lies_behind_its_checkpoint() -> None:
    """These rows come again in other files; the named files may have a new writer by then."""
    state = fed(CommitterMachine(Readers()), messages(1, 0, 1, ["a"]), messages(2, 0, 1, ["ahead"])).state()
    readers, counted = Readers(), []
    machine = CommitterMachine(readers, count=lambda name, amount: counted.append((name, amount)))

    machine.restore(state, 0, 1)
    machine.notify(5)

    assert readers.seen == ["a"]
    assert counted[0] == ("droppedCommittables", 1)


def test_a_restored_half_waits_for_the_other() -> None:
    """Committables that were in flight after the snapshot come after the restore."""
    state = fed(CommitterMachine(Readers()), [summary(1, 0, 1, 2), committable(1, 0, "a")]).state()
    readers = Readers()
    machine = CommitterMachine(readers)
    assert machine.restore(state, 3, 1) == []
    assert readers.seen == []

    machine.add(committable(1, 0, "b"))

    assert readers.rounds == [["a", "b"]]


# --- the end of the input ---------------------------------------------------------------------------------------


def test_a_notification_from_before_the_end_does_not_commit_the_rest() -> None:
    """Checkpoint 3 began before the writer came to its end: a restore from it writes the rest again."""
    readers = Readers()
    machine = fed(CommitterMachine(readers), messages(3, 0, 1, ["a"]), messages(4, 0, 1, ["rest"]))
    machine.end_of_input(checkpoint_follows=True)

    machine.notify(3)
    assert readers.seen == ["a"]

    machine.notify(5)
    assert readers.seen == ["a", "rest"]


def test_by_the_rules_of_flink_any_notification_does() -> None:
    """Our rules exist to prevent this."""
    readers = Readers()
    machine = CommitterMachine(readers, FLINK_2)
    fed(machine, messages(3, 0, 1, ["a"]), messages(END_OF_INPUT, 0, 1, ["rest"]))
    machine.end_of_input(checkpoint_follows=True)

    machine.notify(3)

    assert readers.seen == ["a", "rest"]


def test_without_checkpoints_everything_is_committed_at_the_end() -> None:
    """Without checkpoints no notification would ever commit."""
    readers = Readers()
    fed(CommitterMachine(readers), messages(1, 0, 1, ["a"])).end_of_input(checkpoint_follows=False)

    assert readers.seen == ["a"]


@pytest.mark.parametrize("checkpoint_follows", [True, False])
def test_what_is_missing_at_the_end_is_an_error(checkpoint_follows: bool) -> None:
    """It would never come, and never be committed; it was lost between writer and committer."""
    machine = fed(CommitterMachine(Readers()), [summary(1, 4, 5, 3), committable(1, 4, "a")])

    with pytest.raises(CommittableProtocolError, match=r"checkpoint 1 .* subtask 4: 1 of 3"):
        machine.end_of_input(checkpoint_follows=checkpoint_follows)


def test_that_nothing_more_comes_is_not_booked() -> None:
    """Operators that wait for all subtasks are told."""
    machine = fed(CommitterMachine(Readers()), [summary(END_OF_INPUT, 0, 1, 0)])

    assert machine.books.is_empty


def test_rules_are_checked() -> None:
    """Impossible numbers are refused; the error gives their name."""
    with pytest.raises(ConfigurationError, match="max_retries is -1"):
        CommitRules(max_retries=-1)
    with pytest.raises(ConfigurationError, match="retry_delay_ms is 0"):
        CommitRules(retry_delay_ms=0)


def test_the_old_rules_commit_what_there_is_of_older_checkpoints() -> None:
    """Only the newest checkpoint waits for incomplete subtasks (1.15 to 1.20)."""
    readers = Readers()
    machine = fed(
        CommitterMachine(readers, FLINK_1_15),
        [summary(1, 0, 1, 2), committable(1, 0, "a")],
        [summary(2, 0, 1, 2), committable(2, 0, "b")],
    )
    machine.notify(2)

    assert readers.seen == ["a"]


# --- any mixture ------------------------------------------------------------------------------------------------


class Cluster:
    """Writers, the committers after them, and a coordinator; records are numbers, each written once per attempt.

    ``overtaken``  how many messages of a checkpoint are in flight when its snapshot is taken (unaligned barriers);
    ``ahead``      whether messages of the next checkpoint are in the snapshot already (at-least-once).
    """

    def __init__(self, parallelism: int) -> None:
        self.visible: dict[int, dict[Any, int]] = {}
        """By record: the committables that have shown it to readers, and how often."""
        self.next_id = 1
        self.attempt = 0
        self.written = 0
        self.covered = 0
        self.checkpoint: tuple[int, list[list[Any]], list[list[Message]], int] | None = None
        self.start(parallelism)

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            record, attempt = request.committable
            assert record < self.covered, f"{record} is visible before its checkpoint is complete"
            shown = self.visible.setdefault(record, {})
            shown[attempt] = shown.get(attempt, 0) + 1
            assert len(shown) == 1, f"{record} is visible twice"

    def start(self, parallelism: int) -> None:
        self.attempt += 1
        known, states, in_flight, written = self.checkpoint or (None, [], [], 0)
        if any(in_flight):
            # On one-to-one edges no message is ever in flight; on others a book and its rest stay together.
            parallelism = len(in_flight)
        self.machines = [CommitterMachine(self) for _ in range(parallelism)]
        self.buffers: list[list[Any]] = [[] for _ in range(parallelism)]
        self.written = written
        if known is None:
            return
        for at, machine in enumerate(self.machines):
            machine.restore(dealt_out(states, at, parallelism), at, known)
        for machine, sent in zip(self.machines, in_flight, strict=False):
            fed(machine, sent)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.buffers[self.written % len(self.buffers)].append((self.written, self.attempt))
            self.written += 1

    def take(self, *, completes: bool, overtaken: int, ahead: bool, told: Sequence[bool]) -> None:
        known, subtasks = self.next_id, len(self.machines)
        self.next_id += 1
        sent = [messages(known, at, subtasks, buffer) for at, buffer in enumerate(self.buffers)]
        self.buffers = [[] for _ in self.machines]
        written = self.written
        in_flight = [list(one[len(one) - overtaken :]) if overtaken else [] for one in sent]
        for machine, one in zip(self.machines, sent, strict=True):
            fed(machine, one[: len(one) - overtaken] if overtaken else one)
        if ahead:
            self.write(subtasks)
            for at, machine in enumerate(self.machines):
                fed(machine, messages(known + 1, at, subtasks, self.buffers[at]))
            self.buffers = [[] for _ in self.machines]
        states = [machine.state() for machine in self.machines]
        if completes:
            self.checkpoint, self.covered = (known, states, in_flight, written), max(self.covered, written)
        for machine, hears in zip(self.machines, told, strict=False):
            if completes and hears:
                machine.notify(known)
        for machine, one in zip(self.machines, in_flight, strict=True):
            fed(machine, one)
        if ahead:
            # The writers have begun checkpoint known + 1; it never completes.
            self.next_id += 1

    def end(self) -> None:
        known, subtasks = self.next_id, len(self.machines)
        self.covered = self.written
        for at, machine in enumerate(self.machines):
            fed(machine, messages(known, at, subtasks, self.buffers[at]))
            machine.end_of_input(checkpoint_follows=True)
            machine.notify(known)


def dealt_out(states: list[list[Any]], subtask: int, parallelism: int) -> list[Any]:
    """List state is dealt out as it was, or in chunks when the parallelism has changed."""
    if len(states) == parallelism:
        return states[subtask]
    everything = [element for state in states for element in state]
    base, extra = divmod(len(everything), parallelism)
    first = subtask * base + min(subtask, extra)
    return everything[first : first + base + (subtask < extra)]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 5)),
        st.tuples(
            st.just("checkpoint"), st.booleans(), st.sampled_from([0, 0, 1, 2]), st.booleans(),
            st.lists(st.booleans(), min_size=3, max_size=3),
        ),
        st.tuples(st.just("restore"), st.integers(1, 3)),
    ),
    max_size=20,
)  # fmt: skip


@given(st.integers(1, 3), ACTIONS)
@settings(max_examples=300, deadline=None)
def test_every_record_becomes_visible_once_and_not_before_its_checkpoint(
    parallelism: int, actions: list[tuple[Any, ...]]
) -> None:
    """Whatever is lost, late, ahead, restored or rescaled; repeated commits of one committable are no news."""
    cluster = Cluster(parallelism)
    for kind, *arguments in actions:
        if kind == "write":
            cluster.write(*arguments)
        elif kind == "checkpoint":
            completes, overtaken, ahead, told = arguments
            cluster.take(completes=completes, overtaken=overtaken, ahead=ahead, told=told)
        else:
            cluster.start(*arguments)
    cluster.end()

    assert sorted(cluster.visible) == list(range(cluster.written))
