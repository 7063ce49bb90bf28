"""The two-phase-commit sink into a database: what happens at each crash point, to zombies, after a change of
parallelism, and when a transaction is gone; with each database.

``N`` is the last completed checkpoint throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.errors import ConfigurationError, DataLossError, OutputAheadError, StorageError, UserFunctionError
from engine.faults.external import FATES_BY_CHANCE
from operators.databases import (
    DatabaseError,
    DatabaseRequest,
    DatabaseSink,
    MemoryDatabase,
    PostgresSink,
    SinkDatabase,
    SqliteSink,
    TransactionName,
)
from operators.databases.database_session import MAX_WRITER_BYTES, FencedError
from operators.databases.database_sink import DatabaseSinkOperator
from operators.databases.table_sink import writer_name
from operators.log.port import ANSWER_LOST, DELIVERED, REQUEST_LOST
from tests.operators.databases.cluster import COLUMNS, Cluster, clusters
from tests.operators.harness import Harness
from tests.operators.transactions.two_phase_crashes import TwoPhaseCrashes

Make = Callable[..., Cluster]


@pytest.fixture
def cluster_of(database: SinkDatabase) -> Iterator[Make]:
    with clusters(lambda: database) as make:
        yield make


# --- crash points -------------------------------------------------------------------------------------------------


class TestCrashes(TwoPhaseCrashes):
    at_once: ClassVar[dict[str, Any]] = {"batch_rows": 1}


def test_a_crash_behind_two_pre_commits_aborts_both(cluster_of: Make) -> None:
    """The transaction that began with the first pre-commit is not in the state of any completed checkpoint."""
    cluster = cluster_of()
    cluster.write(1)
    cluster.checkpoint(0)
    cluster.write(2)
    cluster.snapshot()
    cluster.write(3)
    cluster.snapshot()
    cluster.crash()
    assert cluster.counter("numLingeringTransactionsAborted") >= 1
    cluster.tasks[0].close()
    assert (cluster.visible(), cluster.unfinished()) == ([1], [])


def test_a_crash_behind_the_commit_changes_nothing_at_restore(cluster_of: Make) -> None:
    """It is committed again, and the ledger recognises it: the answer may have been lost with the process."""
    cluster = cluster_of()
    cluster.write(1)
    cluster.checkpoint(0)
    for _ in range(3):
        cluster.crash()
        assert cluster.visible() == [1]


def test_a_second_crash_during_the_recovery_changes_nothing(cluster_of: Make) -> None:
    """Some subtasks have recovered, others have not; then all of them begin again."""
    cluster = cluster_of(3)
    cluster.write(0, 1, 2)
    cluster.checkpoint()
    cluster.write(3, 4, 5)
    cluster.snapshot()
    cluster.kill()
    for reached in range(3):
        cluster.attempt += 1
        for subtask in range(reached + 1):
            cluster.deploy(subtask, 3).operator.abandon()
    assert cluster.visible() == [0, 1, 2]
    cluster.start(3)
    cluster.write(3, 4, 5)
    cluster.checkpoint(0, 1, 2)
    assert cluster.visible() == [0, 1, 2, 3, 4, 5]


def test_without_checkpoints_everything_is_committed_when_the_input_ends(database: SinkDatabase) -> None:
    """If the subtask is started again, its rows come twice, and a metric counts that."""
    sink = DatabaseSink(database, "numbers", {"number": "BIGINT"})
    description = sink.describe("op-uid")
    for attempt in (1, 2):
        task = Harness(sink.create_operator(), checkpointing_enabled=False, attempt=attempt)
        task.process([(attempt,)])
        assert len(database.rows(description)) == attempt - 1
        task.finish()
        task.close()
        assert len(database.rows(description)) == attempt
        assert task.counter("numTransactionsPublishedAgain") == attempt - 1


def test_an_orderly_close_leaves_nothing_but_what_waits_for_its_checkpoint(cluster_of: Make) -> None:
    """The open transaction is rolled back; what is pre-committed stays for the next attempt."""
    cluster = cluster_of(batch_rows=1)
    cluster.write(1)
    cluster.checkpoint()
    cluster.write(2)
    cluster.tasks[0].close()
    (left,) = cluster.unfinished()
    assert TransactionName.parse(left).number == 0
    cluster.start()
    assert cluster.visible() == [1]


# --- zombies ------------------------------------------------------------------------------------------------------


def test_two_zombies_can_write_prepare_and_commit_nothing(cluster_of: Make) -> None:
    """Nothing that they had begun takes effect, and their successor goes on undisturbed."""
    cluster = cluster_of(batch_rows=1)
    cluster.write(1)
    cluster.checkpoint(0)
    zombies = []
    for _ in range(2):
        cluster.write(2)
        pre_committed = cluster.snapshot()
        cluster.write(3)
        zombies += cluster.tasks
        cluster.start()
    for zombie in zombies:
        with pytest.raises(DataLossError):
            zombie.complete(pre_committed.id)
        with pytest.raises(StorageError):
            zombie.process([(4, "")])
        for checkpoint_id in (9, 10):
            with pytest.raises(StorageError):
                zombie.snapshot(checkpoint_id)
    assert cluster.visible() == [1]
    cluster.write(2, 3)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2, 3]


def test_a_zombie_that_commits_late_what_is_committed_does_no_harm(cluster_of: Make) -> None:
    """Its successor has done it, and the ledger says so."""
    cluster = cluster_of()
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    (zombie,) = cluster.tasks
    cluster.start()
    cluster.write(2)
    cluster.checkpoint(0)
    zombie.complete(checkpoint.id)
    assert cluster.visible() == [1, 2]


def test_a_zombie_that_cleans_up_takes_nothing_from_its_successor(cluster_of: Make) -> None:
    """The zombie paused in its recovery; transactions of a later epoch are not its to abort."""
    cluster = cluster_of()
    (zombie,) = cluster.tasks
    cluster.start()
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    assert isinstance(zombie.operator, DatabaseSinkOperator)
    zombie.operator.abort_lingering([])
    cluster.tasks[0].complete(checkpoint.id)
    assert cluster.visible() == [1]


def test_a_zombie_with_nothing_written_is_fenced_too(cluster_of: Make) -> None:
    """It has no connection that could be cut, but its epoch is over."""
    cluster = cluster_of()
    (zombie,) = cluster.tasks
    cluster.start()
    zombie.process([(1, "")])
    with pytest.raises(FencedError):
        zombie.snapshot(1)


# --- what is there already ----------------------------------------------------------------------------------------


def test_a_start_from_nothing_refuses_the_rows_of_another_run(cluster_of: Make) -> None:
    """The table is not touched, and the job does not restart, since no restart would help."""
    first = cluster_of()
    first.write(1)
    first.checkpoint(0)
    first.close()
    with pytest.raises(OutputAheadError, match="1 rows of 1 transactions of another run"):
        cluster_of()
    assert first.visible() == [1]


def test_a_start_from_nothing_appends_if_it_is_told_to(cluster_of: Make) -> None:
    """Names of the earlier run are not used again, and its checkpoints do not count as newer ones."""
    first = cluster_of()
    for number in range(5):
        first.write(number)
        first.checkpoint(0)
    first.close()
    second = cluster_of(existing="append")
    second.write(10)
    second.checkpoint()
    second.crash()
    second.write(11)
    second.checkpoint(0)
    assert second.visible() == [0, 1, 2, 3, 4, 10, 11]


def test_a_restore_under_another_writer_takes_back_what_was_open(cluster_of: Make, database: SinkDatabase) -> None:
    """Only the state tells the new writer what the former one had open, or pre-committed since: it is aborted."""
    cluster = cluster_of(batch_rows=1, writer="former")
    cluster.write(1)
    cluster.checkpoint()
    cluster.write(2)
    cluster.snapshot()
    assert any(name.endswith("/1") for name in cluster.unfinished())
    cluster.kill()
    former, cluster.sink = cluster.sink, DatabaseSink(database, "numbers", COLUMNS, batch_rows=1, writer="present")
    cluster.start()
    assert cluster.visible() == [1]
    session = database.connect(former.describe("op-uid"), str)
    try:
        assert 1 not in [name.number for name in session.unfinished()]
    finally:
        session.close()
    cluster.write(2)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2]


def test_two_writers_share_a_table(cluster_of: Make) -> None:
    """Neither sink sees the transactions of the other."""
    one, two = cluster_of(writer="one"), cluster_of(writer="two")
    one.write(1)
    two.write(2)
    two.checkpoint(0)
    one.crash()
    one.write(1)
    one.checkpoint(0)
    assert one.visible() == [1, 2]


def older_and_newer(cluster: Cluster) -> None:
    """Only checkpoint 1 can be read, though 2 and 3 were completed and committed."""
    cluster.write(1)
    first = cluster.checkpoint(0)
    for number in (2, 3):
        cluster.write(number)
        cluster.checkpoint(0)
    cluster.completed = first


def test_a_restore_from_before_what_is_committed_is_refused(cluster_of: Make) -> None:
    """Its rows would come twice, and the newer checkpoint may be missing only for a moment."""
    cluster = cluster_of()
    older_and_newer(cluster)
    with pytest.raises(OutputAheadError, match=r"checkpoint 1, but transaction .* of checkpoint 3 is committed"):
        cluster.crash()
    assert cluster.visible() == [1, 2, 3]


def test_a_restore_from_before_what_is_committed_takes_it_back(cluster_of: Make) -> None:
    """This needs rows with the name of their transaction; they come again, and are there once."""
    cluster = cluster_of(newer_commits="retract", transaction_column="written_by")
    older_and_newer(cluster)
    cluster.crash()
    assert cluster.visible() == [1]
    assert cluster.counter("numCommittedRecordsRetracted") == 2
    cluster.write(2, 3)
    cluster.next_id = 4
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2, 3]


def test_a_restore_from_before_what_is_committed_counts_what_comes_twice(cluster_of: Make) -> None:
    """It goes on only if it is told to."""
    cluster = cluster_of(newer_commits="report")
    older_and_newer(cluster)
    cluster.crash()
    assert cluster.counter("numTransactionsPublishedAgain") == 2
    assert cluster.visible() == [1, 2, 3]


@pytest.mark.parametrize("late", [[2], [3], [3, 2]])
def test_the_ledger_keeps_what_the_newest_state_has_as_pending(cluster_of: Make, late: list[int]) -> None:
    """After a late notification, the state has transactions of older checkpoints, and a restore commits them again."""
    cluster = cluster_of(ledger_checkpoints=1)
    for number in range(1, late[0] + 1):
        cluster.write(number)
        cluster.checkpoint()
    for number in late:
        cluster.tasks[0].complete(number)
    for _ in range(2):
        cluster.crash()
        assert cluster.visible() == list(range(1, late[0] + 1))
    cluster.checkpoint(0)
    assert len(cluster.tasks[0].operator._table.session.committed()) == 1  # type: ignore[attr-defined]


def test_the_ledger_is_kept_short(cluster_of: Make) -> None:
    """It keeps the last checkpoints, at most twice as many as asked for, and recovery goes on as before."""
    cluster = cluster_of(ledger_checkpoints=3)
    for number in range(10):
        cluster.write(number)
        cluster.checkpoint(0)
    session = cluster.database.connect(cluster.sink.describe("op-uid"), str)
    kept = [entry.checkpoint_id for entry in session.committed()]
    session.close()
    assert kept == [7, 8, 9, 10]
    cluster.crash()
    assert cluster.visible() == list(range(10))


# --- transactions that are gone -----------------------------------------------------------------------------------


def roll_back_everything(cluster: Cluster) -> None:
    session = cluster.database.connect(cluster.sink.describe("op-uid"), str)
    for name in session.unfinished():
        session.abort(name)
    session.close()


def test_what_an_administrator_has_rolled_back_is_lost_data(cluster_of: Make) -> None:
    """Both the notification and the restore find it. No restart helps, so it has its own kind of error."""
    cluster = cluster_of()
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    roll_back_everything(cluster)
    with pytest.raises(DataLossError, match="neither prepared"):
        cluster.tasks[0].complete(checkpoint.id)
    with pytest.raises(DataLossError, match="records are lost"):
        cluster.crash()
    assert cluster.visible() == []


def test_lost_data_older_than_the_timeout_can_be_ignored_and_is_counted(cluster_of: Make) -> None:
    """It is ignored only on request, and only in a restore."""
    cluster = cluster_of(transaction_timeout_ns=1_000, ignore_failures_after_transaction_timeout=True)
    cluster.write(1)
    cluster.checkpoint()
    roll_back_everything(cluster)
    cluster.now_ns += 1_001
    cluster.crash()
    assert cluster.counter("numTransactionsLost") == 1


# --- requests and answers that are lost (only the model loses them at will) ---------------------------------------


@pytest.mark.parametrize("fate", [REQUEST_LOST, ANSWER_LOST])
@pytest.mark.parametrize("kind", ["take-over", "begin", "write", "prepare", "commit", "abort"])
def test_a_lost_request_or_answer_fails_the_task_and_the_next_attempt_makes_it_good(kind: str, fate: str) -> None:
    """Wherever the fault strikes, every row is there once in the end."""
    database = MemoryDatabase()
    world = _World(Cluster(database, batch_rows=1))
    left = [1]

    def gate(request: DatabaseRequest) -> str:
        if request.kind != kind or not left[0]:
            return DELIVERED
        left[0] -= 1
        return fate

    for step in ("write", "checkpoint"):
        world.step(step)
    database.gate = gate
    for step in ("write", "checkpoint", "notify", "write", "snapshot", "crash", "write", "checkpoint", "notify"):
        world.step(step)
        assert world.is_legal()
    assert left == [0]
    assert world.rows_in_the_end() == list(range(world.position))


SURVIVABLE = {kind: FATES_BY_CHANCE[kind] for kind in ("take-over", "begin", "write", "prepare", "commit", "abort")}

STEPS = st.lists(
    st.sampled_from(["write", "snapshot", "checkpoint", "notify", "crash", "die-in-recovery", "zombie", "rescale"]),
    max_size=25,
)


@settings(max_examples=150)
@given(steps=STEPS, batch_rows=st.sampled_from([1, 2, 100]), fates=st.lists(st.integers(1, 11), max_size=6))
def test_any_mixture_leaves_every_row_once(steps: list[str], batch_rows: int, fates: list[int]) -> None:
    """Whatever dies or gets lost, wherever, readers see only what completed checkpoints cover, and in the end all."""
    database = MemoryDatabase()
    world = _World(Cluster(database, 2, batch_rows=batch_rows))
    countdown = iter(fates)
    left = [next(countdown, 0)]

    def gate(request: DatabaseRequest) -> str:
        left[0] -= 1
        if left[0] != 0:
            return DELIVERED
        left[0] = next(countdown, 0)
        survivable = SURVIVABLE[request.kind]
        return survivable[left[0] % len(survivable)]

    database.gate = gate
    for step in steps:
        world.step(step)
        assert world.is_legal()
    database.gate = None
    assert world.rows_in_the_end() == list(range(world.position))
    assert database.unfinished() == []


class _World:
    """The source's side: a position that goes back with every restore."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.position = self.covered = 0

    def is_legal(self) -> bool:
        """No row comes twice, and no row is there that no completed checkpoint covers."""
        seen = self.cluster.visible()
        return len(seen) == len(set(seen)) and set(seen) <= set(range(self.covered))

    def rows_in_the_end(self) -> list[int]:
        """The rows after one more attempt, checkpoint and end."""
        self.cluster.kill()
        self.restart()
        self.step("write")
        self.cluster.checkpoint(*range(len(self.cluster.tasks)))
        for task in self.cluster.tasks:
            task.close()
        return self.cluster.visible()

    def restart(self, parallelism: int | None = None) -> None:
        for _ in range(20):
            try:
                self.cluster.start(parallelism or max(1, len(self.cluster.tasks)))
            except DatabaseError:
                continue
            break
        self.position = self.covered

    def step(self, step: str) -> None:
        cluster = self.cluster
        try:
            if step == "write":
                cluster.write(self.position, self.position + 1)
                self.position += 2
            elif step == "snapshot":
                cluster.snapshot()
            elif step == "checkpoint":
                cluster.checkpoint()
                self.covered = self.position
            elif step == "notify" and cluster.completed is not None:
                for task in cluster.tasks:
                    task.complete(cluster.completed.id)
            elif step == "die-in-recovery":
                cluster.kill()
                cluster.attempt += 1
                cluster.deploy(0, len(cluster.tasks)).operator.abandon()
                self.restart()
            elif step == "crash":
                cluster.kill()
                self.restart()
            elif step == "zombie":
                self.restart()
            elif step == "rescale":
                cluster.kill()
                self.restart(1 + len(cluster.tasks) % 3)
        except DatabaseError:
            cluster.kill()
            self.restart()


