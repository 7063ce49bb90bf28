"""Avro and ORC files as sink and source: written once, resumed block- and stripe-wise, damage is told."""

from __future__ import annotations

import io
from hashlib import blake2b
from typing import Any

import pytest

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobFailedError, StateError, StorageError, UserFunctionError
from engine.elements.source import SplitReader
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from operators.basic import CollectedResults, CollectSink
from operators.files.formats import AvroFile, CorruptFileError
from operators.files.reading import AvroInputFormat, FileSource, OrcInputFormat
from operators.files.sinks import FileSink, read_committed
from operators.files.writing import AvroFormat, OrcFormat
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from tests.operators.harness import Harness

US = 1_000
SCHEMA = {"n": int, "name": str, "share": float, "is_odd": bool, "data": bytes}
FORMATS: dict[str, tuple[Any, Any]] = {
    "avro": (AvroFormat(SCHEMA, block_bytes=50), AvroInputFormat),
    "deflated avro": (AvroFormat(SCHEMA, codec="deflate", block_bytes=500), AvroInputFormat),
    "orc": (OrcFormat(SCHEMA, stripe_bytes=1024, piece_rows=16), OrcInputFormat),
}


def _row(n: int) -> dict[str, Any]:
    return {"n": n, "name": f"é{n}" if n % 7 else None, "share": n / 4, "is_odd": bool(n % 2), "data": bytes([n])}


def _content(format: Any, rows: list[Any], batch: int = 7) -> bytes:
    data = io.BytesIO()
    writer = format.open_writer(data.write)
    for start in range(0, len(rows), batch):
        encoded = format.encode_batch(Batch(rows[start : start + batch]))
        at = 0
        while at < len(rows[start : start + batch]):
            at = writer.add(encoded, at, len(rows[start : start + batch]))
    writer.finish()
    return data.getvalue()


def _put(files: MemoryFileSystem, content: bytes) -> None:
    files.make_dirs("/in")
    with files.open_write("/in/a") as file:
        file.write(content)


class _Context:
    name, attempt = "files", 1

    def __init__(self, files: MemoryFileSystem) -> None:
        self.files, self.counted = files, {}  # type: ignore[var-annotated]

    def file_system(self) -> MemoryFileSystem:
        return self.files

    def count(self, name: str, amount: int = 1) -> None:
        self.counted[name] = self.counted.get(name, 0) + amount


def _open(context: _Context, format: Any, position: Any = None) -> SplitReader:
    return FileSource("/in/a", format).open_split("/in/a", position, context)  # type: ignore[arg-type]


def _read_all(reader: SplitReader) -> list[Any]:
    out: list[Any] = []
    while (batch := reader.read(5)) is not None:
        out += batch.values
    return out


@pytest.mark.parametrize("kind", FORMATS)
def test_a_job_that_is_killed_writes_files_once_and_reads_them_once(kind: str) -> None:
    """Sink and source in two jobs, each killed between two checkpoints."""
    output, reading = FORMATS[kind]
    files = MemoryFileSystem()
    writes = Job("writes")
    writes.source(SequenceSource(0, 100)).rebalance().map(_row).rebalance().sink(
        FileSink("rows", format=output), name="rows"
    )
    config = RunConfig(mode="aligned", checkpoint_interval=CheckpointInterval(records=20), batch_size=4)
    execution = Execution(writes.plan(), config, file_system=files, output_dir="/out")
    execution.kill("rows[0]", 50 * US)
    result = execution.run()
    assert (result.state, result.attempts) == ("finished", 2), result.error
    assert read_committed(files, "/out/rows", format=output) == {"": sorted(output.encode(_row(n)) for n in range(100))}

    results = CollectedResults()
    reads = Job("reads")
    source = FileSource("/out/rows", reading())
    reads.source(source, name="files").rebalance().map(lambda row: row, name="rows").sink(CollectSink(results))
    execution = Execution(reads.plan(), config, file_system=files)
    execution.kill("rows[0]", 50 * US)
    result = execution.run()
    assert (result.state, result.attempts) == ("finished", 2), result.error
    assert sorted(results.records, key=lambda row: row["n"]) == [_row(n) for n in range(100)]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_bytes_of_a_file_do_not_depend_on_batches(kind: str) -> None:
    """Also with another process: nothing in them is random."""
    output, _ = FORMATS[kind]
    rows = [_row(n) for n in range(100)]
    assert _content(output, rows, 1) == _content(output, rows, 7) == _content(output, rows, 100)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_reader_goes_on_from_each_position(kind: str) -> None:
    """The rest comes once, whichever record was read last."""
    output, reading = FORMATS[kind]
    files, rows = MemoryFileSystem(), [_row(n) for n in range(100)]
    _put(files, _content(output, rows))
    context = _Context(files)
    for read in range(0, 101, 9):
        first = _open(context, reading())
        got = 0
        while got < read:
            got += len(first.read(min(4, read - got)).values)  # type: ignore[union-attr]
        position = first.position()
        assert _read_all(_open(context, reading(), position)) == rows[read:]


