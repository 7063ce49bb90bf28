"""Sinks: the rows that readers must see of a sink's records, in the form of ``World.committed()``.

Rules (docs/sources-and-sinks.md, docs/file-sink.md, docs/partition-commit.md, docs/database-sinks.md): every record
appears once. A file sink has one sorted list of lines per bucket; a table has one row per record; an upsert sink has
the last written row of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.elements.batch import Batch
from engine.explore.opinion.elements import EvaluatedStep, NotModelled, Pass, Record, Spec, is_a

Rows = dict[str, list[str]]
"""By bucket, ``""`` for a sink without buckets."""


class SinkRows(EvaluatedStep):
    """Base: keeps all records."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.rows: list[tuple[str, Any]] = []

    def on_record(self, record: Record, which: int) -> None:
        for bucket, row in self.rows_of(record):
            self.rows.append((bucket, row))

    def rows_of(self, record: Record) -> list[tuple[str, Any]]:
        """The rows that a record adds: bucket and text."""
        return [("", repr(record.value))]

    def text_of(self, value: Any) -> str:
        ((row,),) = self.seen(self.rows_of(Record(value))).values()
        return row

    def seen(self, rows: Sequence[tuple[str, Any]]) -> Rows:
        """The rows of all subtasks as readers see them."""
        found: Rows = {}
        for bucket, row in rows:
            found.setdefault(bucket, []).append(row)
        return found


class _BucketContext(NamedTuple):
    watermark_ms: int
    timestamp_ms: int | None

    @property
    def processing_time_ms(self) -> int:
        raise NotModelled("its buckets go by the virtual clock, which depends on costs and schedules")


class Files(SinkRows):
    """A file sink: its assigner names the bucket, its format writes the line, and reads it again."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        sink: Any = spec.owner
        self._format: Any = sink.format
        self._line_end = getattr(self._format, "line_end", "\n")
        if not self._line_end:
            raise NotModelled("its records have no line ends, so that how they are cut into rows depends on the files")
        self._assigner: Any = getattr(sink, "bucket_assigner", None) or getattr(sink, "assigner", None)

    def rows_of(self, record: Record) -> list[tuple[str, Any]]:
        bucket = self._assigner.bucket_of(record.value, _BucketContext(self.watermark_ms, record.stamp))
        return [(bucket, record)]

    def seen(self, rows: Sequence[tuple[str, Any]]) -> Rows:
        return {bucket: sorted(self._lines(records)) for bucket, records in super().seen(rows).items()}

    def _lines(self, records: Sequence[Any]) -> list[str]:
        if not getattr(self._format, "is_bulk", False):
            return [self._format.encode(record.value) for record in records]
        written: list[bytes] = []
        batch = Batch([record.value for record in records], [record.stamp or 0 for record in records])
        rows, writer, at = self._format.encode_batch(batch), self._format.open_writer(written.append), 0
        while at < len(records):
            at = writer.add(rows, at, len(records))
        writer.finish()
        lines: list[str] = self._format.lines_of("rows", b"".join(written))
        return lines


class TableRows(Files):
    """Files in partitions: the columns that name the partition are in the path, and in the rows only if asked for."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        sink: Any = spec.owner
        self._assigner, self._gone = sink.create_assigner(), () if sink.keeps_columns else tuple(sink.columns)

    def rows_of(self, record: Record) -> list[tuple[str, Any]]:
        ((bucket, _),) = super().rows_of(record)
        value = {name: one for name, one in record.value.items() if name not in self._gone}
        return [(bucket, record._replace(value=value))]


class Staged(Files):
    """The same for a table that is written as a whole: its writers send the records to the step that shows them."""

    def __init__(self, spec: Spec) -> None:
        spec.owner = spec.owner.sink
        super().__init__(spec)
        self._columns: Any = spec.owner.partition_columns()

    def rows_of(self, record: Record) -> list[tuple[str, Any]]:
        (bucket,), (value,) = self._columns.split([record.value])
        return [(bucket, record._replace(value=value))]


class StagingPass(Pass, SinkRows):
    """Passes its records on to the step that shows them."""


class DatabaseTable(SinkRows):
    """A table of a database."""

    def rows_of(self, record: Record) -> list[tuple[str, Any]]:
        return [("", self.spec.owner.text_of(record.value))]


class Upserts(SinkRows):
    """One row per key: the last one, or the one with the greatest version; a record may delete it."""

    def rows_of(self, record: Record) -> list[tuple[str, Any]]:
        return [("", record.value)]

    def seen(self, rows: Sequence[tuple[str, Any]]) -> Rows:
        sink: Any = self.spec.owner
        names = tuple(sink.columns)
        kept: dict[Any, tuple[Any, bool]] = {}
        for _, value in rows:
            if sink.row is not None:
                row = tuple(sink.row(value))
            else:
                row = tuple(value[name] for name in names) if isinstance(value, dict) else tuple(value)
            key = tuple(row[names.index(name)] for name in sink.key_columns)
            version = None if sink.version is None else names.index(sink.version)
            if version is None or key not in kept or row[version] >= kept[key][0][version]:
                kept[key] = row, sink.delete is not None and bool(sink.delete(value))
        return {"": sorted(repr(row) for row, deleted in kept.values() if not deleted)}


_KINDS: tuple[tuple[str, type[SinkRows]], ...] = (
    ("operators.basic.simple_sinks.CollectSink", SinkRows),
    ("operators.log.connectors.log_sink.LogSink", SinkRows),
    ("operators.databases.upsert_sink.UpsertSink", Upserts),
    ("operators.databases.table_sink.TableSink", DatabaseTable),
    ("operators.table.partitions.partitioned_file_sink.WriterSpec", TableRows),
    ("operators.table.staging.staged_sink.StagingWriters", StagingPass),
    ("operators.table.staging.staged_sink.StagingFinalizer", Staged),
    ("operators.files.sinks.file_sink.FileSink", Files),
    ("operators.files.bucketing.sink.BucketingSink", Files),
)


def sink_of(spec: Spec) -> SinkRows:
    """The step for a sink. Raises :class:`NotModelled` for an unknown kind."""
    for name, kind in _KINDS:
        if is_a(spec.owner, name):
            return kind(spec)
    raise NotModelled(f"what readers see of a {type(spec.owner).__name__} is known to its own code only")


def rows_of(sinks: Sequence[SinkRows]) -> Rows:
    """The rows of a sink as readers see them, all its subtasks together."""
    return sinks[0].seen([row for sink in sinks for row in sink.rows])
