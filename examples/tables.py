"""Tables by options, in a directory that is deleted in the end::

    python -m examples.tables

1. Each format, with all types that it holds: generated rows are written, read back and compared.
2. A value of each simple type as a partition: its directory.
3. Malformed lines are left out and counted; signs of CSV, times in JSON, and files chosen by their paths.
4. A partition is committed: a success file, an entry in a metastore, and a policy of one's own.
5. Two topics of a log, and a second run into it.
6. Options that do not exist.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine import CollectionSource, ConfigurationError, Job, JobFailedError, table_sink, table_source

TYPES = {
    "tiny": "TINYINT", "small": "SMALLINT", "id": "INT", "big": "BIGINT", "share": "FLOAT", "x": "DOUBLE",
    "price": "DECIMAL(38, 18)", "ok": "BOOLEAN", "name": "STRING", "data": "BYTES", "day": "DATE", "time": "TIME(3)",
    "at": "TIMESTAMP(3)", "seen": "TIMESTAMP_LTZ", "tags": "ARRAY<INT>", "prices": "MAP<STRING, DECIMAL(9, 2)>",
    "place": "ROW<x DOUBLE, days ARRAY<DATE>>",
}  # fmt: skip
SCHEMAS = {
    "csv": TYPES, "json": TYPES, "parquet": TYPES, "avro": TYPES,
    "orc": {name: kind for name, kind in TYPES.items() if name != "time"}, "text": {"name": "STRING"},
    "raw": {"big": "BIGINT"},
}  # fmt: skip
AT = datetime(2013, 1, 31, 5, 17, 0, 1000)
VALUES: Mapping[str, Any] = {
    "TINYINT": -5, "DOUBLE": 0.5, "DECIMAL(6, 2)": Decimal("1.5"), "BOOLEAN": True, "STRING": "a/b=c",
    "DATE": AT.date(), "TIME(3)": AT.time(), "TIMESTAMP(3)": AT, "TIMESTAMP_LTZ": AT.replace(tzinfo=UTC),
}  # fmt: skip


class Announces:
    """A policy of one's own, made by its name with the texts that it is called with."""

    kind = "custom"

    def __init__(self, greeting: str, mark: str) -> None:
        self.greeting, self.mark = greeting, mark

    def open(self, path_of: Any, columns: Any) -> Announces:
        return self

    def commit(self, context: Any) -> bool:
        print(f"   {self.greeting} {context.partition}{self.mark}")
        return True