@pytest.mark.parametrize("kind", FORMATS)
def test_another_file_in_its_place_is_refused(kind: str) -> None:
    """The position names the file's header or footer."""
    output, reading = FORMATS[kind]
    files = MemoryFileSystem()
    context = _Context(files)
    _put(files, _content(output, [_row(n) for n in range(50)]))
    reader = _open(context, reading())
    reader.read(3)
    other = type(output)({"n": int})
    _put(files, _content(other, [{"n": n} for n in range(50)]))
    with pytest.raises(StateError, match="has changed since the checkpoint"):
        _open(context, reading(), reader.position())


def test_avro_splits_are_cut_between_blocks() -> None:
    """Together they have each record once."""
    output, reading = FORMATS["avro"]
    files, rows = MemoryFileSystem(), [_row(n) for n in range(100)]
    _put(files, _content(output, rows))
    results = CollectedResults()
    job = Job("splits", parallelism=3)
    source = FileSource("/in", reading(("n", "name"), record="tuple"), split_bytes=300)
    job.source(source, name="files").sink(CollectSink(results))
    result = Execution(job.plan(), RunConfig(), file_system=files).run()
    assert result.state == "finished"
    assert [task.records_out + task.records_in > 0 for task in result.tasks].count(True) == 3
    assert sorted(results.records) == [(row["n"], row["name"]) for row in rows]


def test_a_damaged_avro_block_is_an_error_or_is_left_out_and_counted() -> None:
    """The others are read."""
    output, _ = FORMATS["deflated avro"]
    files, rows = MemoryFileSystem(), [_row(n) for n in range(100)]
    content = bytearray(_content(output, rows))
    blocks = list(AvroFile(io.BytesIO(content), "a").places())
    content[blocks[1].offset + 8] ^= 0xFF
    _put(files, bytes(content))
    context = _Context(files)

    with pytest.raises(CorruptFileError, match=f"the block at byte {blocks[1].offset} cannot be read"):
        _read_all(_open(context, AvroInputFormat()))
    left = _read_all(_open(context, AvroInputFormat(on_corrupt="skip")))
    before = blocks[0].size
    assert left == rows[:before] + rows[before + blocks[1].size :]
    assert context.counted == {"numCorruptBlocksSkipped": 1}


