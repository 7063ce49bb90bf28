"""The two-phase-commit sink on a transactional log: what happens at each crash point, to zombies, after a change of
parallelism and when time runs out; and any mixture of these, judged by the rows that readers see.

``N`` is the last completed checkpoint throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, DataLossError, StorageError, UserFunctionError
from operators.log import port
from operators.log.connectors.log_sink import LogSink
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port.transaction_log import (
    FENCED,
    LogTimeoutError,
    LogTransactionGoneError,
    Producer,
    ProducerFencedError,
    Request,
    TransactionLogError,
)
from operators.transactions import Transaction, TransactionLostError, TwoPhaseCommitSinkOperator
from tests.operators.harness import START_NS, Harness
from tests.operators.sink_cluster import SinkCluster
from tests.operators.transactions.two_phase_crashes import TwoPhaseCrashes

UID = "op-uid"
MS = 1_000_000


class Cluster(SinkCluster):
    """Over a log in memory."""

    def __init__(self, parallelism: int = 1, **options: Any) -> None:
        self.log = MemoryTransactionLog()
        super().__init__(LogSink("rows", log=self.log, **options), parallelism)

    def visible(self) -> list[int]:
        return sorted(int(row) for row in self.sink.committed_rows())

    def crash(self, parallelism: int | None = None, order: Sequence[int] | None = None) -> None:
        """After this, no transaction holds readers up."""
        super().crash(parallelism, order)
        assert self.stable() == self.visible()

    def unfinished(self) -> list[Any]:
        return self.log.open_transactions()

    def stable(self) -> list[Any]:
        """The records for a reader that does not read past open transactions."""
        return sorted(one.value for number in range(self.sink.partitions) for one in self.log.read("rows", number))


def fate_of(kind: str, fate: str, times: int = 1) -> Callable[[Request], str]:
    left = [times]

    def gate(request: Request) -> str:
        if request.kind != kind or not left[0]:
            return port.DELIVERED
        left[0] -= 1
        return fate

    return gate


# --- crash points -------------------------------------------------------------------------------------------------


class TestCrashes(TwoPhaseCrashes):
    @pytest.fixture
    def cluster_of(self) -> type[Cluster]:
        return Cluster


@pytest.mark.parametrize("fate", [port.ANSWER_LOST, port.REQUEST_LOST])
def test_a_crash_in_the_commit_is_made_good_by_the_restore(fate: str) -> None:
    """Whether the commit was carried out, its answer lost, or never arrived: after the restore it is there once."""
    cluster = Cluster()
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    cluster.log.gate = fate_of("commit", fate, times=3)
    with pytest.raises(LogTimeoutError):
        cluster.tasks[0].complete(checkpoint.id)
    cluster.start()
    assert cluster.visible() == cluster.stable() == [1]


def test_a_second_crash_during_the_recovery_changes_nothing() -> None:
    """Recovery repeats its commits, also if it died between two transactions, or before it could fence."""
    cluster = Cluster(parallelism=3)
    cluster.write(0, 1, 2)
    cluster.checkpoint()
    cluster.write(3, 4, 5)
    for kind in ("commit", "init", "abort"):
        for survives in range(3):
            seen = [0]

            def gate(request: Request, kind: str = kind, survives: int = survives, seen: list[int] = seen) -> str:
                seen[0] += request.kind == kind
                return port.ANSWER_LOST if request.kind == kind and seen[0] > survives else port.DELIVERED

            cluster.log.gate = gate
            with pytest.raises(LogTimeoutError):
                cluster.start(1)
    cluster.log.gate = None
    cluster.start(1)
    assert cluster.visible() == cluster.stable() == [0, 1, 2]


def test_a_request_without_an_answer_is_repeated() -> None:
    """The task survives a few lost answers, and no record comes twice; more of them fail the task."""
    for kind in ("begin", "append", "prepare", "commit"):
        for fate in (port.ANSWER_LOST, port.REQUEST_LOST):
            cluster = Cluster(retries=2)
            cluster.log.gate = fate_of(kind, fate, times=2)
            cluster.write(1, 2)
            cluster.checkpoint(0)
            assert cluster.visible() == [1, 2], (kind, fate)
            assert cluster.counter("numRequestsRetried") == 2
    cluster = Cluster(retries=0)
    cluster.log.gate = fate_of("append", port.ANSWER_LOST)
    with pytest.raises(LogTimeoutError):
        cluster.write(1)


# --- zombies and names --------------------------------------------------------------------------------------------


def test_a_zombie_is_fenced_whatever_it_does() -> None:
    """It cannot write, pre-commit or commit rows unless its successor knows of them."""
    cluster = Cluster()
    cluster.write(1)
    cluster.checkpoint(0)
    cluster.write(2)
    pre_committed = cluster.snapshot()
    cluster.write(3)
    (zombie,) = cluster.tasks
    cluster.start()

    with pytest.raises(ProducerFencedError):
        zombie.process([4])
    with pytest.raises(ProducerFencedError):
        zombie.snapshot(9)
    with pytest.raises(DataLossError):
        zombie.complete(pre_committed.id)
    assert (cluster.visible(), cluster.stable()) == ([1], [1])
    cluster.write(2, 3)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2, 3]


def test_a_zombie_that_commits_late_what_is_committed_does_no_harm() -> None:
    """The name of that transaction is not free for another transaction of the zombie."""
    cluster = Cluster()
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    (zombie,) = cluster.tasks
    cluster.start()
    zombie.complete(checkpoint.id)
    assert cluster.visible() == [1]
    following = cluster.log.commit(Producer(f"{UID}/0/1.1/0", 0), START_NS)
    with pytest.raises(ProducerFencedError):
        cluster.log.begin(following, START_NS)


def test_a_zombie_cannot_take_a_name_from_its_successor() -> None:
    """Names contain the attempt: whatever the zombie registers, the successor goes on."""
    cluster = Cluster()
    (zombie,) = cluster.tasks
    cluster.start()
    cluster.write(1)
    zombie.operator.initialize_state()
    zombie.operator.open()
    zombie.close()
    cluster.checkpoint(0)
    assert cluster.visible() == cluster.stable() == [1]


def test_the_transaction_behind_a_committed_one_is_aborted_though_it_has_its_name() -> None:
    """In N the first transaction of that name is pre-committed; this must not protect the second, open one."""
    cluster = Cluster()
    cluster.write(1)
    cluster.checkpoint(0)
    cluster.write(2)
    cluster.snapshot()
    cluster.write(3)
    used = {one.producer.transactional_id for one in cluster.log.open_transactions() if one.records}
    assert f"{UID}/0/1.1/0" in used
    cluster.start()
    assert (cluster.visible(), cluster.stable()) == ([1], [1])


def test_names_are_few_however_long_a_job_runs() -> None:
    """A slot is free again once its transaction is committed."""
    cluster = Cluster()
    for value in range(20):
        cluster.write(value)
        cluster.checkpoint(0)
    assert len(cluster.log.transactions("", START_NS)) == 2
    assert sum(exchange.request.kind == "init" for exchange in cluster.log.history) == 2
    assert cluster.visible() == list(range(20))


# --- time ---------------------------------------------------------------------------------------------------------


def expire(cluster: Cluster) -> None:
    cluster.now_ns += 20 * MS
    for task in cluster.tasks:
        task.context.now_ns = cluster.now_ns


def test_a_transaction_that_timed_out_before_its_commit_is_reported_as_lost() -> None:
    """The notification and each restore report it, with an error that no restart helps; none of it is visible."""
    cluster = Cluster(transaction_timeout_ns=10 * MS)
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    expire(cluster)
    with pytest.raises(DataLossError, match=r"pre-committed for checkpoint 1: .*longer than its timeout") as caught:
        cluster.tasks[0].complete(checkpoint.id)
    assert "its records are lost" in str(caught.value)
    with pytest.raises(DataLossError):
        cluster.start()
    assert cluster.visible() == []


def test_a_loss_may_be_left_behind_but_only_by_a_restore_and_only_if_it_is_old_enough() -> None:
    """``ignore_failures_after_transaction_timeout``: the loss is counted, and the job goes on without it."""
    cluster = Cluster(transaction_timeout_ns=10 * MS, ignore_failures_after_transaction_timeout=True)
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    fenced = next(one.producer for one in cluster.log.open_transactions() if one.records)
    cluster.log.init_transactions(fenced.transactional_id, 10 * MS, cluster.now_ns)
    assert cluster.log.outcome(fenced, cluster.now_ns) == FENCED
    with pytest.raises(DataLossError):
        cluster.start()
    expire(cluster)
    with pytest.raises(DataLossError):
        cluster.tasks[0].complete(checkpoint.id)
    cluster.start()
    assert cluster.counter("numTransactionsLost") == 1
    losses = [loss for task in cluster.tasks for loss in task.context.losses]
    assert len(losses) == 1
    assert "of checkpoint 1" in losses[0]
    cluster.write(2)
    cluster.checkpoint(0)
    assert cluster.visible() == [2]


def test_a_transaction_that_grows_old_is_counted() -> None:
    """It counts strictly after the given part of the timeout, in commits and in restores."""
    cluster = Cluster(transaction_timeout_ns=40 * MS, timeout_warning_ratio=0.5)
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    expire(cluster)
    cluster.tasks[0].complete(checkpoint.id)
    assert cluster.counter("numTransactionsNearTimeout") == 0
    cluster.write(2)
    cluster.tasks[0].context.now_ns += 1
    cluster.checkpoint(0)
    assert cluster.counter("numTransactionsNearTimeout") == 1


def test_the_current_transaction_may_expire_without_a_loss() -> None:
    """The task fails, and its records come again."""
    cluster = Cluster(transaction_timeout_ns=10 * MS)
    cluster.write(1)
    expire(cluster)
    with pytest.raises(ProducerFencedError):
        cluster.write(2)
    cluster.start()
    cluster.write(1, 2)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2]


# --- older checkpoints --------------------------------------------------------------------------------------------


def test_a_restore_from_before_what_is_published_is_refused_or_reported() -> None:
    """A log cannot take records back: the rows of the newer checkpoint would come twice. Never silently."""
    for choice in ("fail", "report"):
        cluster = Cluster(newer_commits=choice)
        cluster.write(1)
        older = cluster.checkpoint(0)
        cluster.write(2)
        newer = cluster.checkpoint(0)
        cluster.completed = older
        if choice == "fail":
            with pytest.raises(StorageError, match=r"starts from checkpoint 1, but transaction .* of checkpoint 2 is"):
                cluster.start()
            cluster.completed = newer
            cluster.start()
            assert cluster.visible() == [1, 2]
        else:
            cluster.start()
            assert cluster.counter("numTransactionsPublishedAgain") == 1


# --- the end ------------------------------------------------------------------------------------------------------


def test_without_checkpoints_everything_is_committed_by_finish() -> None:
    """No checkpoint would commit it."""
    log = MemoryTransactionLog()
    plain = Harness(LogSink("rows", log=log).create_operator(), checkpointing_enabled=False)
    plain.process([1])
    plain.finish()
    assert [one.value for one in log.read("rows", 0)] == [1]


def test_close_aborts_what_is_current_and_nothing_else() -> None:
    """Pending transactions are for the next attempt; a log that does not answer is no reason to fail again."""
    cluster = Cluster()
    cluster.write(1)
    cluster.checkpoint()
    cluster.write(2)
    cluster.log.gate = fate_of("abort", port.REQUEST_LOST, times=9)
    cluster.tasks[0].close()
    assert cluster.counter("numAbortsFailed") == 1
    cluster.log.gate = None
    cluster.start()
    cluster.tasks[0].close()
    assert cluster.visible() == cluster.stable() == [1]
    assert cluster.log.open_transactions() == []


# --- other guarantees ---------------------------------------------------------------------------------------------


def test_at_least_once_repeats_and_none_loses() -> None:
    """After a lost answer the one writes twice; after a lost request the other loses a record, and counts it."""
    repeating = Cluster(delivery="at-least-once")
    repeating.log.gate = fate_of("append", port.ANSWER_LOST)
    repeating.write(1)
    assert repeating.visible() == [1, 1]
    losing = Cluster(delivery="none")
    losing.log.gate = fate_of("append", port.REQUEST_LOST)
    losing.write(1, 2)
    assert losing.visible() == [2]
    assert losing.counter("numRequestsUnanswered") == 1


def test_records_go_where_the_partition_function_says() -> None:
    """They keep their order; the default is the partition of the subtask's number. An invalid result is an error."""
    cluster = Cluster(partitions=2, partition=lambda value, count: value % count)
    cluster.tasks[0].process([1, 2, 3, 4])
    cluster.checkpoint(0)
    assert [[one.value for one in cluster.log.read("rows", number)] for number in (0, 1)] == [[2, 4], [1, 3]]
    wrong = Cluster(partitions=2, partition=lambda value, count: value)
    with pytest.raises(UserFunctionError, match="7 is no partition of 2"):
        wrong.tasks[0].process([7])


