"""The example from end to end: every sink, two deaths, and the books of its reader."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from engine.observe.trace_events import CheckpointCompleted, RunStarted, Send
from examples import end_to_end
from examples.end_to_end_sinks import SINKS, TABLES, Row
from tests.postgres_server import running_server

RIGHT = {"expected": end_to_end.RECORDS, "found": end_to_end.RECORDS, "twice": 0, "early": 0, "gone": 0, "wrong": 0}
WITHOUT_SERVER = [name for name, outlet in SINKS.items() if not outlet.needs_dsn]
PROMISES_LESS = (*TABLES, "log-at-least-once")
NEEDS = {"parquet": "pyarrow"}


@pytest.mark.parametrize("name", [name for name in WITHOUT_SERVER if name not in PROMISES_LESS])
def test_a_reader_sees_every_row_once_and_none_too_early(name: str, tmp_path: Path) -> None:
    """Two deaths on the way, and nothing is lost, doubled, early, gone or wrong; both deaths did happen."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    reader = end_to_end.watched(name, str(tmp_path))

    assert reader.books() == RIGHT
    assert sum("dies" in note for note in reader.notes) == 2


def test_a_table_of_last_rows_is_right_in_the_end(tmp_path: Path) -> None:
    """One row per key, never an older one again; readers see rows before their checkpoint, as the page says."""
    books = end_to_end.watched("upsert", str(tmp_path)).books()

    assert books["early"] > 0
    assert books == {**RIGHT, "expected": 4, "found": 4, "early": books["early"]}


def test_the_books_find_what_a_weaker_sink_does(tmp_path: Path) -> None:
    """Records that are sent at once are early, and after a death there twice; none is lost."""
    books = end_to_end.watched("log-at-least-once", str(tmp_path)).books()

    assert books["twice"] > 0
    assert books["early"] > 0
    assert books == {**RIGHT, "twice": books["twice"], "early": books["early"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["postgres", "postgres-upsert"])
def test_the_same_with_a_server(name: str, tmp_path: Path) -> None:
    """A real PostgreSQL server, and a reader with a connection of its own."""
    pytest.importorskip("psycopg")
    with running_server(fsync=False) as server:
        server.execute("CREATE DATABASE shop")
        books = end_to_end.watched(name, str(tmp_path), server.dsn("shop")).books()

    assert (books["expected"], books["twice"], books["gone"], books["wrong"]) == (books["found"], 0, 0, 0)
    assert (books["early"] > 0) == (name in TABLES)


class Views:
    """A target of which a reader sees one view after the other."""

    def __init__(self, *views: list[Row]) -> None:
        self._views = list(views)

    def rows(self) -> list[Row]:
        """The next view; the last one for ever."""
        return self._views.pop(0) if len(self._views) > 1 else self._views[0]


def _books_of(*views: list[Row], keeps_last: bool = False) -> dict[str, int]:
    target: Any = Views(*views)
    reader = end_to_end.Reader(target, keeps_last, frozenset([0]))
    for _ in views[1:]:
        reader(RunStarted(0, "job", "", "aligned", "0", 1))
    return dict(reader.books())


def test_each_kind_of_mistake_is_booked() -> None:
    """Rows that are lost, doubled, early, gone and wrong are counted as such."""
    rows = end_to_end.rows_by_number()
    found = _books_of([], [rows[0], rows[1], rows[1]], [rows[0], Row(-1, "a", 1)], [rows[0], Row(-1, "a", 1)])

    assert found == {"expected": 240, "found": 1, "twice": 1, "early": 2, "gone": 1, "wrong": 1}


def test_an_older_row_of_a_key_is_booked() -> None:
    """A table of last rows may replace a row by a newer one, and never by an older one."""
    rows = end_to_end.rows_by_number()

    assert _books_of([rows[0]], [rows[4]], [rows[4]], keeps_last=True)["gone"] == 0
    assert _books_of([rows[4]], [rows[0]], [rows[0]], keeps_last=True)["gone"] == 1


def test_a_row_is_covered_by_the_checkpoint_whose_barrier_came_behind_it() -> None:
    """Three records, a barrier, one more: after the checkpoint three rows may be seen, and the fourth is early."""
    rows = end_to_end.rows_by_number()
    target: Any = Views(rows[:3], rows[:4])
    reader = end_to_end.Reader(target, False, frozenset([0]))
    reader(Send(0, 1, 0, 0, "records", 3, None, 3))
    reader(Send(0, 1, 0, 1, "CheckpointBarrier", 0, 1, 3))
    reader(Send(0, 1, 0, 2, "records", 1, None, 1))
    reader(Send(0, 1, 7, 0, "records", 9, None, 1))
    reader(CheckpointCompleted(0, 1, 1, 0))

    assert reader.early == set()
    reader(CheckpointCompleted(0, 1, 1, 0))
    assert reader.early == {rows[3]}


def test_rows_are_those_of_a_plain_loop() -> None:
    """The expected rows number the records of each key from 1."""
    seen: Counter[str] = Counter()
    for row in end_to_end.rows_by_number():
        seen[row.key] += 1
        assert row.seen == seen[row.key]


def test_a_server_is_asked_for(tmp_path: Path) -> None:
    """A sink into PostgreSQL without a dsn, and a sink that does not exist, are refused with what to do."""
    with pytest.raises(ConfigurationError, match="--dsn"):
        end_to_end.watched("postgres", str(tmp_path))
    with pytest.raises(ConfigurationError, match="there are files, files-kept-open"):
        end_to_end.watched("tape", str(tmp_path))


def test_what_the_reader_saw_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for the sink, and the moments: half of a checkpoint's rows are there when a writer dies, then the rest."""
    end_to_end.main(["--sink", "files"])
    out = capsys.readouterr().out

    assert "files                       240      240        0        0        0        0\n" in out
    assert (
        "10,180 us  table[0] dies\n"
        "10,180 us      a reader sees 140 rows\n"
        "20,180 us  attempt 3 starts from checkpoint 4\n"
        "20,180 us      a reader sees 160 rows\n"
    ) in out
