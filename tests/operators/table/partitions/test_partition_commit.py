"""Committing partitions: triggers, the committer's books, policies and the operator around them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError, StateError, StorageError
from operators.table.partitions.commit_policies import (
    CommitPolicy,
    MetastorePolicy,
    PartitionCommitContext,
    SuccessFilePolicy,
    commit_partition,
    commit_policies,
    open_policies,
)
from operators.table.partitions.metastore import MemoryMetastore, PathOf
from operators.table.partitions.partition_commit import (
    PARTITION_TIME,
    PROCESS_TIME,
    PartitionCommit,
    PartitionCommitterOperator,
)
from operators.table.partitions.partition_committer import END_OF_INPUT, PartitionCommitter, TaskTracker
from operators.table.partitions.partition_messages import announcement
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor, PartitionTimeError
from operators.table.partitions.partition_triggers import (
    PartitionTimePredicate,
    ProcessTimePredicate,
    ProcessTimeTrigger,
)
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.operators.harness import Checkpoint, Harness

DAY_MS = 86_400_000
MAY_3_MS = 1_588_464_000_000
"""2020-05-03 in UTC."""


class Recorder:
    kind = "recorder"

    def __init__(self, *, fails_on: str = "") -> None:
        self.committed: list[str] = []
        self._fails_on = fails_on

    def open(self, path_of: PathOf, columns: Sequence[str]) -> CommitPolicy:
        return self

    def commit(self, context: PartitionCommitContext) -> bool:
        if context.partition == self._fails_on:
            raise RuntimeError("nobody listens")
        self.committed.append(context.partition)
        return self.committed.count(context.partition) == 1

    def take(self) -> list[str]:
        taken, self.committed = self.committed, []
        return taken


def committer(trigger: str, delay_ms: int = 0, recorder: Recorder | None = None, **options: Any) -> Harness:
    commit = PartitionCommit(trigger, delay_ms=delay_ms, policies=[recorder or Recorder()])
    return Harness(PartitionCommitterOperator("table", ("d",), commit), **options)


def machine(trigger: str, delay_ms: int = 0) -> PartitionCommitter:
    return PartitionCommitter(PartitionCommit(trigger, delay_ms=delay_ms).create_trigger(("d",)))


# --- triggers --------------------------------------------------------------------------------------------


def test_process_time_waits_for_longer_than_the_delay() -> None:
    """The delay begins with the first message that names the partition, and must be exceeded; others do not count."""
    one = machine(PROCESS_TIME, 1_000)
    assert one.on_message(1, 0, 1, ["d=a"], 5_000) == []
    assert one.on_message(2, 0, 1, ["d=a"], 6_000) == []
    assert one.on_message(3, 0, 1, [], 6_001) == ["d=a"]
    assert one.on_message(4, 0, 1, [], 9_000) == []


def test_without_a_delay_a_partition_is_committed_with_each_checkpoint_that_has_rows_of_it() -> None:
    """It may be committed too early, and is then committed again."""
    one = machine(PROCESS_TIME)
    assert one.on_message(1, 0, 1, ["d=a"], 7) == ["d=a"]
    assert one.on_message(2, 0, 1, ["d=a", "d=b"], 7) == ["d=a", "d=b"]
    assert one.on_message(3, 0, 1, [], 7) == []


def test_partition_time_waits_until_the_watermark_is_beyond_it() -> None:
    """It must exceed the partition's time plus the delay; the watermark at the snapshot counts, not a later one."""
    one = machine(PARTITION_TIME, DAY_MS)
    one.on_watermark(MAY_3_MS + DAY_MS)
    one.on_snapshot(1)
    one.on_watermark(MAY_3_MS + DAY_MS + 1)
    assert one.on_message(1, 0, 1, ["d=2020-05-03", "d=2020-05-04"], 0) == []
    one.on_snapshot(2)
    assert one.on_message(2, 0, 1, [], 0) == ["d=2020-05-03"]


