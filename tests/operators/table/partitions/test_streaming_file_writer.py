"""The writer of a partitioned table: what it announces and when, and which files it closes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError, UserFunctionError
from operators.files.sinks import read_committed
from operators.files.writing import DefaultRollingPolicy, OnCheckpointRollingPolicy
from operators.table.partitions.partition_announcements import PartitionAnnouncements
from operators.table.partitions.partition_commit import PARTITION_TIME, PROCESS_TIME, PartitionCommit
from operators.table.partitions.partition_committer import END_OF_INPUT
from operators.table.partitions.partition_messages import announcement, end_of_checkpoint, written_file
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor
from operators.table.partitions.partitioned_file_sink import PartitionedFileSink, TableCompaction
from state_backends.files import MemoryFileSystem
from tests.operators.harness import START_NS, Checkpoint, Harness

DAY_MS = 86_400_000
MAY_3_MS = 1_588_464_000_000


def sink(**options: Any) -> PartitionedFileSink:
    return PartitionedFileSink("table", **{"partition_by": ("d",), **options})


class Writers:
    """The attempts of one writer on one disk."""

    def __init__(self, described: PartitionedFileSink) -> None:
        self.described = described
        self.fs = MemoryFileSystem()
        self.attempt = 0

    def start(self, restored: Checkpoint | None = None, **options: Any) -> Harness:
        self.attempt += 1
        operator = self.described.writer.create_operator()
        return Harness(operator, fs=self.fs, restored=restored, attempt=self.attempt, **options)

    def rows(self) -> dict[str, list[str]]:
        return read_committed(self.fs, "/out/table")

    def names(self) -> list[str]:
        return sorted(path.removeprefix("/out/table/") for path in self.fs.walk_files("/out/table"))


def row(d: object, n: int) -> dict[str, object]:
    return {"d": d, "n": n}


# --- announcements ---------------------------------------------------------------------------------------


def test_what_was_new_is_announced_behind_the_checkpoint_and_only_then() -> None:
    """Partitions that came later wait for the next checkpoint; an announcement without partitions is one, too."""
    writer = Writers(sink(rolling_policy=OnCheckpointRollingPolicy())).start()
    writer.process([row("a", 1), row("b", 1)])
    writer.snapshot(1)
    writer.process([row("a", 2), row("c", 1)])
    assert writer.take_values() == []
    writer.complete(1)
    (message,) = writer.take_values()
    assert message[:4] == ("announcement", 1, 0, 1)
    assert sorted(message[4]) == ["d=a", "d=b"]
    writer.checkpoint(2)
    (message,) = writer.take_values()
    assert message[:4] == ("announcement", 2, 0, 1)
    assert sorted(message[4]) == ["d=a", "d=c"]
    writer.checkpoint(3)
    assert writer.take_values() == [announcement(3, 0, 1, [])]


def test_files_are_visible_before_they_are_announced() -> None:
    """An announced partition has its rows."""
    writers = Writers(sink(rolling_policy=OnCheckpointRollingPolicy()))
    writer = writers.start()
    seen: list[dict[str, list[str]]] = []
    emit = writer.output.emit
    writer.output.emit = lambda batch: (seen.append(writers.rows()), emit(batch))[1]  # type: ignore[method-assign]
    writer.process([row("a", 1)])
    writer.checkpoint(1)
    assert seen == [{"d=a": ['{"n":1}']}]


def test_a_late_notification_says_nothing() -> None:
    """The newer one has already announced what it covers."""
    writer = Writers(sink()).start()
    writer.snapshot(1)
    writer.checkpoint(2)
    writer.complete(1)
    assert [message[1] for message in writer.take_values()] == [2]


def test_a_lost_notification_is_made_up_for() -> None:
    """The next one announces the partitions of both."""
    writer = Writers(sink(rolling_policy=OnCheckpointRollingPolicy())).start()
    writer.process([row("a", 1)])
    writer.snapshot(1)
    writer.process([row("b", 1)])
    writer.checkpoint(2)
    (message,) = writer.take_values()
    assert (message[1], sorted(message[4])) == (2, ["d=a", "d=b"])


def test_a_partition_that_is_open_again_is_announced_as_new() -> None:
    """Its bucket never becomes inactive, but its file of the checkpoint is visible."""
    writer = Writers(sink(rolling_policy=OnCheckpointRollingPolicy())).start()
    writer.process([row("a", 1)])
    writer.snapshot(1)
    writer.process([row("a", 2)])
    writer.complete(1)
    assert [message[4] for message in writer.take_values()] == [["d=a"]]


@pytest.mark.parametrize("notified", [False, True])
def test_what_was_committed_by_a_restore_is_announced_again(notified: bool) -> None:
    """A failure may have lost the first announcement."""
    writers = Writers(sink(rolling_policy=OnCheckpointRollingPolicy()))
    before = writers.start()
    before.process([row("a", 1), row("b", 1)])
    checkpoint = before.snapshot(1)
    if notified:
        before.complete(1)
    after = writers.start(checkpoint)
    after.checkpoint(2)
    (message,) = after.take_values()
    assert (message[1], sorted(message[4])) == (2, ["d=a", "d=b"])
    assert writers.rows() == {"d=a": ['{"n":1}'], "d=b": ['{"n":1}']}


# --- parts of partitions that can be committed --------------------------------------------------------------


def test_parts_of_partitions_whose_time_has_come_are_closed() -> None:
    """Others stay open over the checkpoint, as the rolling policy has it."""
    commit = PartitionCommit(PARTITION_TIME, delay_ms=DAY_MS)
    writers = Writers(sink(commit=commit))
    writer = writers.start()
    writer.process([row("2020-05-03", 1), row("2020-05-04", 1)])
    writer.watermark(MAY_3_MS + DAY_MS)
    writer.checkpoint(1)
    assert writers.rows() == {}
    writer.watermark(MAY_3_MS + DAY_MS + 1)
    writer.checkpoint(2)
    assert writers.rows() == {"d=2020-05-03": ['{"n":1}']}


def test_process_time_closes_parts_as_well() -> None:
    """The clock of the snapshot decides, counted from the first record of the partition."""
    writers = Writers(sink(commit=PartitionCommit(PROCESS_TIME, delay_ms=1_000)))
    writer = writers.start()
    writer.process([row("a", 1)])
    writer.advance_ms(1_000)
    writer.process([row("a", 2)])
    writer.checkpoint(1)
    assert writers.rows() == {}
    writer.advance_ms(1)
    writer.checkpoint(2)
    assert writers.rows() == {"d=a": ['{"n":1}', '{"n":2}']}


def test_parts_that_were_restored_are_closed_too() -> None:
    """The committer has heard of the partition: otherwise it would commit it without the rows of the part."""
    writers = Writers(sink(commit=PartitionCommit(PARTITION_TIME)))
    before = writers.start()
    before.process([row("2020-05-03", 1)])
    after = writers.start(before.snapshot(1))
    after.watermark(MAY_3_MS + 1)
    after.checkpoint(2)
    assert writers.rows() == {"d=2020-05-03": ['{"n":1}']}
    assert after.take_values() == [announcement(2, 0, 1, ["d=2020-05-03"])]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_second_failure_does_not_lose_what_the_first_one_has_made_committable(parallelism: int) -> None:
    """The partition is visible since the first restore and in no bucket; the next checkpoint announces it."""
    writers = Writers(sink(commit=PartitionCommit(), rolling_policy=OnCheckpointRollingPolicy()))
    first = writers.start()
    first.process([row("a", 1)])
    second = writers.start(first.snapshot(1))
    newest = second.snapshot(2)
    said: list[str] = []
    third = [writers.start(newest, subtask=subtask, parallelism=parallelism) for subtask in range(parallelism)]
    for writer in third:
        newest = writer.checkpoint(3)
        said += [partition for message in writer.take_values() for partition in message[4]]
        assert writer.operator.fingerprint()
    assert said == ["d=a"]
    fourth = writers.start(newest, subtask=parallelism - 1, parallelism=parallelism)
    fourth.checkpoint(4)
    assert [message[4] for message in fourth.take_values()] == [["d=a"] if parallelism == 1 else []]


def test_a_lost_announcement_of_a_part_that_goes_on_is_made_up_for() -> None:
    """The bucket is restored open; rows between every snapshot and its completion keep it from becoming inactive."""
    writers = Writers(sink(commit=PartitionCommit(PROCESS_TIME, delay_ms=1_000)))
    before = writers.start()
    before.process([row("a", 1)])
    newest = before.snapshot(2)
    after = writers.start(newest)
    after.process([row("a", 3)])
    after.snapshot(3)
    after.process([row("a", 4)])
    after.complete(3)
    assert after.take_values() == [announcement(3, 0, 1, ["d=a"])]
    after.snapshot(4)
    after.process([row("a", 5)])
    after.complete(4)
    assert after.take_values() == [announcement(4, 0, 1, [])]


def test_a_restored_part_counts_from_its_creation() -> None:
    """The delay by process time does not start again."""
    writers = Writers(sink(commit=PartitionCommit(PROCESS_TIME, delay_ms=1_000)))
    before = writers.start()
    before.process([row("a", 1)])
    after = writers.start(before.snapshot(1), now_ns=START_NS + 1_001_000_000)
    after.checkpoint(2)
    assert writers.rows() == {"d=a": ['{"n":1}']}


def test_an_idle_writer_keeps_nothing_back() -> None:
    """The committer ignores its watermark, so its parts must ignore it, too."""
    writers = Writers(sink(commit=PartitionCommit(PARTITION_TIME)))
    writer = writers.start()
    writer.process([row("2020-05-03", 1)])
    writer.operator.process_watermark_status(True)
    writer.checkpoint(1)
    assert writers.rows() == {"d=2020-05-03": ['{"n":1}']}
    writer.process([row("2020-05-03", 2)])
    writer.operator.process_watermark_status(False)
    writer.checkpoint(2)
    assert writers.rows() == {"d=2020-05-03": ['{"n":1}']}


def test_the_first_time_of_a_partition_counts() -> None:
    """The time stays when its bucket is created again while the partition is in progress."""

    class Since:
        def is_committable(self, partition: str, created_ms: int, now_ms: int, watermark_ms: int) -> bool:
            return created_ms == 5

    books = PartitionAnnouncements(Since())
    for books.now_ms in (5, 7):
        books.bucket_created("d=a")
    assert books.to_close(0) == ["d=a"]


def test_time_passes_the_writer() -> None:
    """Watermarks and idleness reach the committer."""
    writer = Writers(sink()).start()
    writer.watermark(7)
    writer.operator.process_watermark_status(True)
    assert writer.take() == [("watermark", 7), ("idle", True)]


def test_parts_are_closed_by_time_between_checkpoints() -> None:
    """The rolling policy goes on as in any file sink."""
    policy = DefaultRollingPolicy(rollover_interval_ms=500, inactivity_interval_ms=500)
    writers = Writers(sink(rolling_policy=policy, bucket_check_interval_ms=500))
    writer = writers.start()
    writer.process([row("a", 1)])
    writer.advance_ms(500)
    writer.process([row("a", 2)])
    writer.checkpoint(1)
    assert writers.rows() == {"d=a": ['{"n":1}']}


# --- the end ---------------------------------------------------------------------------------------------


def test_the_last_announcement_waits_for_the_checkpoint_behind_the_end() -> None:
    """Neither the end itself nor a checkpoint from before it publishes anything."""
    writers = Writers(sink())
    writer = writers.start()
    writer.process([row("a", 1)])
    writer.snapshot(1)
    writer.finish()
    writer.complete(1)
    assert writer.take_values() == [announcement(1, 0, 1, ["d=a"])]
    assert writers.rows() == {}
    writer.snapshot(2)
    assert writers.rows() == {}
    writer.complete(2)
    assert writers.rows() == {"d=a": ['{"n":1}']}
    assert writer.take_values() == [announcement(END_OF_INPUT, 0, 1, ["d=a"])]


@pytest.mark.parametrize("compaction", [None, TableCompaction()])
def test_a_writer_that_ends_early_goes_on_announcing(compaction: TableCompaction | None) -> None:
    """The committer waits for the announcements of all writers, also of one that has reported the end of its input."""
    writer = Writers(sink(compaction=compaction)).start(parallelism=2)
    writer.finish()
    for checkpoint_id in (1, 2, 3):
        writer.checkpoint(checkpoint_id)
    said = [(message[1], message[2]) for message in writer.take_values()]
    assert said == [(END_OF_INPUT, 0), (2, 0), (3, 0)]
    writer.complete(2)
    assert writer.take_values() == []


def test_the_first_checkpoint_behind_the_end_is_the_last_one() -> None:
    """It does not matter whether another checkpoint had begun by then."""
    writer = Writers(sink()).start()
    writer.process([row("a", 1)])
    writer.finish()
    writer.snapshot(1)
    writer.snapshot(2)
    writer.complete(1)
    assert writer.take_values() == [announcement(END_OF_INPUT, 0, 1, ["d=a"])]


def test_without_checkpoints_everything_is_announced_at_the_end() -> None:
    """There is nothing to wait for."""
    writers = Writers(sink())
    writer = writers.start(checkpointing_enabled=False)
    writer.process([row("a", 1), row("b", 2)])
    writer.finish()
    (message,) = writer.take_values()
    assert (message[1], sorted(message[4])) == (END_OF_INPUT, ["d=a", "d=b"])
    assert writers.rows() == {"d=a": ['{"n":1}'], "d=b": ['{"n":2}']}


# --- with compaction ---------------------------------------------------------------------------------------


def test_with_compaction_files_are_named_ahead_of_the_barrier() -> None:
    """They are sent with their checkpoint and their sizes; committed, they are still hidden."""
    writers = Writers(sink(compaction=TableCompaction()))
    writer = writers.start(subtask=1, parallelism=2)
    writer.process([row("a", 1), row("b", 22)])
    writer.operator.prepare_snapshot_pre_barrier(1)
    assert writer.take_values() == [
        written_file(1, 1, "d=a", ".uncompacted-part-1-0", 8),
        written_file(1, 1, "d=b", ".uncompacted-part-1-1", 9),
    ]
    writer.operator.snapshot_state(1)
    writer.complete(1)
    assert writer.take_values() == [end_of_checkpoint(1, 1, 2)]
    assert writers.names() == ["d=a/.uncompacted-part-1-0", "d=b/.uncompacted-part-1-1"]
    assert writers.rows() == {}


def test_going_back_takes_back_what_was_compacted_of_later_checkpoints() -> None:
    """After a restore from an older checkpoint, compacted files of newer ones are hidden: their rows come again."""
    writers = Writers(sink(compaction=TableCompaction()))
    before = writers.start()
    before.process([row("a", 1)])
    older = before.checkpoint(1)
    before.process([row("a", 2)])
    before.checkpoint(2)
    for number in (0, 1):
        writers.fs.rename(f"/out/table/d=a/.uncompacted-part-0-{number}", f"/out/table/d=a/compacted-part-0-{number}")
    writers.fs.fsync_dir("/out/table/d=a")
    assert writers.rows() == {"d=a": ['{"n":1}', '{"n":2}']}
    after = writers.start(older)
    writers.fs.crash()
    assert writers.rows() == {"d=a": ['{"n":1}']}
    assert after.counter("numCommittedFilesRetracted") == 1


# --- records and settings ------------------------------------------------------------------------------------


def test_partition_columns_are_left_out_of_the_rows() -> None:
    """They are in the path; a null goes to the default partition; a number is written as text."""
    writers = Writers(sink(partition_by=("d", "h"), rolling_policy=OnCheckpointRollingPolicy()))
    writer = writers.start()
    writer.process([{"h": 7, "n": 1, "d": "x/y"}, {"h": None, "n": 2, "d": ""}])
    writer.checkpoint(1)
    assert writers.rows() == {
        "d=__DEFAULT_PARTITION__/h=__DEFAULT_PARTITION__": ['{"n":2}'],
        "d=x%2Fy/h=7": ['{"n":1}'],
    }


def test_partition_columns_are_kept_on_demand() -> None:
    """Formats that cannot read paths need them."""
    writers = Writers(sink(keep_partition_columns=True, default_partition="none", suffix=".jsonl"))
    writer = writers.start(checkpointing_enabled=False)
    writer.process([row(None, 1)])
    writer.finish()
    assert writers.rows() == {"d=none": ['{"d":null,"n":1}']}
    assert writers.names() == ["d=none/part-0-0.jsonl"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"n": 2}, "no partition column 'd'; it has 'n'"),
        ("text", "the record is a str"),
        ({"d": ["x"], "n": 2}, "of type list"),
        ({"d": "not-a-date", "n": 2}, r"d='not-a-date' names no time.*(\n.*)*timestamp_pattern"),
        ({"d": None, "n": 2}, "null or empty"),
        ({"d": "2020-05-03", "n": {1}}, "row format"),
    ],
)
def test_a_bad_record_is_shown_and_nothing_of_its_batch_is_written(bad: object, why: str) -> None:
    """Column, value and pattern are in the message, and the record as it came, with its partition columns."""
    writers = Writers(sink(commit=PartitionCommit(PARTITION_TIME, extractor=DefaultPartitionTimeExtractor("$d"))))
    writer = writers.start()
    with pytest.raises(UserFunctionError, match=why) as told:
        writer.process([row("2020-05-03", 1), bad])
    assert told.value.record == bad
    assert writers.names() == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"partition_by": ()}, "partition_by"),
        ({"partition_by": "day"}, "names of columns"),
        ({"partition_by": ("_d",)}, "hide"),
        ({"partition_by": ("d", "d")}, "twice"),
        ({"default_partition": ".x"}, "hidden"),
        ({"commit": "process-time"}, "PartitionCommit"),
        ({"compaction": 100}, "TableCompaction"),
        ({"compaction": TableCompaction(), "rolling_policy": DefaultRollingPolicy()}, "keeps them open"),
    ],
)
def test_sinks_that_make_no_sense(wrong: dict[str, Any], why: str) -> None:
    """They are refused where the sink is described."""
    with pytest.raises(ConfigurationError, match=why):
        sink(**wrong)


@pytest.mark.parametrize("wrong", [{"target_size_bytes": 0}, {"target_size_bytes": 1.5}, {"ns_per_byte": -1}])
def test_compactions_that_make_no_sense(wrong: dict[str, Any]) -> None:
    """Sizes are whole numbers above 0, costs 0 or more."""
    with pytest.raises(ConfigurationError):
        TableCompaction(**wrong)


def test_fingerprints_tell_writers_apart() -> None:
    """The fingerprint includes what a writer will announce."""
    books = PartitionAnnouncements()
    empty = books.fingerprint()
    books.bucket_created("d=a")
    new = books.fingerprint()
    books.on_snapshot(1)
    booked = books.fingerprint()
    books.bucket_inactive("d=a")
    assert len({empty, new, booked, books.fingerprint()}) == 4
    assert books.to_close(MAX_TIMESTAMP_MS) == []
