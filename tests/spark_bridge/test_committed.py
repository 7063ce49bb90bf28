"""Committed output is read strictly: finished part files only, one whole object per line, exactly the columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_bridge import committed
from spark_bridge.committed import read_committed, visible_part_files
from spark_bridge.crossing import collect_canonical
from spark_bridge.errors import OracleInputError

pytestmark = pytest.mark.spark

SCHEMA = "carrier string, count bigint"


def put(root: Path, name: str, *rows: Any) -> None:
    """Writes a part file; a row is an object to be written as JSON, or a complete line."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def row(carrier: str | None, count: int) -> dict[str, Any]:
    return {"carrier": carrier, "count": count}


def test_part_files_of_all_buckets_are_read(spark: Any, tmp_path: Path) -> None:
    """Rows of every part file in every bucket are there, duplicates included."""
    put(tmp_path, "part-0-0", row("UA", 1))
    put(tmp_path, "day=2013-01-01/part-0-1.jsonl", row("AA", 2), row("AA", 2))
    put(tmp_path, "a/b/part-1-0", row(None, 3))

    assert collect_canonical(read_committed(str(tmp_path), SCHEMA)) == [
        row("AA", 2),
        row("AA", 2),
        row("UA", 1),
        row(None, 3),
    ]


def test_hidden_files_and_directories_are_not_there(spark: Any, tmp_path: Path) -> None:
    """Unfinished and internal files of a sink begin with a dot or an underscore, and are not read."""
    put(tmp_path, "part-0-0", row("UA", 1))
    put(tmp_path, ".part-0-1.inprogress.1", "torn")
    put(tmp_path, "_SUCCESS", "")
    put(tmp_path, ".staging/part-0-0", row("XX", 9))
    put(tmp_path, "day/_temporary/part-0-0", row("XX", 9))

    assert visible_part_files(str(tmp_path)) == [str(tmp_path / "part-0-0")]
    assert collect_canonical(read_committed(str(tmp_path), SCHEMA)) == [row("UA", 1)]


def test_bucket_can_be_a_column(spark: Any, tmp_path: Path) -> None:
    """The bucket of each row, relative to the root, is its last column when it is asked for."""
    put(tmp_path, "part-0-0", row("UA", 1))
    put(tmp_path, "x/day=1/part-0-0", row("UA", 1))

    rows = collect_canonical(read_committed(str(tmp_path), SCHEMA, bucket_column="bucket"))

    assert [list(found.items())[-1] for found in rows] == [("bucket", ""), ("bucket", "x/day=1")]


def test_nothing_committed_is_an_empty_answer(spark: Any, tmp_path: Path) -> None:
    """A directory without part files, and an empty part file, give no rows but the columns."""
    put(tmp_path, "part-0-0")

    frame = read_committed(str(tmp_path), SCHEMA)

    assert (frame.columns, frame.count()) == (["carrier", "count"], 0)


def test_later_commits_do_not_change_what_was_read(spark: Any, tmp_path: Path) -> None:
    """The DataFrame has the rows that were committed when it was read."""
    put(tmp_path, "part-0-0", row("UA", 1))
    frame = read_committed(str(tmp_path), SCHEMA)

    put(tmp_path, "part-0-0", row("ZZ", 9))
    put(tmp_path, "part-0-1", row("ZZ", 9))

    assert collect_canonical(frame) == [row("UA", 1)]


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
def test_chunks_lose_nothing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_rows: int) -> None:
    """Reading in chunks of any size, across files, gives every row once, each with its own bucket."""
    monkeypatch.setattr(committed, "_ROWS_PER_CHUNK", chunk_rows)
    for file in range(3):
        put(tmp_path, f"b{file}/part-0-0", *(row(f"C{file}", number) for number in range(file + 1)))

    rows = collect_canonical(read_committed(str(tmp_path), SCHEMA, bucket_column="bucket"))

    assert [(found["bucket"], found["carrier"], found["count"]) for found in rows] == [
        (f"b{file}", f"C{file}", number) for file in range(3) for number in range(file + 1)
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"carrier": "UA", "count": 1', "no line end"),
        ('{"carrier": "UA", "count": 1}', "no line end"),
        ('{"carrier": "UA", "cou\n', "not one JSON object"),
        ('{"carrier": "UA", "count": 1}{"carrier": "UA", "count": 1}\n', "not one JSON object"),
        ('{"carrier": "UA", "count": 1}garbage\n', "not one JSON object"),
        ("\n", "not one JSON object"),
        ("[1]\n", "not a JSON object"),
        ('{"carrier": "UA"}\n', r"missing \['count'\]"),
        ('{"carrier": "UA", "count": 1, "more": 0}\n', r"unknown \['more'\]"),
        ('{"carrier": "UA", "count": "1"}\n', "column 'count': '1' of type str"),
        ('{"carrier": "UA", "count": 1.0}\n', "column 'count': 1.0 of type float"),
        ('{"carrier": "UA", "count": true}\n', "column 'count': True of type bool"),
    ],
)
def test_a_damaged_line_is_named(spark: Any, tmp_path: Path, line: str, problem: str) -> None:
    """A torn, doubled, partial or foreign line is an error with file and line, never a row or a null."""
    put(tmp_path, "a/part-0-0", row("AA", 1))
    put(tmp_path, "b/part-0-0", row("AA", 1), row("AA", 2), line)

    with pytest.raises(OracleInputError, match=problem) as caught:
        read_committed(str(tmp_path), SCHEMA)

    assert str(caught.value).startswith(f"{tmp_path}/b/part-0-0:3: ")


def test_a_visible_foreign_file_is_refused(spark: Any, tmp_path: Path) -> None:
    """A file that other readers would take for data, and that is no part file, is an error of the sink."""
    put(tmp_path, "part-0-0", row("UA", 1))
    put(tmp_path, "b/data.json", row("UA", 1))

    with pytest.raises(OracleInputError, match=r"b/data.json is visible"):
        visible_part_files(str(tmp_path))


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    """A job that committed nothing has no directory, and the error says so."""
    with pytest.raises(OracleInputError, match="committed anything yet"):
        visible_part_files(str(tmp_path / "nowhere"))


def test_bucket_column_must_be_free(spark: Any, tmp_path: Path) -> None:
    """A bucket column that would hide a field of the rows is refused."""
    with pytest.raises(OracleInputError, match="another name"):
        read_committed(str(tmp_path), SCHEMA, bucket_column="count")