def test_a_watermark_does_not_go_back() -> None:
    """A late one changes nothing."""
    one = machine(PARTITION_TIME)
    one.on_watermark(MAY_3_MS + 1)
    one.on_watermark(MIN_TIMESTAMP_MS)
    one.on_snapshot(1)
    assert one.on_message(1, 0, 1, ["d=2020-05-03"], 0) == ["d=2020-05-03"]


@pytest.mark.parametrize("asked", [1, 3])
def test_a_checkpoint_without_a_watermark_is_an_error(asked: int) -> None:
    """The committer took no snapshot of the checkpoint, or it is older than the one last answered for."""
    one = machine(PARTITION_TIME)
    one.on_snapshot(1)
    one.on_snapshot(2)
    one.on_message(2, 0, 1, [], 0)
    with pytest.raises(StateError, match=f"no watermark of checkpoint {asked} .*it has: none"):
        one.on_message(asked, 0, 1, [], 0)


def test_the_time_of_a_partition_is_local() -> None:
    """It is a midnight in the watermark's time zone."""
    predicate = PartitionCommit(PARTITION_TIME, watermark_time_zone="Asia/Shanghai").predicate(("d",))
    assert isinstance(predicate, PartitionTimePredicate)
    assert predicate.partition_time_ms("d=2020-05-03") == MAY_3_MS - 8 * 3_600_000


def test_an_extractor_of_the_users_may_fail() -> None:
    """The error names it and the partition."""

    class Broken:
        def extract(self, columns: Sequence[str], values: Sequence[str]) -> Any:
            raise KeyError(values[0])

    check = PartitionCommit(PARTITION_TIME, extractor=Broken()).check(("d",))
    assert check is not None
    with pytest.raises(PartitionTimeError, match=r"Broken has failed on partition 'd=7': KeyError"):
        check("d=7")


def test_an_extractor_that_names_a_zone_of_its_own_is_refused() -> None:
    """Otherwise the zone of the watermarks would silently replace it."""

    class Zoned:
        def extract(self, columns: Sequence[str], values: Sequence[str]) -> datetime.datetime:
            return datetime.datetime(2020, 5, 3, tzinfo=datetime.UTC)

    check = PartitionCommit(PARTITION_TIME, extractor=Zoned(), watermark_time_zone="Asia/Shanghai").check(("d",))
    assert check is not None
    with pytest.raises(PartitionTimeError, match="has a time zone; a partition is for a local time"):
        check("d=7")


def test_switching_the_trigger_over_a_restore_finds_nothing_and_goes_on() -> None:
    """The state of the other trigger is not read."""
    before = committer(PROCESS_TIME, 1_000)
    before.process([announcement(1, 0, 1, ["d=2020-05-03"])])
    recorder = Recorder()
    after = committer(PARTITION_TIME, recorder=recorder, restored=before.snapshot(2), attempt=2)
    after.watermark(MAX_TIMESTAMP_MS)
    after.snapshot(3)
    after.process([announcement(3, 0, 1, [])])
    assert recorder.take() == []
    after.snapshot(4)
    after.process([announcement(4, 0, 1, ["d=2020-05-03"])])
    assert recorder.take() == ["d=2020-05-03"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"trigger": "event-time"},
        {"delay_ms": -1},
        {"delay_ms": 1.5},
        {"delay_ms": True},
        {"extractor": "yyyy"},
        {"watermark_time_zone": "Nowhere"},
        {"policies": []},
        {"policies": ["success-file"]},
        {"policies": [SuccessFilePolicy]},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    """They are refused before anything runs."""
    with pytest.raises(ConfigurationError):
        PartitionCommit(**wrong)


# --- who has announced what --------------------------------------------------------------------------------


def test_nothing_is_committed_before_all_writers_have_announced() -> None:
    """Announcements of the other writers up to then, also of later checkpoints, are committed with it."""
    one = machine(PROCESS_TIME)
    assert one.on_message(1, 0, 3, ["d=a"], 0) == []
    assert one.on_message(2, 0, 3, ["d=b"], 0) == []
    assert one.on_message(1, 0, 3, [], 0) == []
    assert one.on_message(1, 1, 3, [], 0) == []
    assert one.on_message(1, 2, 3, ["d=c"], 0) == ["d=a", "d=b", "d=c"]


