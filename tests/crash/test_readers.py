"""What a reader may see; every wrong view is reported: rows that are lost, early, there twice, or gone again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.jobs.sinks_job import HOURS, KEYS, SPLITS, Row, expected_rows, row_of
from tests.crash.poller import Poller
from tests.crash.readers import OLD_ROWS, UnreachableError, View, Watch, files_reader, partitions_reader, watch_for

RECORDS = SPLITS * KEYS * HOURS
ROWS = expected_rows(RECORDS)
OF_KEY = [row for row in ROWS if row.key == 3]


def test_the_rows_of_the_job_are_what_a_loop_gives() -> None:
    """Keys belong to one split, are counted from 1 on, and every hour has rows of every split."""
    seen: dict[int, int] = {}
    for number in range(RECORDS):
        row = row_of(number, RECORDS)
        seen[row.key] = seen.get(row.key, 0) + 1
        assert row.seen == seen[row.key]
        assert (row.key >= KEYS) == (number >= RECORDS // 2)
    assert {row.hour for row in ROWS} == {f"{hour:02d}" for hour in range(HOURS)}


@pytest.mark.parametrize(
    ("first", "then", "problem"),
    [
        pytest.param(ROWS[:3], ROWS[:5], None, id="more rows"),
        pytest.param(ROWS[:3], [*ROWS[:3], ROWS[1]], "1 rows are there twice", id="twice"),
        pytest.param([], [Row(0, 0, 2, "00")], "1 rows are none of the job's", id="state applied twice"),
        pytest.param(ROWS[:3], ROWS[1:5], "1 rows have been seen and are gone", id="gone again"),
    ],
)
def test_wrong_views_of_an_appending_sink(first: list[Row], then: list[Row], problem: str | None) -> None:
    """Rows may only be added, each once."""
    watch = Watch(ROWS)
    assert watch.problem(View(first)) is None
    found = watch.problem(View(then))

    assert (found or "").startswith(problem or "")
    assert (found is None) == (problem is None)


def test_a_sink_of_transactions_shows_no_row_before_an_older_one_of_its_key() -> None:
    """Files may, for they become visible one by one; a table may not."""
    table, files = watch_for("sqlite", ROWS), watch_for("rows", ROWS)
    assert table.problem(View(OF_KEY[:2])) is None

    assert files.problem(View(OF_KEY[1:2])) is None
    assert "is missing, but a later row of its key" in (table.problem(View([*OF_KEY[:2], OF_KEY[3]])) or "")


def test_rows_that_no_checkpoint_covers_are_early() -> None:
    """They would come again."""
    watch = Watch(ROWS)
    watch.problem(View(OF_KEY[:2]))

    assert watch.problem_of_early_rows({3: 2}) is None
    assert "1 rows are there that no completed checkpoint covers" in (watch.problem_of_early_rows({3: 1}) or "")
    assert "2 rows are there" in (watch.problem_of_early_rows({}) or "")


def test_a_complete_partition_is_complete() -> None:
    """A reader may read a partition as soon as it is reported as complete."""
    watch = Watch(ROWS)
    hour = [row for row in ROWS if row.hour == "02"]

    assert watch.problem(View(hour, frozenset(["02"]))) is None
    assert watch.problem(View([*hour, ROWS[0]], frozenset(["00"]))) is not None


def test_one_row_per_key_only_grows() -> None:
    """A row may give way to a newer one of its key, and to no older one."""
    watch = watch_for("sqlite-upsert", ROWS)
    assert watch.problem(View([OF_KEY[0]])) is None
    assert watch.problem(View([OF_KEY[2]])) is None

    assert "key 3 was counted 3 times, and now 1" in (watch.problem(View([OF_KEY[0]])) or "")
    assert watch.problem(View([])) is not None
    assert "more than one row" in (watch.problem(View([OF_KEY[2], OF_KEY[3]])) or "")


def test_an_overwritten_table_loses_its_old_rows_once() -> None:
    """Rows of overwritten partitions go, do not come back, and must be gone in the end; other rows stay."""
    watch = watch_for("staged", ROWS)
    kept, replaced = OLD_ROWS
    assert watch.problem(View([kept, replaced])) is None
    assert watch.problem(View([kept, replaced, *ROWS])) is None
    assert "should have been overwritten" in (watch.problem_at_the_end() or "")
    assert watch.problem(View([kept, *ROWS])) is None
    assert watch.problem_at_the_end() is None

    assert watch.problem(View([kept, replaced, *ROWS])) is not None
    assert "does not write are gone" in (watch.problem(View([*ROWS])) or "")


def test_at_the_end_nothing_is_missing() -> None:
    """All rows; for a sink with one row per key the last of each."""
    watch, upserts = Watch(ROWS), watch_for("postgres-upsert", ROWS)
    watch.problem(View(ROWS[1:]))
    upserts.problem(View([row for row in ROWS if row.seen == HOURS and row.key]))

    assert "1 rows are missing" in (watch.problem_at_the_end() or "")
    assert "1 rows are missing" in (upserts.problem_at_the_end() or "")


def test_files_are_read_as_anybody_would(tmp_path: Path) -> None:
    """Hidden files and directories are skipped; a partition column is in the path; a torn line is an error."""
    table = tmp_path / "rows"
    for name in (".hidden/part", "hour=02/part-0", "hour=02/.part-1.inprogress", "hour=02/_SUCCESS"):
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_text(json.dumps({"number": 1, "key": 2, "seen": 3}) + "\n")

    assert partitions_reader(str(tmp_path), "") == View([Row(1, 2, 3, "02")], frozenset(["02"]))
    (table / "hour=02/part-0").write_text('{"number":1')
    with pytest.raises(ValueError, match="delimiter"):
        files_reader(str(tmp_path), "")


@pytest.fixture
def look(tmp_path: Path) -> Callable[[], View]:
    """Reads the rows of a file by number, and notes them; without the file there is none to read."""

    def read() -> View:
        try:
            numbers = (tmp_path / "numbers").read_text()
        except FileNotFoundError as error:
            (tmp_path / "seen").write_text("nothing")
            raise UnreachableError("no file") from error
        (tmp_path / "seen").write_text(numbers)
        return View([ROWS[int(number)] for number in numbers.split()])

    return read


def shown(tmp_path: Path, *numbers: int) -> None:
    """Replace the file in one step."""
    (tmp_path / "new").write_text(" ".join(map(str, numbers)))
    os.replace(tmp_path / "new", tmp_path / "numbers")


def await_look(tmp_path: Path, expected: str) -> None:
    """Wait until the poller has found this in the file, however long a busy machine takes."""
    seen = tmp_path / "seen"
    while not seen.exists() or seen.read_text() != expected:
        time.sleep(0.001)


def test_the_poller_looks_while_nobody_asks(tmp_path: Path, look: Callable[[], View]) -> None:
    """It remembers a wrong view that has passed before it is asked."""
    shown(tmp_path, 0, 1)
    poller = Poller(look, Watch(ROWS), lambda checkpoint: {})
    try:
        await_look(tmp_path, "0 1")
        shown(tmp_path, 0)
        await_look(tmp_path, "0")
        shown(tmp_path, 0, 1)
        sighting = poller.end()
    finally:
        poller.close()
    assert "1 rows have been seen and are gone" in (sighting.problem or "")
    assert sighting.looks >= 2


def test_the_poller_waits_for_what_is_not_there(tmp_path: Path, look: Callable[[], View]) -> None:
    """An unreachable system is not a wrong view; at the end it has to be reached, and to hold every row."""
    poller = Poller(look, Watch(ROWS[:2]), lambda checkpoint: {0: 1, 1: 1})
    try:
        await_look(tmp_path, "nothing")
        shown(tmp_path, 0)
        assert poller.look("checkpoint").problem is None
        sighting = poller.end()
    finally:
        poller.close()
    assert "in the end 1 rows are missing" in (sighting.problem or "")
    assert sighting.unreachable


def test_the_poller_compares_with_the_checkpoint_when_asked(tmp_path: Path, look: Callable[[], View]) -> None:
    """Then, and not before: while a process runs, a newer checkpoint may be on its way."""
    shown(tmp_path, 0)
    poller = Poller(look, Watch(ROWS), lambda checkpoint: {} if checkpoint == "older" else {0: 1})
    try:
        await_look(tmp_path, "0")
        assert poller.look("newer").problem is None
        assert "no completed checkpoint covers" in (poller.look("older").problem or "")
    finally:
        poller.close()


def test_a_reader_that_fails_is_a_finding(tmp_path: Path, look: Callable[[], View]) -> None:
    """The poller does not outlive its parent either."""
    (tmp_path / "numbers").write_text("no number")
    poller = Poller(look, Watch(ROWS), lambda checkpoint: {})
    process = poller._process
    assert "reading failed: ValueError" in (poller.look("").problem or "")
    poller.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, signal.SIGCONT)
