"""Compaction of a table's files: how units are packed, what a compactor does at each crash point, nothing twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from engine.elements.errors import ConfigurationError, DataLossError, StorageError
from operators.files.formats import JsonLinesRowFormat
from operators.files.sinks import read_committed
from operators.files.writing import BulkTextFormat
from operators.table.partitions.partition_committer import END_OF_INPUT
from operators.table.partitions.partition_compaction import CompactOperator, TableCompactCoordinatorOperator
from operators.table.partitions.partition_messages import (
    announcement,
    end_marker,
    end_of_checkpoint,
    unit,
    written_file,
)
from operators.table.partitions.partitioned_file_sink import PartitionedFileSink, TableCompaction
from operators.table.partitions.table_compaction import CompactedCheckpoint, TableCompactCoordinator, WrittenFile
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from tests.operators.harness import Checkpoint, Harness


def packed(done: tuple[CompactedCheckpoint, ...]) -> list[tuple[int, list[tuple[int, str, tuple[str, ...]]]]]:
    return [(one.checkpoint_id, [tuple(unit) for unit in one.units]) for one in done]


# --- the coordinator ---------------------------------------------------------------------------------------


def test_units_are_numbered_across_partitions_and_anew_in_each_checkpoint() -> None:
    """Older checkpoints come first; files that do not fit begin another unit."""
    coordinator = TableCompactCoordinator(10)
    for partition, name, size in (("a", "1", 6), ("b", "2", 1), ("a", "3", 5)):
        coordinator.on_file(1, WrittenFile(0, partition, name, size))
    coordinator.on_file(2, WrittenFile(0, "a", "4", 9))
    assert packed(coordinator.on_end_of_checkpoint(2, 0, 1)) == [
        (1, [(0, "a", ("1",)), (1, "a", ("3",)), (2, "b", ("2",))]),
        (2, [(0, "a", ("4",))]),
    ]
    assert packed(coordinator.on_end_of_checkpoint(3, 0, 1)) == [(3, [])]


def test_nothing_is_packed_before_all_writers_have_committed() -> None:
    """The files of the other writers are not there yet; files of later checkpoints stay."""
    coordinator = TableCompactCoordinator(10)
    coordinator.on_file(1, WrittenFile(0, "a", "1", 1))
    coordinator.on_file(2, WrittenFile(0, "a", "2", 1))
    assert coordinator.on_end_of_checkpoint(1, 0, 2) == ()
    assert packed(coordinator.on_end_of_checkpoint(1, 1, 2)) == [(1, [(0, "a", ("1",))])]


def test_units_do_not_depend_on_the_order_in_which_writers_come() -> None:
    """After a restore, in-flight messages may come in another order, but those of one writer keep theirs."""
    of_writers = [[WrittenFile(task, "a", f"{task}-{number}", 4) for number in range(3)] for task in range(2)]
    outcomes = []
    for order in ([0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0], [1, 1, 1, 0, 0, 0]):
        coordinator = TableCompactCoordinator(8)
        files = [iter(files) for files in of_writers]
        for task in order:
            coordinator.on_file(1, next(files[task]))
        outcomes.append(packed(coordinator.on_end_of_checkpoint(1, 0, 1)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_a_file_that_is_named_twice_is_compacted_once() -> None:
    """A message may be in the state and be sent again."""
    coordinator = TableCompactCoordinator(100)
    for _ in range(2):
        coordinator.on_file(1, WrittenFile(0, "a", "1", 1))
    assert packed(coordinator.on_end_of_checkpoint(1, 0, 1)) == [(1, [(0, "a", ("1",))])]


def test_another_target_size_holds_for_later_checkpoints_only() -> None:
    """Units packed by the old size may be half done: they must be packed the same way again."""
    before = Harness(TableCompactCoordinatorOperator(100))
    before.process([written_file(1, 0, "a", name, 10) for name in "12"])
    checkpoint = before.snapshot(1)
    after = Harness(TableCompactCoordinatorOperator(10), restored=checkpoint, attempt=2)
    after.process([written_file(2, 0, "a", name, 10) for name in "34"])
    after.process([end_of_checkpoint(2, 0, 1)])
    assert after.take_values() == [
        unit(0, "a", "12"),
        end_marker(1, 2),
        unit(0, "a", "3"),
        unit(1, "a", "4"),
        end_marker(2, 2),
    ]


def test_files_of_checkpoints_behind_the_restored_one_are_forgotten() -> None:
    """A barrier that does not align lets them into the state; their writers begin again and name others."""
    before = Harness(TableCompactCoordinatorOperator(100))
    before.process([written_file(1, 0, "a", "1", 1), written_file(2, 1, "a", "ghost", 1)])
    after = Harness(TableCompactCoordinatorOperator(100), restored=before.snapshot(1), attempt=2)
    after.process([end_of_checkpoint(2, 0, 1)])
    assert after.take_values() == [unit(0, "a", "1"), end_marker(1, 2), end_marker(2, 2)]


# --- the compactor -----------------------------------------------------------------------------------------


class Table:
    """A directory with the files of units, and the attempts of one compactor."""

    def __init__(self, **options: Any) -> None:
        self.disk = MemoryFileSystem()
        self.options = options
        self.attempt = 0
        self.start()

    def start(self, restored: Checkpoint | None = None, fs: Any = None, incarnation: int = 1) -> Harness:
        self.attempt += 1
        self.compactor = Harness(
            CompactOperator("table", JsonLinesRowFormat()),
            fs=fs or self.disk,
            restored=restored,
            attempt=self.attempt,
            incarnation=incarnation,
            **self.options,
        )
        return self.compactor

    def add(self, unit_id: int, partition: str, *names: str) -> Any:
        self.disk.make_dirs(f"/out/table/{partition}")
        for name in names:
            with self.disk.open_write(f"/out/table/{partition}/.uncompacted-{name}") as file:
                file.write(f'"{name}"\n'.encode())
                file.fsync()
        for directory in ("/", "/out", "/out/table", f"/out/table/{partition}"):
            self.disk.fsync_dir(directory)
        return unit(unit_id, partition, [f".uncompacted-{name}" for name in names])

    def names(self) -> list[str]:
        return sorted(path.removeprefix("/out/table/") for path in self.disk.walk_files("/out/table"))

    def rows(self) -> dict[str, list[str]]:
        return read_committed(self.disk, "/out/table")


def test_a_unit_becomes_one_file_and_its_partition_is_announced_behind_the_marker() -> None:
    """The sources stay until a later checkpoint has completed."""
    table = Table()
    table.compactor.process([table.add(0, "d=a", "1", "2"), table.add(1, "d=b", "3")])
    assert table.compactor.take_values() == []
    table.compactor.process([end_marker(1, 1)])
    assert table.compactor.take_values() == [announcement(1, 0, 1, ["d=a", "d=b"])]
    assert table.rows() == {"d=a": ['"1"', '"2"'], "d=b": ['"3"']}
    table.compactor.snapshot(2)
    table.compactor.snapshot(3)
    assert len(table.names()) == 5
    table.compactor.complete(3)
    assert table.names() == ["d=a/compacted-1", "d=b/compacted-3"]
    # The next checkpoint forgets the sources: a power cut must not restore them.
    table.disk.crash()
    assert table.names() == ["d=a/compacted-1", "d=b/compacted-3"]
    assert table.compactor.counter("numFilesCompacted") == 3


def test_a_checkpoint_that_never_completed_is_announced_with_the_one_that_did() -> None:
    """The committer has a watermark of the completed checkpoint, and perhaps none of the other."""
    table = Table()
    table.compactor.process([table.add(0, "d=a", "1"), end_marker(1, 2), table.add(0, "d=b", "2"), end_marker(2, 2)])
    assert table.compactor.take_values() == [announcement(2, 0, 1, ["d=a", "d=b"])]


def test_each_unit_has_one_compactor() -> None:
    """Its number, modulo the parallelism, decides; the others announce, too, for they are counted."""
    table = Table(subtask=1, parallelism=2)
    table.compactor.process([table.add(number, f"d={number}", str(number)) for number in range(3)])
    table.compactor.process([end_marker(1, 1)])
    assert table.rows() == {"d=1": ['"1"']}
    assert table.compactor.take_values() == [announcement(1, 1, 2, ["d=1"])]


def test_a_unit_that_comes_again_changes_nothing() -> None:
    """It does not matter whether its sources are still there."""
    table = Table()
    again = table.add(0, "d=a", "1", "2")
    table.compactor.process([again, end_marker(1, 1)])
    before = table.disk.read_bytes("/out/table/d=a/compacted-1")
    table.start().process([again])
    table.compactor.finish()
    assert table.names() == ["d=a/compacted-1"]
    table.start().process([again])
    assert table.disk.read_bytes("/out/table/d=a/compacted-1") == before


def test_a_unit_whose_sources_were_being_deleted_is_done() -> None:
    """The result is durable before the first source is deleted, so the remaining sources do not matter."""
    table = Table()
    again = table.add(0, "d=a", "1", "2")
    table.compactor.process([again])
    table.disk.delete("/out/table/d=a/.uncompacted-1")
    table.start().process([again, end_marker(1, 1)])
    assert table.compactor.take_values() == [announcement(1, 0, 1, ["d=a"])]
    table.compactor.finish()
    assert table.names() == ["d=a/compacted-1"]
    assert table.rows() == {"d=a": ['"1"', '"2"']}


def test_a_unit_that_is_gone_with_its_result_is_lost() -> None:
    """Neither the sources nor their compacted file are there: both sources are reported."""
    table = Table()
    gone = unit(0, "d=a", [".uncompacted-1", ".uncompacted-2"])
    table.compactor.process([gone])
    assert table.compactor.counter("numCommittedFilesMissing") == 2
    assert [loss.split()[5] for loss in table.compactor.context.losses] == [
        "/out/table/d=a/.uncompacted-1:", "/out/table/d=a/.uncompacted-2:",
    ]
    assert table.names() == []


def test_a_unit_of_which_a_part_is_gone_is_lost_data() -> None:
    """No restart brings it back, and going on would silently lose rows."""
    table = Table()
    half = table.add(0, "d=a", "1", "2")
    table.disk.delete("/out/table/d=a/.uncompacted-1")
    with pytest.raises(DataLossError, match=r"d=a/\.uncompacted-1 cannot be compacted into .*compacted-1: gone"):
        table.compactor.process([half])


def test_a_disk_that_is_full() -> None:
    """The error says where; after the restore the unit is compacted."""
    table = Table()
    broken = FaultInjectingFileSystem(table.disk, [FaultRule(kind=FileFault.DISK_FULL, operation="write")])
    message = table.add(0, "d=a", "1", "2")
    with pytest.raises(StorageError, match=r"cannot write .*compacted-1"):
        table.start(fs=broken).process([message])
    assert table.rows() == {}
    table.start().process([message])
    assert table.names() == ["d=a/.uncompacted-1", "d=a/.uncompacted-2", "d=a/compacted-1"]


def test_behind_the_end_sources_are_deleted_at_once() -> None:
    """They do not wait for a checkpoint; the result is durable before that."""
    table = Table()
    first = table.add(0, "d=a", "1")
    table.compactor.process([first, end_marker(1, 1)])
    table.compactor.finish()
    assert table.names() == ["d=a/compacted-1"]
    table.compactor.process([table.add(0, "d=a", "2"), end_marker(2, 2)])
    assert table.names() == ["d=a/compacted-1", "d=a/compacted-2"]
    table.compactor.process([table.add(0, "d=a", "3"), end_marker(END_OF_INPUT, END_OF_INPUT)])
    assert table.names() == ["d=a/compacted-1", "d=a/compacted-2", "d=a/compacted-3"]
    assert table.compactor.take_values()[-1] == announcement(END_OF_INPUT, 0, 1, ["d=a"])


def test_files_to_delete_move_with_the_state() -> None:
    """After a change of parallelism the subtask that gets the list deletes them."""
    first = Table(subtask=0, parallelism=2)
    first.compactor.process([first.add(0, "d=a", "1"), end_marker(1, 1)])
    checkpoint = first.compactor.snapshot(2)
    second = Harness(CompactOperator("table", JsonLinesRowFormat()), parallelism=2, subtask=1)
    second.snapshot(2, into=checkpoint)
    first.options = {}
    first.start(checkpoint).complete(2)
    assert first.names() == ["d=a/compacted-1"]


def compact_under(rules: list[FaultRule], table: Table, restored: Checkpoint | None) -> tuple[bool, Checkpoint | None]:
    """One attempt: returns whether it succeeded, and the checkpoint to go on from."""
    fs = FaultInjectingFileSystem(table.disk, rules)
    units = [unit(0, "d=a", [".uncompacted-1", ".uncompacted-2"]), unit(1, "d=b", [".uncompacted-3"])]
    try:
        compactor = table.start(restored, fs=fs, incarnation=table.attempt + 1)
        if restored is None:
            compactor.process([*units, end_marker(1, 1)])
            restored = compactor.snapshot(2)
        compactor.complete(2)
    except SimulatedCrashError:
        table.disk.crash()
        return False, restored
    except StorageError:
        return False, restored
    return True, restored


CALLS = st.integers(1, 40)
FAULTS = st.sampled_from(
    [FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER, FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER, FileFault.DISK_FULL]
)


@settings(max_examples=150)
@given(st.lists(st.tuples(FAULTS, CALLS), max_size=3))
# The directory of a renamed file could not be fsynced; the next attempt found the file, and a power cut took it away.
@example([(FileFault.ERROR_BEFORE, 23), (FileFault.CRASH_BEFORE, 23)])
def test_whatever_strikes_rows_are_seen_once_and_all_in_the_end(faults: list[tuple[FileFault, int]]) -> None:
    """A crash with a power cut or an error at any call, several times: a reader never sees a row twice, a visible file
    never changes, and afterwards only the compacted files are there."""
    table = Table()
    table.add(0, "d=a", "1", "2")
    table.add(1, "d=b", "3")
    restored: Checkpoint | None = None
    contents: dict[str, list[str]] = {}
    done = False
    for kind, at_call in faults:
        done, restored = compact_under([FaultRule(kind=kind, at_call=at_call)], table, restored)
        for partition, rows in table.rows().items():
            assert contents.setdefault(partition, rows) == rows
    if not done:
        done, restored = compact_under([], table, restored)
    assert done
    assert table.rows() == {"d=a": ['"1"', '"2"'], "d=b": ['"3"']}
    assert table.names() == ["d=a/compacted-1", "d=b/compacted-3"]


def test_only_formats_that_can_be_merged_are_compacted() -> None:
    """Other formats are refused where the sink is described; compressed lines can be merged."""

    class Sealed:
        is_bulk = True

        def encode_batch(self, batch: Any) -> Any:
            return batch.values

        def select(self, rows: Any, positions: Any) -> Any:
            return [rows[position] for position in positions]

        def open_writer(self, write: Any) -> Any:
            raise AssertionError("never written")

        def encode(self, record: Any) -> str:
            return str(record)

        def lines_of(self, path: str, content: bytes) -> list[str]:
            return []

    with pytest.raises(ConfigurationError, match="Sealed cannot be compacted"):
        PartitionedFileSink("t", partition_by=("d",), format=Sealed(), compaction=TableCompaction())
    PartitionedFileSink(
        "t", partition_by=("d",), format=BulkTextFormat(JsonLinesRowFormat()), compaction=TableCompaction()
    )


def test_compaction_takes_virtual_time() -> None:
    """The time is the configured cost, by the size of the sources."""
    table = Table()
    message = table.add(0, "d=a", "1", "2")
    compactor = Harness(CompactOperator("table", JsonLinesRowFormat(), ns_per_byte=5), fs=table.disk)
    before_ns = compactor.context.now_ns
    compactor.process([message])
    assert compactor.context.now_ns - before_ns == 5 * 8


WRITTEN = st.tuples(st.integers(1, 4), st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 20))


@given(st.lists(WRITTEN, max_size=25))
def test_every_file_is_in_one_unit(files: list[tuple[int, int, str, int]]) -> None:
    """Whatever comes when: all files of a checkpoint and of older ones, each once, none across partitions, none heavier
    than the target unless it is alone."""
    coordinator = TableCompactCoordinator(10)
    sizes: dict[str, int] = {}
    for number, (checkpoint_id, task, partition, size) in enumerate(files):
        name = f"{partition}{number}"
        sizes[name] = size
        coordinator.on_file(checkpoint_id, WrittenFile(task, partition, name, size))
    for last in (2, 4):
        seen: Counter[str] = Counter()
        for _, units in packed(coordinator.on_end_of_checkpoint(last, 0, 1)):
            assert [number for number, _, _ in units] == list(range(len(units)))
            for _, partition, names in units:
                seen.update(names)
                assert {name[0] for name in names} == {partition}
                assert len(names) == 1 or sum(sizes[name] for name in names) <= 10
        expected = [f"{partition}{at}" for at, (known, _, partition, _) in enumerate(files) if last - 2 < known <= last]
        assert seen == Counter(expected)