def test_a_newer_checkpoint_makes_up_for_an_older_one() -> None:
    """A writer that missed checkpoint 1 announces 2; the committer no longer waits for 1."""
    tracker = TaskTracker()
    assert not tracker.add(1, 0, 2)
    assert not tracker.add(2, 0, 2)
    assert tracker.add(2, 1, 2)
    assert not tracker.add(1, 1, 2)


def test_messages_from_before_a_rescale_do_not_count_for_the_new_writers() -> None:
    """Two old writers are not two of three new ones."""
    tracker = TaskTracker()
    assert not tracker.add(END_OF_INPUT, 0, 2)
    assert not tracker.add(END_OF_INPUT, 1, 3)
    assert not tracker.add(END_OF_INPUT, 2, 3)
    assert tracker.add(END_OF_INPUT, 0, 3)


def test_the_end_of_the_input_commits_everything() -> None:
    """The trigger does not matter."""
    for trigger, delay_ms in ((PROCESS_TIME, DAY_MS), (PARTITION_TIME, 0)):
        one = machine(trigger, delay_ms)
        one.on_snapshot(1)
        assert one.on_message(1, 0, 1, ["d=2020-05-03", "d=2020-05-04"], 0) == []
        assert one.on_message(END_OF_INPUT, 0, 1, [], 0) == ["d=2020-05-03", "d=2020-05-04"]


def test_blank_names_are_passed_over() -> None:
    """There is no such partition."""
    assert machine(PROCESS_TIME).on_message(1, 0, 1, ["", " ", "d=a"], 0) == ["d=a"]


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.lists(st.sampled_from(["d=a", "d=b", "d=c"]), max_size=2)),
    max_size=20,
)
"""Writer, number of notifications it has missed, and the partitions that it names."""


@given(st.integers(1, 3), STEPS)
def test_every_partition_is_committed_behind_each_naming_and_never_unnamed(
    writers: int, steps: list[tuple[int, int, list[str]]]
) -> None:
    """Any order of messages of up to three writers: a commit follows each naming once all have caught up, and takes
    nothing that was not named since the last one."""
    one = machine(PROCESS_TIME)
    upcoming = dict.fromkeys(range(writers), 1)
    named: set[str] = set()
    for task, missed, partitions in steps:
        task %= writers
        checkpoint_id = upcoming[task] + missed
        upcoming[task] = checkpoint_id + 1
        named |= set(partitions)
        due = one.on_message(checkpoint_id, task, writers, partitions, 0)
        assert not due or set(due) == named
        named -= set(due)
    last = [one.on_message(END_OF_INPUT, task, writers, [], 0) for task in range(writers)]
    assert [partition for due in last[:-1] for partition in due] == []
    assert sorted(last[-1]) == sorted(named)


# --- the operator ----------------------------------------------------------------------------------------


def test_pending_partitions_and_their_times_are_state() -> None:
    """A restored committer waits for the rest of the delay, not for all of it; earlier announcements are forgotten."""
    recorder = Recorder()
    before = committer(PROCESS_TIME, 1_000, recorder, now_ns=0)
    before.process([announcement(1, 0, 2, ["d=a"])])
    checkpoint = before.snapshot(2)
    after = committer(PROCESS_TIME, 1_000, recorder, now_ns=900_000_000, restored=checkpoint, attempt=2)
    after.process([announcement(2, 1, 2, [])])
    after.advance_ms(101)
    assert recorder.take() == []
    after.process([announcement(2, 0, 2, [])])
    assert recorder.take() == ["d=a"]