class Tables:
    """Jobs that write and read tables below ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def options(self, name: str, format: str = "json", **more: Any) -> dict[str, Any]:
        return {"connector": "filesystem", "path": str(self.directory / name), "format": format, **more}

    def write(self, rows: Any, options: Mapping[str, Any], schema: Mapping[str, str]) -> None:
        job = Job("write")
        source = CollectionSource(rows) if isinstance(rows, list) else rows
        job.source(source, name="rows").sink(table_sink(options, schema), name="table")
        job.run(output_dir=str(self.directory))

    def read(self, options: Mapping[str, Any], schema: Mapping[str, str]) -> tuple[list[Any], dict[str, int]]:
        """The rows, and what the source has counted."""
        rows: list[Any] = []
        job = Job("read")
        job.source(table_source(options, schema), name="table", uid="table").collect(rows)
        return rows, dict(job.run().execution.counters["table", 0])


def formats(tables: Tables) -> Iterator[str]:
    for format, schema in SCHEMAS.items():
        generated: dict[str, Any] = {"connector": "datagen", "number-of-rows": 200}
        for name in schema:
            generated |= {f"fields.{name}.length": 3, f"fields.{name}.null-rate": 10 if len(schema) > 1 else 0}
        options = tables.options(format, format)
        tables.write(table_source(generated, schema), options, schema)
        found, _ = tables.read(options, schema)
        tables.write(table_source(options, schema), {"connector": "blackhole"}, schema)
        same = found == tables.read(generated, schema)[0]
        yield f"{format:8}{len(found)} rows, columns: {len(schema)}, {'as written' if same else 'CHANGED'}"


def partitions(tables: Tables) -> Iterator[str]:
    for kind, value in VALUES.items():
        schema = {"n": "INT", "p": kind}
        options = tables.options(kind) | {"partition.keys": "p"}
        tables.write([{"n": 1, "p": value}, {"n": 2, "p": None}], options, schema)
        found = sorted(tables.read(options, schema)[0], key=lambda row: row["n"])
        names = sorted(path.parent.name for path in (tables.directory / kind).rglob("part*"))
        same = [row["p"] for row in found] == [value, None]
        yield f"{kind:14} {', '.join(names)}: {'as written' if same else 'CHANGED'}"


def lines(tables: Tables) -> Iterator[str]:
    for format, text in (("csv", "1\nx\n300\n"), ("json", '{"n":1}\n{"n":"1"}\n{\n')):
        place = tables.directory / f"bad-{format}"
        place.mkdir()
        (place / "a").write_text(text)
        options = tables.options(place.name, format) | {f"{format}.ignore-parse-errors": "true"}
        yield f"{format} {tables.read(options, {'n': 'TINYINT'})}"
    signs = {"csv.quote-character": "'", "csv.field-delimiter": ";", "csv.null-literal": "NULL"}
    tables.write([{"a": "b;c", "n": None}], tables.options("signs", "csv") | signs, {"a": "STRING", "n": "INT"})
    for standard in ("SQL", "ISO-8601"):
        options = tables.options(f"times/{standard}") | {"json.timestamp-format.standard": standard}
        tables.write([{"at": AT}], options, {"at": "TIMESTAMP(3)"})
    for path in (*tables.directory.glob("signs/part*"), *sorted(tables.directory.glob("times/*/part*"))):
        yield f"{path.relative_to(tables.directory)}: {path.read_text().rstrip()}"
    chosen = tables.options("times") | {"source.path.regex-pattern": ".*/SQL/.*"}
    yield f"of times, .*/SQL/.* alone: {tables.read(chosen, {'at': 'TIMESTAMP(3)'})[0]}"


def commits(tables: Tables) -> Iterator[str]:
    options = tables.options("clicks", "orc") | {
        "partition.keys": "day", "sink.partition-commit.policy.kind": "success-file,metastore,custom",
        "sink.partition-commit.policy.class": f"{__name__}:Announces",
        "sink.partition-commit.policy.class.parameters": "committed:;!", "metastore.table": "clicks",
        "sink.shuffle-by-partition.enable": "true", "sink.parallelism": 2, "auto-compaction": "true",
        "compaction.parallelism": 1,
    }  # fmt: skip
    tables.write([{"n": n, "day": date(2013, 1, 31)} for n in range(10)], options, {"n": "INT", "day": "DATE"})
    yield from sorted(str(path.relative_to(tables.directory)) for path in tables.directory.glob("clicks/*/*"))
    with sqlite3.connect(tables.directory / "metastore.sqlite") as connection:
        yield f'metastore: {connection.execute("""SELECT "table", spec FROM partitions""").fetchall()}'


def log(tables: Tables) -> Iterator[str]:
    schema, options = {"n": "INT"}, {"connector": "log", "path": str(tables.directory / "log")}
    for existing in ("fail", "fail", "append"):
        job = Job("two topics")
        rows = job.source(CollectionSource([{"n": n} for n in range(6)]), name="rows")
        for topic in ("a", "b"):
            more = {"topic": topic, "partitions": 2, "sink.existing": existing}
            rows.sink(table_sink(options | more, schema), name=topic)
        try:
            job.run(output_dir=str(tables.directory))
        except JobFailedError as error:
            yield f"refused: {str(error).partition('sink ')[2].partition(', such')[0]}"
        bounded = options | {"scan.bounded.mode": "latest-offset"}
        counts = {topic: len(tables.read(bounded | {"topic": topic}, schema)[0]) for topic in ("a", "b")}
        yield f"sink.existing = {existing}: rows of topics {counts}"


def misspelt(tables: Tables) -> Iterator[str]:
    wrong = {"sink.paralelism": 2, "compaction.paralelism": 2}
    try:
        table_sink(tables.options("t") | wrong, {"n": "INT"})
    except ConfigurationError as error:
        yield from map(str.strip, str(error).splitlines())


def main() -> None:
    """Print all of it."""
    with TemporaryDirectory() as name:
        for number, part in enumerate((formats, partitions, lines, commits, log, misspelt), 1):
            print(f"{number}. {part.__name__}")
            for line in part(Tables(Path(name))):
                print(f"   {line}")


if __name__ == "__main__":
    main()