# --- records and options ------------------------------------------------------------------------------------------


def test_records_are_dicts_sequences_or_whatever_a_function_makes_of_them() -> None:
    """A dict gives the sink's columns by name; its other fields are left out."""
    for records, row in (
        ([{"text": "a", "number": 1, "other": 0}], None),
        ([(1, "a")], None),
        ([[1, "a"]], None),
        (["a1"], lambda record: (int(record[1]), record[0])),
    ):
        cluster = Cluster(MemoryDatabase(), row=row)
        cluster.tasks[0].process(records)
        cluster.checkpoint(0)
        assert cluster.rows() == [(1, "a")]
        assert cluster.sink.committed_rows() == [cluster.sink.text_of(records[0])] == ["(1, 'a')"]
    mixed = Cluster(MemoryDatabase())
    mixed.tasks[0].process([{"text": "a", "number": 1}, (2, "b")])
    mixed.checkpoint(0)
    assert mixed.rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"number": 1}, "columns of .*: the record has no column 'text'; it has 'number'"),
        ((1,), "1 values for 2 columns"),
        ("ab", "str is no dict"),
        (5, "row="),
    ],
)
def test_a_record_that_is_no_row_is_told(record: object, why: str) -> None:
    """The error says which record of the batch it is, and why."""
    cluster = Cluster(MemoryDatabase())
    with pytest.raises(UserFunctionError, match=why) as caught:
        cluster.tasks[0].process([(0, "fine"), record])
    assert caught.value.record == record