def test_watermarks_of_checkpoints_are_state_but_the_current_one_is_not() -> None:
    """An announcement that was in flight is judged by the old watermark; a new snapshot starts without one."""
    recorder = Recorder()
    before = committer(PARTITION_TIME, 0, recorder)
    before.watermark(MAY_3_MS + 1)
    checkpoint = before.snapshot(1)
    after = committer(PARTITION_TIME, 0, recorder, restored=checkpoint, attempt=2)
    after.snapshot(2)
    after.process([announcement(1, 0, 1, ["d=2020-05-03"])])
    assert recorder.take() == ["d=2020-05-03"]
    after.process([announcement(2, 0, 1, ["d=2020-05-03"])])
    assert recorder.take() == []


def test_a_partition_that_is_committed_again_is_counted() -> None:
    """Rows came late, or a failure made the job repeat itself."""
    one = committer(PROCESS_TIME)
    one.process([announcement(1, 0, 1, ["d=a", "d=b"]), announcement(2, 0, 1, ["d=a"])])
    assert (one.counter("numPartitionsCommitted"), one.counter("numPartitionsCommittedAgain")) == (2, 1)


def test_a_failed_policy_fails_the_task_and_the_partition_is_announced_again() -> None:
    """The error names policy and partition; the partitions in the state are not lost."""
    one = committer(PROCESS_TIME, 0, Recorder(fails_on="d=a"))
    with pytest.raises(StorageError, match=r"'recorder' has failed on partition 'd=a': RuntimeError: nobody listens"):
        one.process([announcement(1, 0, 1, ["d=a"])])


def restore_at_every_point(trigger: str, delay_ms: int) -> list[tuple[int, set[str]]]:
    """The partitions committed when the committer dies after each event of a short life and its successor finishes."""
    outcomes = []
    for death in range(6):
        recorder = Recorder()
        saved: Checkpoint | None = None
        one = committer(trigger, delay_ms, recorder, now_ns=0)
        committed: set[str] = set()
        for number, partitions in enumerate((["d=2020-05-03"], ["d=2020-05-04"], ["d=2020-05-05"]), start=1):
            saved = one.snapshot(number)
            if death == 2 * number - 2:
                break
            one.process([announcement(number, 0, 1, partitions)])
            if death == 2 * number - 1:
                break
        committed |= set(recorder.take())
        after = committer(trigger, delay_ms, recorder, restored=saved, attempt=2)
        # Partitions that are in no later checkpoint of the writers are announced again.
        again = [f"d=2020-05-0{day}" for day in range(2 + death // 2, 6)]
        after.snapshot(9)
        after.process([announcement(9, 0, 1, again), announcement(END_OF_INPUT, 0, 1, [])])
        outcomes.append((death, committed | set(recorder.take())))
    return outcomes


@pytest.mark.parametrize(("trigger", "delay_ms"), [(PROCESS_TIME, 0), (PROCESS_TIME, 1_000), (PARTITION_TIME, 0)])
def test_no_partition_is_forgotten_wherever_the_committer_dies(trigger: str, delay_ms: int) -> None:
    """State and announcements together name every partition."""
    everything = {f"d=2020-05-0{day}" for day in (3, 4, 5)}
    for death, committed in restore_at_every_point(trigger, delay_ms):
        assert committed >= everything, death


def test_restored_times_are_those_of_the_trigger() -> None:
    """The elements of the list are plain pairs."""
    trigger = ProcessTimeTrigger(ProcessTimePredicate(10))
    trigger.restore({"pending-partitions-with-time": [("d=a", 5)]})
    assert trigger.take_committable(1, 15) == []
    assert trigger.take_committable(1, 16) == ["d=a"]


# --- policies --------------------------------------------------------------------------------------------


def context(fs: Any, partition: str = "d=a", now_ms: int = 7) -> PartitionCommitContext:
    return PartitionCommitContext(fs, "/table", partition, now_ms)


def test_a_success_file_is_empty_and_replaced() -> None:
    """Committing again leaves one empty file, even if another program wrote into it."""
    fs = MemoryFileSystem()
    policy = SuccessFilePolicy("_DONE")
    assert policy.commit(context(fs))
    with fs.open_write("/table/d=a/_DONE") as file:
        file.write(b"rubbish")
    assert not policy.commit(context(fs))
    assert fs.read_bytes("/table/d=a/_DONE") == b""


def test_a_success_file_survives_a_power_cut() -> None:
    """The file is durable once the commit has returned."""
    fs = MemoryFileSystem()
    fs.make_dirs("/table/d=a")
    for path in ("/", "/table", "/table/d=a"):
        fs.fsync_dir(path)
    SuccessFilePolicy().commit(context(fs))
    fs.crash()
    assert fs.exists("/table/d=a/_SUCCESS")


def test_a_success_file_that_cannot_be_written() -> None:
    """The error says where and what to do."""
    fs = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(kind=FileFault.READ_ONLY, operation="open_write")])
    with pytest.raises(StorageError, match=r"'success-file' has failed on partition 'd=a': .*/table/d=a/_SUCCESS"):
        commit_partition([SuccessFilePolicy()], context(fs))


