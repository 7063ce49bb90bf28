"""``weir.trace``: the events of a run as a DataFrame, one row for each.

The columns are the fields of all kinds of events (:mod:`engine.observe.trace_events`), null where an event has no such
field; ``position``, the byte at which its line begins, gives their order. Tasks read ranges of bytes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from engine.observe.trace_events import TRACE_VERSION, TraceEvent
from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.run_tables import file_of_run
from spark_bridge.registered.source_options import PARTITION_BYTES, SourceOptions, file_system_of
from spark_bridge.registered.typed_columns import ROWS_PER_BATCH, Columns
from state_backends.files import FileSystem

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "weir.trace"

_CUT = ("channel", "sent", "received")
_TYPES: dict[Any, str] = {
    int: "bigint",
    int | None: "bigint",
    str: "string",
    str | None: "string",
    tuple[tuple[int, int, int], ...]: f"array<struct<{', '.join(f'{name}: bigint' for name in _CUT)}>>",
}
_FIELDS = {
    name: _TYPES[hint] for event in get_args(TraceEvent) for name, hint in get_type_hints(event).items()
}
"""Of all events together: a name has one type."""

TRACE_SCHEMA = ", ".join(
    ["position bigint not null", "event string not null", *(f"{name} {kind}" for name, kind in _FIELDS.items())]
)

_MORE_BYTES = 1 << 16


class TraceTable(DataSource):
    """Options: ``path``, a trace, or the directory of a run or of its storage; ``partition_bytes``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        chosen = SourceOptions(FORMAT, options, ["path"], ["partition_bytes"])
        file_system, path = chosen.place()
        self._path = file_of_run(FORMAT, file_system, path, "trace.jsonl")
        self._partition_bytes = chosen.count("partition_bytes", PARTITION_BYTES)
        _check_version(file_system, self._path)

    def schema(self) -> str:
        return TRACE_SCHEMA

    def reader(self, schema: StructType) -> TraceTableReader:
        return TraceTableReader(self._path, self._partition_bytes, Columns(FORMAT, TRACE_SCHEMA, [], schema))


class TraceTableReader(DataSourceReader):
    """Reads one trace, as long as it is when the query starts."""

    def __init__(self, path: str, partition_bytes: int, columns: Columns) -> None:
        self._path, self._partition_bytes, self._columns = path, partition_bytes, columns

    def partitions(self) -> Sequence[InputPartition]:
        file_system, path = file_system_of(self._path)
        size = file_system.size(path)
        starts = range(0, size, self._partition_bytes)
        return [InputPartition((start, min(start + self._partition_bytes, size))) for start in starts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        lines = _lines(*file_system_of(self._path), *partition.value)
        while chunk := list(itertools.islice(lines, ROWS_PER_BATCH)):
            yield self._batch([self._event(*one) for one in chunk])

    def _batch(self, events: Sequence[Mapping[str, Any]]) -> Any:
        place = f"{self._path}: the line at byte"
        return self._columns.batch(
            lambda name: [one.get(name) for one in events], lambda number: f"{place} {events[number]['position']}"
        )

    def _event(self, position: int, line: bytes) -> dict[str, Any]:
        try:
            event: dict[str, Any] = json.loads(line)
            differences = event.get("differences")
            if differences is not None:
                event["differences"] = [dict(zip(_CUT, one, strict=True)) for one in differences]
            return {**event, "position": position}
        except (ValueError, TypeError, AttributeError) as error:
            where = f"{FORMAT}: {self._path}: the line at byte {position}"
            raise SparkBridgeError(f"{where} is damaged ({error})") from None


def _check_version(file_system: FileSystem, path: str) -> None:
    with file_system.open_read(path) as file:
        first = file.readline(_MORE_BYTES)
    try:
        version = json.loads(first)["trace_version"]
    except (ValueError, LookupError, TypeError):
        raise SparkBridgeError(
            f"{FORMAT}: {path}: is no trace of Weir\n  fix: name a file that weir run --trace has written"
        ) from None
    if version != TRACE_VERSION:
        raise SparkBridgeError(
            f"{FORMAT}: {path}: is a trace of version {version}, and this Weir reads {TRACE_VERSION}\n"
            "  fix: make the run again with this Weir"
        )


def _lines(file_system: FileSystem, path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines, but the first of the file, that begin from ``start`` to before ``end``, with their positions. A last
    line without its end is left out: the run was killed while it wrote, or still writes."""
    with closing(file_system.open_random(path)) as file:
        # One byte more: whether a line begins at the start, the byte before it tells.
        position = max(0, start - 1)
        content = file.read_at(position, end - position)
        while not content.endswith(b"\n") and position + len(content) < file.size:
            more = file.read_at(position + len(content), _MORE_BYTES)
            line_end = more.find(b"\n") + 1
            content += more[:line_end] if line_end else more
    first = content.find(b"\n") + 1
    if first == 0:
        return
    position += first
    for line in content[first:].splitlines(keepends=True):
        if position >= end or not line.endswith(b"\n"):
            return
        yield position, line
        position += len(line)