def test_batches_of_any_size_give_the_same(cluster_of: Make) -> None:
    """One row at a time, several rows, or all rows."""
    for number, batch_rows in enumerate((1, 3, 1_000)):
        cluster = cluster_of(batch_rows=batch_rows, writer=f"writer {number}")
        cluster.tasks[0].process([(10 * number + at, "") for at in range(7)])
        cluster.checkpoint(0)
    assert cluster.visible() == [10 * number + at for number in range(3) for at in range(7)]


def test_each_request_takes_its_virtual_time() -> None:
    """Batches, pre-commits and commits."""
    cluster = Cluster(MemoryDatabase(), request_ns=5, batch_rows=2)
    (task,) = cluster.tasks
    started = task.context.now_ns
    cluster.write(1, 2, 3)
    cluster.checkpoint(0)
    assert task.context.now_ns == started + 4 * 5


@pytest.mark.parametrize(
    "options",
    [
        {"existing": "x"}, {"newer_commits": "x"}, {"newer_commits": "retract"}, {"batch_rows": 0}, {"request_ns": -1},
        {"ledger_checkpoints": 0}, {"transaction_timeout_ns": 0}, {"transaction_column": "number"},
        {"database": "shop.sqlite"}, {"database": MemoryDatabase}, {"table": 5}, {"columns": {"number": 5}},
        {"table": "weir_epochs"}, {"table": "s.Weir_x"},
        {"transaction_column": 5}, {"transaction_column": ""}, {"writer": ""}, {"row": "number"},
        {"timeout_warning_ratio": "half"},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    """They are refused when the sink is described, not when it runs."""
    with pytest.raises(ConfigurationError):
        DatabaseSink(**{"database": MemoryDatabase(), "table": "numbers", "columns": ("number", "text"), **options})


def test_a_fresh_sink_is_like_the_first_with_nothing_in_it() -> None:
    """Each option is carried over, and the database is in memory: a search may run it thousands of times."""
    options: dict[str, Any] = {
        "row": tuple, "writer": "w", "transaction_column": "by", "existing": "append", "newer_commits": "retract",
        "ledger_checkpoints": 5, "batch_rows": 6, "request_ns": 7, "transaction_timeout_ns": 8,
        "timeout_warning_ratio": 0.5, "ignore_failures_after_transaction_timeout": True,
    }  # fmt: skip
    for sink in (SqliteSink("f.sqlite", "t", ("a",), **options), PostgresSink("dbname=x", "t", ("a",), **options)):
        fresh, again = sink.fresh(), sink.fresh()
        differing = {name for name, value in vars(sink).items() if vars(fresh)[name] != value}
        assert differing == {"database"}
        assert fresh.database is not again.database
        assert isinstance(fresh.database, MemoryDatabase)
        assert fresh.committed_rows() == []


def test_a_fingerprint_tells_whatever_decides_what_comes_next() -> None:
    """The fingerprint has what is staged, what is committed, who may write, and what an operator holds back."""
    seen = []
    cluster = Cluster(MemoryDatabase())
    for step in (lambda: cluster.write(1), cluster.snapshot, lambda: cluster.checkpoint(0), cluster.crash):
        seen.append(repr((cluster.sink.fingerprint(), cluster.tasks[0].operator.fingerprint())))
        step()
    assert len(dict.fromkeys(seen)) == len(seen)


@given(st.text(min_size=1, max_size=200), st.text(max_size=200))
def test_names_of_writers_are_short_and_differ(table: str, writer: str) -> None:
    """Whatever tables and uids are called: a name of a transaction fits into what PostgreSQL has for it."""
    name = writer_name(table, writer)
    assert len(name.encode()) <= MAX_WRITER_BYTES
    assert name != writer_name(table, writer + "x")