def test_settings_that_make_no_sense_are_refused() -> None:
    """Each error says what is allowed."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"delivery": "twice"}, "delivery is 'twice'"),
        ({"newer_commits": "skip"}, "newer_commits is 'skip'"),
        ({"log": "events"}, "log is 'events'; for a log in files give log=DiskLog"),
        ({"retries": -1}, "retries is -1"),
        ({"timeout_warning_ratio": 2.0}, "must be from 0 to 1"),
        ({"transaction_timeout_ns": 0}, "is 0; it must be a whole number from 1, or None"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            LogSink("rows", **options)


def test_a_fresh_sink_is_like_the_old_one_with_an_empty_log() -> None:
    """It has every setting, and no record."""
    partition: Callable[[Any, int], int] = lambda value, count: 0  # noqa: E731
    sink = LogSink(
        "rows",
        partitions=3,
        partition=partition,
        delivery="none",
        transaction_timeout_ns=5,
        timeout_warning_ratio=0.25,
        ignore_failures_after_transaction_timeout=True,
        newer_commits="report",
        retries=7,
    )
    sink.log.append(None, "rows", 0, ["x"], 0, 0)
    fresh = sink.fresh()
    assert fresh.committed_rows() == []
    assert sink.committed_rows() == ["'x'"]
    assert settings_of(fresh) == settings_of(sink)


def settings_of(sink: LogSink) -> dict[str, Any]:
    return {name: value for name, value in vars(sink).items() if name != "log" and not name.startswith("_")}


# --- the contract without a log -----------------------------------------------------------------------------------


class Diary(TwoPhaseCommitSinkOperator):
    """Writes down its requests; ``stubborn`` transactions cannot be committed."""

    def __init__(self, diary: list[str], stubborn: dict[int, Exception] | None = None) -> None:
        super().__init__()
        self.diary, self.stubborn, self.number = diary, stubborn or {}, 0

    def begin(self) -> Transaction:
        self.number += 1
        self.diary.append(f"begin {self.number}")
        return (self.number,)

    def invoke(self, transaction: Transaction, batch: Batch) -> None:
        self.diary.append(f"invoke {transaction[0]} {batch.values}")

    def pre_commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        self.diary.append(f"pre-commit {transaction[0]} for {checkpoint_id}")

    def commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        self.diary.append(f"commit {transaction[0]} for {checkpoint_id}")
        if transaction[0] in self.stubborn:
            raise self.stubborn[transaction[0]]

    def abort(self, transaction: Transaction) -> None:
        self.diary.append(f"abort {transaction[0]}")

    def abort_lingering(self, spared: Sequence[Transaction]) -> None:
        self.diary.append(f"abort all but {[one[0] for one in spared]}")


def test_the_calls_come_in_their_order() -> None:
    """Begin, pre-commit and the next begin with each checkpoint; a restore commits, aborts, cleans up, begins."""
    diary: list[str] = []
    first = Harness(Diary(diary))
    first.process(["x"])
    checkpoint = first.checkpoint(5)
    assert diary == ["abort all but []", "begin 1", "invoke 1 ['x']", "pre-commit 1 for 5", "begin 2", "commit 1 for 5"]
    diary.clear()
    Harness(Diary(diary), restored=checkpoint)
    assert diary == ["commit 1 for 5", "abort 2", "abort all but [1]", "begin 1"]


def test_a_commit_that_fails_does_not_hold_up_the_others() -> None:
    """Each is tried once, then the first error is raised; a loss is reported as one."""
    diary: list[str] = []
    harness = Harness(Diary(diary, {1: ValueError("no"), 2: TransactionLostError("gone")}))
    for checkpoint_id in (1, 2, 3):
        harness.snapshot(checkpoint_id)
    diary.clear()
    with pytest.raises(ValueError, match="no"):
        harness.complete(3)
    assert diary == ["commit 1 for 1", "commit 2 for 2", "commit 3 for 3"]
    harness.complete(3)
    assert len(diary) == 3

    lost = Harness(Diary(diary, {1: TransactionLostError("gone")}))
    lost.snapshot(1)
    with pytest.raises(DataLossError, match="gone"):
        lost.complete(1)


def test_the_log_is_a_log_that_can_be_gone() -> None:
    """A log in memory dies with its process: its pre-committed transactions are lost, and the error says so."""
    cluster = Cluster()
    cluster.write(1)
    cluster.checkpoint()
    cluster.sink.log = MemoryTransactionLog()
    cluster.sink.log.create_topic("rows", 1)
    with pytest.raises(DataLossError, match="the log has never heard of it"):
        cluster.start()
    assert issubclass(LogTransactionGoneError, TransactionLogError)


# --- any mixture --------------------------------------------------------------------------------------------------

actions = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "complete", "abort", "notify", "crash", "crash", "zombie", "late"]),
        st.integers(0, 5),
    ),
    max_size=30,
)
troubles = st.lists(st.sampled_from([port.DELIVERED] * 8 + [*port.FATES]), max_size=60)


class Mixture:
    """A source of numbers in front of a cluster, a coordinator, and zombies that go on."""

    def __init__(self, fates: list[str]) -> None:
        self.cluster = Cluster(parallelism=2, partitions=2)
        self.cluster.log.gate = self.gate
        self.fates = fates
        self.position = self.covered = 0
        self.zombies: list[Harness] = []
        self.notifiable = 0

    def gate(self, request: Request) -> str:
        fate = self.fates.pop() if self.fates else port.DELIVERED
        # A transaction that the log aborts once it is pre-committed cannot be committed; no sink is to blame.
        harmless = request.kind in ("begin", "append", "prepare") or fate not in (port.EXPIRE, port.FENCE)
        return fate if harmless else port.DELIVERED

    def act(self, action: str, number: int) -> None:
        cluster = self.cluster
        if action == "write":
            for _ in range(number):
                cluster.write(self.position)
                self.position += 1
        elif action == "complete":
            position = self.position
            self.notifiable = cluster.checkpoint().id
            self.covered = position
        elif action == "abort":
            cluster.snapshot()
        elif action == "notify":
            cluster.tasks[number % len(cluster.tasks)].complete(self.notifiable)
        elif action == "crash":
            self.crash(1 + number % 3)
        elif self.zombies:
            zombie = self.zombies[number % len(self.zombies)]
            with suppress(TransactionLogError, DataLossError):
                # The zombie may even get the notification for its successor.
                zombie.complete(self.notifiable) if action == "late" else zombie.process([-1])

    def crash(self, parallelism: int) -> None:
        self.zombies = [*self.cluster.tasks, *self.zombies][:4]
        self.position = self.covered
        for _ in range(50):
            try:
                self.cluster.start(parallelism)
            except TransactionLogError:
                continue
            return
        raise AssertionError("never came up again")

    def check(self) -> None:
        self.cluster.log.validate()
        assert Counter(self.cluster.visible()) <= Counter(range(self.covered))


@settings(max_examples=150, deadline=None)
@given(actions, troubles)
def test_whatever_happens_each_row_is_there_once(steps: list[tuple[str, int]], fates: list[str]) -> None:
    """Crashes, changes of parallelism, lost requests and answers, late markers, zombies, in any order: readers never
    see a row that no completed checkpoint covers, nor one twice; after a restore all that it covers, in the end all."""
    mixture = Mixture(list(fates))
    for action, number in steps:
        try:
            mixture.act(action, number)
        except TransactionLogError:
            mixture.crash(1 + number % 3)
        mixture.check()
        if action == "crash":
            assert Counter(mixture.cluster.visible()) == Counter(range(mixture.covered))
    mixture.fates.clear()
    mixture.crash(2)
    mixture.act("write", 5)
    for task in mixture.cluster.tasks:
        task.finish()
    mixture.act("complete", 0)
    for subtask in range(2):
        mixture.act("notify", subtask)
    assert Counter(mixture.cluster.visible()) == Counter(range(mixture.position))
    mixture.cluster.log.validate()
