"""Writers of the bucketing sink: lines, Avro container files, sequences of records."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError, StorageError, UserFunctionError
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from operators.files.bucketing import (
    AvroWriter,
    BucketingSink,
    LineWriter,
    SequenceWriter,
    Writer,
    read_bucketing_output,
    sequence_records,
)
from operators.files.formats import CsvRowFormat, JsonLinesRowFormat
from operators.files.writing import partition_path
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.operators.harness import Checkpoint, Harness

US = 1_000
SCHEMA = {"n": int, "name": str}
WRITERS: dict[str, tuple[Writer, Any]] = {
    "json": (LineWriter(JsonLinesRowFormat()), lambda n: {"n": n, "name": f"é{n}"}),
    "csv": (LineWriter(CsvRowFormat()), lambda n: (n, f"é{n}")),
    "avro": (AvroWriter(SCHEMA, block_bytes=20), lambda n: {"n": n, "name": f"é{n}"}),
    "deflated avro": (AvroWriter(SCHEMA, codec="deflate"), lambda n: (n, f"é{n}")),
    "sequence": (SequenceWriter(), lambda n: (n, {"é": [n, None, 1.5]})),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("truncates", [True, False])
def test_a_job_that_is_killed_writes_each_record_once(kind: str, truncates: bool) -> None:
    """With parts open over checkpoints, cut back by the restore or marked with their valid length."""
    writer, record = WRITERS[kind]
    files = MemoryFileSystem()
    sink = BucketingSink(
        "rows", writer=writer, bucketer=lambda _: partition_path(all=1), batch_size_bytes=150, use_truncate=truncates
    )
    job = Job("writers")
    job.source(SequenceSource(0, 60)).rebalance().map(record).rebalance().sink(sink, name="rows")
    config = RunConfig(mode="aligned", checkpoint_interval=CheckpointInterval(records=7), batch_size=1)
    execution = Execution(job.plan(), config, file_system=files, output_dir="/out")
    execution.kill("rows[0]", 25 * US)
    result = execution.run()

    assert result.state == "finished", result.error
    assert result.attempts == 2
    expected = sorted(writer.encode(record(n)) for n in range(60))
    assert sink.read_output(files, "/out/rows") == {"all=1": expected}
    finished = [path for path in files.walk_files("/out/rows") if "/part-0-" in path]
    assert len(finished) > 2


def test_a_part_is_closed_in_the_middle_of_a_batch() -> None:
    """By the record that makes it larger than the size, as without a writer."""
    files = MemoryFileSystem()
    sink = BucketingSink("rows", writer=LineWriter(JsonLinesRowFormat()), batch_size_bytes=3)
    Harness(sink.create_operator(), fs=files).process([1, 2, 3, 4, 5])
    parts = {path.rpartition("/")[2]: files.read_bytes(path) for path in files.walk_files("/out/rows")}
    assert parts == {"_part-0-0.pending": b"1\n2\n", "_part-0-1.pending": b"3\n4\n", "_part-0-2.in-progress": b"5\n"}


@pytest.mark.parametrize("kind", WRITERS)
@given(cuts=st.lists(st.integers(0, 9), max_size=5))
def test_a_part_that_ends_at_any_flush_can_be_read(kind: str, cuts: list[int]) -> None:
    """And get_pos says then how long the file is."""
    prototype, record = WRITERS[kind]
    writer, data = prototype.duplicate(), io.BytesIO()
    writer.open(data.write)
    for n in range(10):
        writer.write(record(n))
        if n in cuts:
            writer.flush()
            assert writer.get_pos() == len(data.getvalue())
            assert writer.lines_of("part", data.getvalue()) == [writer.encode(record(one)) for one in range(n + 1)]
    writer.close()
    assert len(writer.lines_of("part", data.getvalue())) == 10


def test_an_avro_part_is_read_by_fastavro_alone() -> None:
    """It is a container file as others write it."""
    fastavro = pytest.importorskip("fastavro")
    for codec in ("null", "deflate"):
        writer, data = AvroWriter(SCHEMA, codec=codec).duplicate(), io.BytesIO()
        writer.open(data.write)
        writer.write({"n": 1, "name": "a"})
        writer.flush()
        writer.write({"n": None, "name": "b"})
        writer.close()
        data.seek(0)
        assert list(fastavro.reader(data)) == [{"n": 1, "name": "a"}, {"n": None, "name": "b"}]


def test_a_sequence_that_is_torn_or_damaged_is_an_error() -> None:
    """Each record has its length and checksum."""
    writer, data = SequenceWriter(), io.BytesIO()
    writer.open(data.write)
    for n in range(3):
        writer.write(("record", n))
    whole = data.getvalue()

    assert list(sequence_records("part", whole)) == [("record", n) for n in range(3)]
    with pytest.raises(StorageError, match="ends in the middle of the record"):
        list(sequence_records("part", whole[:-1]))
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(StorageError, match="another checksum: it is damaged"):
        list(sequence_records("part", flipped))
    with pytest.raises(StorageError, match="is no file of a SequenceWriter"):
        list(sequence_records("part", b"Obj\x01"))


@pytest.mark.parametrize("record", [{"n": "7", "name": "a"}, {"n": True, "name": "a"}, {"n": 1 << 63, "name": "a"},
                                    {"n": 1}, (1, "a", 2), 5])  # fmt: skip
def test_a_record_that_does_not_fit_the_schema_names_the_operator_and_leaves_no_trace(record: Any) -> None:
    """Nothing of it is in the part."""
    files = MemoryFileSystem()
    one = Harness(BucketingSink("rows", writer=AvroWriter(SCHEMA, block_bytes=1)).create_operator(), fs=files)
    one.process([(1, "a")])
    with pytest.raises(UserFunctionError, match="writer") as told:
        one.process([record])
    assert repr(record)[:8] in str(told.value)
    [part] = [path for path in files.walk_files("/out/rows") if "in-progress" in path]
    assert WRITERS["avro"][0].lines_of(part, files.read_bytes(part)) == ['{"n":1,"name":"a"}']


def test_without_sync_on_flush_a_checkpoint_does_not_wait_for_the_disk() -> None:
    """Its bytes may be gone after a power cut, and are there after the death of the process."""

    def after_power_cut(sync: bool) -> tuple[int, int]:
        files = MemoryFileSystem()
        sink = BucketingSink("rows", writer=SequenceWriter(), sync_on_flush=sync)
        one = Harness(sink.create_operator(), fs=files)
        one.process(["a", "b"])
        one.snapshot(1, Checkpoint(1))
        [part] = [path for path in files.walk_files("/out/rows") if "in-progress" in path]
        written = files.size(part)
        files.crash()
        return written, files.size(part) if files.exists(part) else 0

    written, left = after_power_cut(sync=True)
    assert left == written > 0
    written, left = after_power_cut(sync=False)
    assert left < written


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"writer": SequenceWriter(), "format": CsvRowFormat()}, "format= or writer=, not both"),
        ({"writer": CsvRowFormat()}, "use LineWriter"),
    ],
)
def test_a_writer_that_cannot_be_used_is_refused(options: dict[str, Any], told: str) -> None:
    """When the sink is made."""
    with pytest.raises(ConfigurationError, match=told):
        BucketingSink("rows", **options)


def test_the_reader_needs_the_writer_of_the_sink() -> None:
    """Lines are assumed otherwise, and a sequence is none."""
    files = MemoryFileSystem()
    one = Harness(BucketingSink("rows", writer=SequenceWriter()).create_operator(), fs=files)
    one.process(["a"])
    one.finish()
    one.checkpoint(1)
    assert read_bucketing_output(files, "/out/rows", lines_of=SequenceWriter().lines_of) == {"": ["'a'"]}


class Selfish(LineWriter):
    """Gives itself in place of another one."""

    def duplicate(self) -> LineWriter:
        return self


class Nothing(LineWriter):
    def duplicate(self) -> Any:
        return None


class Miscounted(LineWriter):
    def duplicate(self) -> LineWriter:
        return type(self)(self.format)

    def get_pos(self) -> int:
        return 3


class HoldsBack(Miscounted):
    """Has not written what it says it has flushed."""

    def _put(self, data: bytes) -> None:
        self._position += len(data)

    def get_pos(self) -> int:
        return self._position


class Broken(Miscounted):
    def open(self, write: Any) -> None:
        raise ZeroDivisionError("one over nothing")


class BreaksLater(Miscounted):
    def flush(self) -> None:
        raise ZeroDivisionError("one over nothing")


class Noted(MemoryFileSystem):
    """Notes the files that are opened for writing."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Any] = []

    def open_write(self, path: str, *, exclusive: bool = False) -> Any:
        self.opened.append(super().open_write(path, exclusive=exclusive))
        return self.opened[-1]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Selfish, r"duplicate of writer of operator 'op' raised TypeError: it must return another writer for each"),
        (Nothing, "it must return another writer for each part, and returned None"),
        (Miscounted, r"flush of writer .* get_pos\(\) is 3 after it, and the part has 4 bytes"),
        (HoldsBack, r"flush of writer .* get_pos\(\) is 4 after it, and the part has 0 bytes"),
        (Broken, "open of writer of operator 'op' raised ZeroDivisionError: one over nothing"),
        (BreaksLater, "flush of writer of operator 'op' raised ZeroDivisionError"),
    ],
)
def test_a_writer_that_breaks_its_contract_is_named(kind: type[LineWriter], told: str) -> None:
    """Before a checkpoint relies on its bytes; no record is to blame."""
    files = Noted()
    one = Harness(BucketingSink("rows", writer=kind(JsonLinesRowFormat())).create_operator(), fs=files)

    def until_a_checkpoint() -> None:
        one.process(["a"])
        one.snapshot(1, Checkpoint(1))

    with pytest.raises(UserFunctionError, match=told) as error:
        until_a_checkpoint()
    assert "  record" not in str(error.value)
    one.operator.close()
    assert one.counter("numPartsNotClosed") == (kind in (Miscounted, HoldsBack, BreaksLater))
    assert [file for file in files.opened if not file._closed] == []


def test_a_full_disk_is_not_the_fault_of_a_record() -> None:
    """The error names the storage, as without a writer."""
    full = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.DISK_FULL, "write", "*in-progress")])
    one = Harness(BucketingSink("rows", writer=LineWriter(CsvRowFormat())).create_operator(), fs=full)
    with pytest.raises(StorageError, match=r"sink 'op' cannot write .*No space left"):
        one.process([(1, "a")])