def test_a_damaged_orc_stripe_is_an_error_or_is_left_out_and_counted() -> None:
    """The footer is whole, so the others are read."""
    output = OrcFormat({"n": int, "name": str}, stripe_bytes=1024, piece_rows=1024, compression="zlib")
    rows = [{"n": n, "name": blake2b(b"%d" % n).hexdigest()} for n in range(8192)]
    files = MemoryFileSystem()
    content = bytearray(_content(output, rows, 1024))
    content[100:600] = b"\xff" * 500
    _put(files, bytes(content))
    context = _Context(files)

    with pytest.raises(CorruptFileError, match="stripe 0"):
        _read_all(_open(context, OrcInputFormat()))
    left = _read_all(_open(context, OrcInputFormat(on_corrupt="skip")))
    assert context.counted == {"numCorruptStripesSkipped": 1}
    assert 0 < len(left) < len(rows)
    assert left == rows[len(rows) - len(left) :]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_block_that_is_damaged_after_a_checkpoint_takes_no_record_of_the_next_one_with_it(is_last: bool) -> None:
    """What is left of it is left out, also once more after the next checkpoint; without on_corrupt it is an error."""
    files, rows = MemoryFileSystem(), [_row(n) for n in range(100)]
    content = bytearray(_content(FORMATS["deflated avro"][0], rows))
    blocks = list(AvroFile(io.BytesIO(content), "a").places())
    damaged = len(blocks) - 1 if is_last else 1
    before = sum(block.size for block in blocks[:damaged])
    _put(files, bytes(content))
    context = _Context(files)
    reader = _open(context, AvroInputFormat(on_corrupt="skip"))
    for _ in range(before + 2):
        reader.read(1)
    content[blocks[damaged].offset + 8] ^= 0xFF
    _put(files, bytes(content))

    with pytest.raises(CorruptFileError, match="cannot be read"):
        _open(context, AvroInputFormat(), reader.position())
    again = _open(context, AvroInputFormat(on_corrupt="skip"), reader.position())
    again = _open(context, AvroInputFormat(on_corrupt="skip"), again.position())
    assert again.ready() == (0 if is_last else blocks[damaged + 1].size)  # type: ignore[attr-defined]
    assert _read_all(again) == rows[before + blocks[damaged].size :]
    assert context.counted == {"numCorruptBlocksSkipped": 2}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_position_that_is_not_in_the_file_is_refused(kind: str) -> None:
    """It has no such block, or not so many records in it: to read on would lose some or repeat some."""
    output, reading = FORMATS[kind]
    files = MemoryFileSystem()
    _put(files, _content(output, [_row(n) for n in range(100)]))
    context = _Context(files)
    reader = _open(context, reading())
    reader.read(1)
    block, _, checksum = reader.position()
    size = reader.ready() + 1  # type: ignore[attr-defined]
    _open(context, reading(), (block, size, checksum))
    for position in ((block, size + 1, checksum), (files.size("/in/a"), 1, checksum)):
        with pytest.raises(StateError, match=f"says that {position[1]} records of the block {position[0]} were read"):
            _open(context, reading(), position)


def test_a_block_whose_end_or_size_is_wrong_is_told() -> None:
    """A marker that is another one, also where damage may be left out; fewer records than there are bytes for."""
    content = bytearray(_content(FORMATS["avro"][0], [_row(n) for n in range(100)]))
    file = AvroFile(io.BytesIO(content), "a")
    second = list(file.places())[1]
    whole = file.block_at(second.offset)
    assert whole is not None
    assert len(file.records(whole)) == second.size
    with pytest.raises(CorruptFileError, match="bytes after its last record"):
        file.records(whole._replace(size=second.size - 1))
    content[second.end - 1] ^= 1
    files = MemoryFileSystem()
    _put(files, bytes(content))
    for on_corrupt in ("fail", "skip"):
        with pytest.raises(CorruptFileError, match=f"block at byte {second.offset} does not end with the file's mark"):
            _read_all(_open(_Context(files), AvroInputFormat(on_corrupt=on_corrupt)))  # type: ignore[arg-type]


@pytest.mark.parametrize("reading", [AvroInputFormat, OrcInputFormat])
@pytest.mark.parametrize("content", [b"", b"n,name\n1,a\n", b"Obj\x01\x02", b"ORC" + bytes(40)])
def test_a_file_of_another_kind_is_told(reading: Any, content: bytes) -> None:
    """With its name and what it is not."""
    files = MemoryFileSystem()
    _put(files, content)
    with pytest.raises(CorruptFileError, match="/in/a: not a whole"):
        _open(_Context(files), reading())


