"""``DataFrameSink``: rows become Parquet files or a Delta table, with the types of a DataFrame's schema.

Each subtask writes the rows of a checkpoint to one Parquet file in the directory of the table, before the checkpoint
completes; a Delta table does not show files that its log does not name. Then one commit adds the file under the
application transaction (writer and subtask, checkpoint id). So a driver, executors, and other writers of the table see
what a subtask wrote in a checkpoint whole or not at all, and once.
"""

from __future__ import annotations

import io
import posixpath
import re
import zlib
from copy import copy
from typing import Any, cast

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, OutputAheadError
from engine.elements.operator import Operator
from operators.files.sinks import FileSink
from operators.files.writing import RecordError
from spark_bridge.sinks.batch_sink import BatchSinkOperator
from spark_bridge.sinks.ddl import schema_of
from spark_bridge.sinks.delta_log import (
    DeltaFile,
    DeltaLakeLog,
    DeltaLog,
    MemoryDeltaLog,
    OpenDeltaLog,
    import_deltalake,
)
from spark_bridge.sinks.strict_parquet import StrictParquetFormat
from state_backends.files import write_atomically

FORMATS = ("parquet", "delta")


class DataFrameSink:
    """Describes a sink into files that Spark reads as a DataFrame.

    ``path``     the directory, relative to the output directory of the run;
    ``schema``   a DDL string, or a ``pyarrow.Schema``. Records are dicts, tuples or lists, or batches of columns; a
                 value that its column cannot hold exactly fails the job and names record and column;
    ``format``   ``"parquet"``: files that appear whole, as of a ``FileSink``; ``"delta"``: a Delta table (extra
                 ``delta``), which is created at the first commit;
    ``writer``   of a Delta table: distinguishes this sink from others on the table, by default the operator's uid;
    ``log``      of a Delta table: another log than that of the package ``deltalake``, such as ``MemoryDeltaLog()``.
    """

    name = "data-frame-sink"

    def __init__(
        self,
        path: str,
        schema: object,
        *,
        format: str = "parquet",
        writer: str | None = None,
        log: DeltaLog | None = None,
    ) -> None:
        if format not in FORMATS:
            raise ConfigurationError(f"format is {format!r}; it must be 'parquet' or 'delta'")
        if type(path) is not str or not path:
            raise ConfigurationError(f"path is {path!r}; it must name a directory")
        if format == "parquet" and (writer is not None or log is not None):
            raise ConfigurationError("writer= and log= belong to format='delta'; leave them out")
        rows = StrictParquetFormat(schema_of(schema))
        self.sink: Any
        if format == "parquet":
            self.sink = FileSink(path, format=rows, suffix=".parquet")
        elif isinstance(log, MemoryDeltaLog):
            self.sink = MemoryDeltaSink(path, rows, writer, log)
        else:
            if log is None:
                import_deltalake()
            self.sink = DeltaSink(path, rows, writer, DeltaLakeLog() if log is None else log)

    def add_to(self, stream: Any, options: Any) -> None:
        """End ``stream`` in the operators of this sink."""
        stream.sink(self.sink, **options)


class DeltaSink:
    """The sink into a Delta table; see :class:`DataFrameSink`."""

    name = "delta-sink"
    delivery = "exactly-once"

    def __init__(self, path: str, format: StrictParquetFormat, writer: str | None, log: DeltaLog) -> None:
        self.path, self.format, self.writer, self.log = path, format, writer, log

    def create_operator(self) -> Operator:
        return BatchSinkOperator(lambda: _DeltaTarget(self))


class MemoryDeltaSink(DeltaSink):
    """The same with the model of a log, for searches."""

    log: MemoryDeltaLog

    def create_operator(self) -> Operator:
        made = super().create_operator()
        made.one_process = "keeps the log of its table in the memory of one process: leave log= out"
        return made

    def fresh(self) -> MemoryDeltaSink:
        """A copy with an empty log."""
        other = copy(self)
        other.log = MemoryDeltaLog()
        return other

    def committed_rows(self) -> list[str]:
        """The rows of all files that the log names, as JSON."""
        if self.log.place is None:
            return []
        file_system, directory = self.log.place
        paths = [posixpath.join(directory, name) for name in sorted(self.log.files)]
        return [line for path in paths for line in self.format.lines_of(path, file_system.read_bytes(path))]

    def text_of(self, record: Any) -> str:
        """The text of a record in ``committed_rows()``."""
        return self.format.encode(record)

    def fingerprint(self) -> object:
        return self.log.fingerprint()


class _DeltaTarget:
    def __init__(self, sink: DeltaSink) -> None:
        self._sink = sink
        self._rows: list[Any] = []
        """Arrow batches."""

    def open(self, operator: Operator) -> None:
        self._operator, context = operator, operator.context
        self._directory = context.resolve_path(self._sink.path)
        self._writer = context.uid if self._sink.writer is None else self._sink.writer
        self._log: OpenDeltaLog = self._sink.log.open(context.file_system(), self._directory, self._sink.format.schema)

    def _application(self, subtask: int) -> str:
        return f"weir/{self._writer}/{subtask}"

    def check_start(self, restored_id: int | None) -> None:
        context = self._operator.context
        # Subtasks that are no more are looked after by those that have their number modulo the parallelism. How many
        # there were is not known, and one may have committed nothing.
        mine = range(context.subtask, context.max_parallelism, context.parallelism)
        version = self._log.version(*map(self._application, mine))
        if version is not None and (restored_id is None or version > restored_id):
            start = "nothing" if restored_id is None else f"checkpoint {restored_id}"
            there = f"checkpoint {version}" if version else "the end of a run without checkpoints"
            resume = f"resume from checkpoint {version} or a newer one; or " if version else ""
            raise OutputAheadError(
                f"sink {context.name!r} starts from {start}, but {there} of {self._writer!r} is in the Delta table"
                f" {self._directory} already: its rows would appear twice\n"
                f"  fix: {resume}restore the table to an older version; or set another writer=, to add rows beside"
                " those"
            )

    def take(self, batch: Batch) -> None:
        try:
            self._rows.append(self._sink.format.encode_batch(batch))
        except RecordError as error:
            raise self._operator.user_error("schema", error.record, error.cause) from error.cause

    def stage(self, checkpoint_id: int) -> Any:
        rows, self._rows = self._rows, []
        count = sum(map(len, rows))
        if not count:
            return None
        context = self._operator.context
        content = io.BytesIO()
        writer = self._sink.format.open_writer(lambda data: cast(None, content.write(data)))
        for one in rows:
            at = 0
            while at < len(one):
                at = writer.add(one, at, len(one))
        writer.finish()
        # Names hold the attempt, so none is ever used again: what a dead attempt has written stays unnamed in the log.
        of_writer = f"{re.sub('[^A-Za-z0-9_-]', '-', self._writer)[:40]}-{zlib.crc32(self._writer.encode()):08x}"
        place = f"{context.subtask}-{checkpoint_id}-{context.incarnation}-{context.attempt}"
        name = f"part-{of_writer}-{place}.snappy.parquet"
        context.file_system().make_dirs(self._directory)
        write_atomically(context.file_system(), posixpath.join(self._directory, name), content.getvalue())
        return [name, len(content.getvalue()), count]

    def commit(self, subtask: int, checkpoint_id: int, staged: Any) -> None:
        self._log.append(self._application(subtask), checkpoint_id, [DeltaFile(*staged)])

    def fingerprint(self) -> object:
        return [one.to_pylist() for one in self._rows]