@pytest.mark.parametrize("name", ["", "a/b", "..", "done", "x\0"])
def test_names_of_success_files(name: str) -> None:
    """It must be a file, and one that readers do not take for data."""
    with pytest.raises(ConfigurationError, match="success file"):
        SuccessFilePolicy(name)


def test_policies_are_applied_in_order_to_one_partition_after_the_other() -> None:
    """An error leaves the later policies undone: they come with the repetition."""
    metastore = MemoryMetastore()
    metastore.create_table("t", ("d",))
    fs = MemoryFileSystem()
    chain = commit_policies("custom, metastore,SUCCESS-FILE", metastore=metastore, table="t", custom=Recorder())
    assert [policy.kind for policy in chain] == ["recorder", "metastore", "success-file"]
    assert commit_partition(chain, context(fs))
    assert not commit_partition(chain, context(fs, now_ms=8))
    assert [entry.committed_ms for entry in metastore.partitions("t")] == [8]

    failing = (Recorder(fails_on="d=b"), SuccessFilePolicy())
    with pytest.raises(StorageError):
        commit_partition(failing, context(fs, "d=b"))
    assert not fs.exists("/table/d=b/_SUCCESS")


@pytest.mark.parametrize(
    ("kinds", "why"),
    [
        ("metastore", "plain table"),
        ("custom", "custom="),
        ("success-file,success-file", "twice"),
        ("succes-file", "unknown"),
        ("", "unknown"),
    ],
)
def test_kinds_of_policies_that_cannot_be(kinds: str, why: str) -> None:
    """A metastore policy without a metastore, a custom one without an object, one twice, and unknown names."""
    with pytest.raises(ConfigurationError, match=why):
        commit_policies(kinds)


@pytest.mark.parametrize(("columns", "why"), [((), "without partitions"), (("x",), "same columns")])
def test_a_metastore_that_knows_the_table_otherwise(columns: tuple[str, ...], why: str) -> None:
    """The error comes when the job starts, not at the first commit."""
    metastore = MemoryMetastore()
    metastore.create_table("t", columns)
    commit = PartitionCommit(policies=[MetastorePolicy(metastore, "t")])
    with pytest.raises(ConfigurationError, match=why):
        Harness(PartitionCommitterOperator("table", ("d",), commit))


def test_the_extractor_is_the_default_one() -> None:
    """It is used unless another one is given."""
    assert isinstance(PartitionCommit().extractor, DefaultPartitionTimeExtractor)


def test_a_policy_whose_open_returns_nothing_is_refused() -> None:
    """The error for a forgotten `return self` comes before the first record."""

    class Forgetful(SuccessFilePolicy):
        kind = "forgetful"

        def open(self, path_of: PathOf, columns: Sequence[str]) -> CommitPolicy:
            return None  # type: ignore[return-value]

    with pytest.raises(ConfigurationError, match=r"open\(\) of policy 'forgetful' returned None.*\n.*return self"):
        open_policies([Forgetful()], str, ["day"])
    with pytest.raises(ConfigurationError, match=r"open\(\) of policy 'forgetful' returned None"):
        Harness(PartitionCommitterOperator("table", ("d",), PartitionCommit(policies=[Forgetful()])))
