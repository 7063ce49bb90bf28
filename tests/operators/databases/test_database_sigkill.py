"""``weir run`` and ``weir resume`` with database sinks, killed with SIGKILL, while somebody reads the tables all the
time: no reader ever sees a row that an undisturbed run would not have shown, and in the end everything is there once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import KilledRun
from tests.operators.databases.killed_database_job import KEYS, SPLITS, sinks
from tests.postgres_server import PostgresServer

RECORDS = 30_000
EVERY = ("--checkpoint-interval", "1500rec")


class KilledDatabaseRun(KilledRun):
    """A killed job whose output is in tables."""

    job_file = Path(__file__).with_name("killed_database_job.py")

    def __init__(self, directory: Path, records: int, target: str) -> None:
        super().__init__(directory, records, "--param", f"target={target}", *EVERY)


class Reader(threading.Thread):
    """Reads both tables all the time, and remembers the first thing that is wrong."""

    def __init__(self, target: str, records: int) -> None:
        super().__init__()
        self.numbers, self.counts = sinks(target)
        self.half = records // SPLITS
        self.problem: str | None = None
        self.looks = self.states = 0
        self._seen: list[int] = []
        self._highest: dict[int, int] = {}
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set() and self.problem is None:
            try:
                self.look()
            except Exception as error:
                self.problem = f"{type(error).__name__}: {error}"
            self._is_over.wait(0.005)

    def look(self) -> None:
        """The numbers of each split are the first so and so many, each once; counts only grow."""
        rows = [number for number, *_ in self.numbers.database.rows(self.numbers.describe(""))]
        for split in range(SPLITS):
            mine = sorted(number for number in rows if number // self.half == split)
            first = split * self.half
            if mine != list(range(first, first + len(mine))):
                self.problem = f"split {split}: {len(mine)} rows are not the first {len(mine)}"
        if len(rows) < len(self._seen):
            self.problem = f"there were {len(self._seen)} rows, and now there are {len(rows)}"
        self.states += len(rows) != len(self._seen)
        self._seen = rows
        for key, seen in self.counts.database.rows(self.counts.describe("")):
            if seen < self._highest.get(key, 0):
                self.problem = f"key {key} was counted {self._highest[key]} times, and now {seen}"
            self._highest[key] = seen
        self.looks += 1

    def end(self) -> None:
        """Look once more."""
        self._is_over.set()
        self.join()
        if self.problem is None:
            self.look()

    @property
    def rows(self) -> list[int]:
        """The numbers, sorted."""
        return sorted(self._seen)

    @property
    def counted(self) -> dict[int, int]:
        """The counts by key."""
        return dict(sorted(self._highest.items()))


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the job writes to."""
    if request.param == "sqlite":
        yield str(tmp_path / "data.sqlite")
    else:
        yield request.getfixturevalue("postgres_dsn")


def run_killed(run: KilledDatabaseRun, target: str, kills: int, seed: str) -> Reader:
    """Start, kill and resume so many times; then to the end. The reader has looked at all of it."""
    instants = random.Random(seed)
    reader = Reader(target, run.records)
    reader.start()
    try:
        for kill in range(1, kills + 1):
            if instants.random() < 0.3:
                run.kill_behind_start(instants.uniform(0, 0.1))
            else:
                behind = run.newest_checkpoint() + instants.randint(1, max(1, 14 // kills))
                assert not run.kill_behind_checkpoint(behind, instants.uniform(0, 0.03)), f"kill {kill} came too late"
        assert run.go_on()
    finally:
        reader.end()
    return reader


def check(reader: Reader, records: int) -> None:
    """The end is that of an undisturbed run."""
    assert reader.problem is None
    assert reader.rows == list(range(records))
    expected = {key: len(range(key, records, KEYS)) for key in range(KEYS)}
    assert reader.counted == expected


@pytest.mark.slow
def test_readers_never_see_a_wrong_row_whoever_is_killed(target: str, tmp_path: Path) -> None:
    """Four processes killed at seeded instants, some while they recover."""
    run = KilledDatabaseRun(tmp_path, RECORDS, target)
    reader = run_killed(run, target, 4, "four kills")
    check(reader, RECORDS)
    assert run.kills >= 3
    assert reader.states > 3


@pytest.mark.slow
def test_readers_never_see_a_wrong_row_when_the_server_is_killed(
    postgres_server: PostgresServer, postgres_dsn: str, tmp_path: Path
) -> None:
    """The database is killed under the running job, and the job waits for it or is resumed."""
    run = KilledDatabaseRun(tmp_path, RECORDS, postgres_dsn)
    killer = threading.Thread(target=_kill_server_behind, args=(postgres_server, run, 3))
    killer.start()
    ended = False
    for _ in range(3):
        try:
            ended = run.go_on()
        except AssertionError as failed:
            # The restart strategy had no patience left; the checkpoint is there.
            assert "DatabaseError" in str(failed) or "connection" in str(failed)
        if ended:
            break
    killer.join()
    assert ended
    reader = Reader(postgres_dsn, RECORDS)
    reader.look()
    check(reader, RECORDS)
    waiting = postgres_server.execute("SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE '%numbers%'")
    assert waiting == [(0,)]


def _kill_server_behind(server: PostgresServer, run: KilledDatabaseRun, checkpoint_id: int) -> None:
    while run.newest_checkpoint() < checkpoint_id:
        threading.Event().wait(0.002)
    server.kill9()
    server.restart()