@pytest.mark.parametrize("kind", FORMATS)
def test_an_output_that_is_torn_is_no_output(kind: str) -> None:
    """Those who look at the rows of a sink hear of the file, and not of a library."""
    output, _ = FORMATS[kind]
    content = _content(output, [_row(n) for n in range(20)])
    assert len(output.lines_of("p", content)) == 20
    with pytest.raises(StorageError, match=r"p is no whole (Avro|ORC) file"):
        output.lines_of("p", content[:-1])


def test_a_file_of_a_later_version_of_avro_is_told() -> None:
    """Though it is like one of this version in everything else."""
    content = _content(FORMATS["avro"][0], [_row(1)])
    files = MemoryFileSystem()
    _put(files, b"Obj\x02" + content[4:])
    with pytest.raises(CorruptFileError, match="it does not begin as an Avro file"):
        _open(_Context(files), AvroInputFormat())


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"n": True, "x": 0.5}, "does not fit the schema"),
        ({"n": 1 << 63, "x": 0.5}, "does not fit the schema"),
        ({"n": 1, "x": None}, "does not fit the schema"),
        ({"n": 1}, "a record has the fields n, x; this one has n"),
        ({"n": 1, "x": 0.5, "m": 2}, "a record has the fields n, x; this one has n, x, m"),
    ],
)
def test_a_record_of_another_type_than_a_schema_without_nulls_is_refused(record: Any, why: str) -> None:
    """By itself fastavro would write True as 1."""
    fields = [{"name": "n", "type": "long"}, {"name": "x", "type": "double"}]
    with pytest.raises(ValueError, match=why):
        AvroFormat({"type": "record", "name": "r", "fields": fields}).encode(record)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_record_that_does_not_fit_names_the_sink(kind: str) -> None:
    """Nothing of its batch is written."""
    output, _ = FORMATS[kind]
    files = MemoryFileSystem()
    one = Harness(FileSink("rows", format=output).create_operator(), fs=files)
    with pytest.raises(UserFunctionError, match="bulk format") as told:
        one.process([_row(1), {**_row(2), "n": "2"}])
    assert told.value.record["n"] == "2"
    assert not [path for path in files.walk_files("/out") if files.size(path)]


def test_a_column_that_is_missing_is_told_with_those_that_are_there() -> None:
    """Before a record is read."""
    for output, reading in FORMATS.values():
        files = MemoryFileSystem()
        _put(files, _content(output, [_row(1)]))
        with pytest.raises(ConfigurationError, match="there is no column 'm'; the file has n, name"):
            _open(_Context(files), reading(("m",)))


def test_schemas_that_are_none_are_refused() -> None:
    """With what they must be."""
    for schema in ({}, {"n": "no such type"}, [("n", int)], {"type": "record", "name": "r", "fields": []}):
        with pytest.raises(ConfigurationError, match="it must be an Avro schema of a record"):
            AvroFormat(schema)
    with pytest.raises(ConfigurationError, match="'null' or 'deflate'"):
        AvroFormat({"n": int}, codec="snappy")
    with pytest.raises(ConfigurationError, match="'zstd'"):
        OrcFormat({"n": int}, compression="lzo")


def test_a_damaged_file_fails_the_job_with_its_name() -> None:
    """No restart helps, and the message says what to do."""
    files = MemoryFileSystem()
    _put(files, b"Obj\x01 no more")
    job = Job("damaged")
    job.source(FileSource("/in", AvroInputFormat()), name="files").sink(CollectSink([]))
    result = Execution(job.plan(), RunConfig(), file_system=files).run()
    assert isinstance(result.error, JobFailedError)
    assert "put a good copy in its place" in str(result.error)
