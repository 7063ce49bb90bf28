"""``weir run`` and ``weir resume`` with database sinks, killed with SIGKILL while a reader watches the tables.

A reader never sees a row that an undisturbed run would not have shown, and in the end every row is there once.
"""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import KilledRun
from tests.operators.databases.killed_database_job import KEYS, SPLITS, sinks
from tests.postgres_server import PostgresServer, running_server

RECORDS = 60_000
EVERY = ("--checkpoint-interval", "1500rec")


class KilledDatabaseRun(KilledRun):
    """A killed job whose output is in tables."""

    job_file = Path(__file__).with_name("killed_database_job.py")

    def __init__(self, directory: Path, records: int, target: str) -> None:
        super().__init__(directory, records, "--param", f"target={target}", *EVERY)

    def with_server_killed_behind(self, checkpoint_id: int, server: PostgresServer, reader: Reader) -> bool:
        """Start or resume. The server dies and comes back while the job stands still; then the job goes on for some
        checkpoints and is killed. Returns whether it has ended before that."""
        with self._process() as process:
            self._wait_for(checkpoint_id, process)
            process.send_signal(signal.SIGSTOP)
            server.kill9()
            server.restart()
            reader.look()
            process.send_signal(signal.SIGCONT)
            self._wait_for(checkpoint_id + 2, process)
            reader.look()
            return self._kill(process, 0.0)

    def _wait_for(self, checkpoint_id: int, process: subprocess.Popen[str]) -> None:
        while process.poll() is None and self.newest_checkpoint() < checkpoint_id:
            time.sleep(0.002)


class Reader(threading.Thread):
    """Reads both tables all the time, and remembers the first error that it sees."""

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
        """The numbers of each split are a prefix of it, each once; the counts only grow."""
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
        return sorted(self._seen)

    @property
    def counted(self) -> dict[int, int]:
        return dict(sorted(self._highest.items()))


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that flushes its commits, unlike that of the other tests."""
    with running_server(fsync=True) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "data.sqlite")
    else:
        yield request.getfixturevalue("postgres_dsn")


def run_killed(run: KilledDatabaseRun, target: str, kills: int, seed: str) -> Reader:
    """Start, kill and resume so many times, then run to the end. The reader has looked at all of it."""
    instants = random.Random(seed)
    reader = Reader(target, run.records)
    reader.start()
    try:
        for kill in range(1, kills + 1):
            if instants.random() < 0.3:
                run.kill_behind_start(instants.uniform(0, 0.1))
            else:
                # A third of the checkpoints, one for each 1500 records: some more pass until each kill has come.
                most = run.records // 4_400 // kills
                behind = run.newest_checkpoint() + instants.randint(1, max(1, most))
                assert not run.kill_behind_checkpoint(behind, instants.uniform(0, 0.03)), f"kill {kill} came too late"
        assert run.go_on()
    finally:
        reader.end()
    return reader


def check(reader: Reader, records: int) -> None:
    """The end is the same as that of an undisturbed run."""
    assert reader.problem is None
    assert reader.rows == list(range(records))
    expected = {key: len(range(key, records, KEYS)) for key in range(KEYS)}
    assert reader.counted == expected


def test_readers_never_see_a_wrong_row_when_the_job_is_killed(target: str, tmp_path: Path) -> None:
    """Killed once after a checkpoint, and resumed."""
    run = KilledDatabaseRun(tmp_path, 9_000, target)
    reader = run_killed(run, target, 1, "one kill")
    check(reader, 9_000)
    assert run.kills == 1


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
    """The database is killed under the running job, which finds it again, and goes on from its checkpoint."""
    run = KilledDatabaseRun(tmp_path, RECORDS, postgres_dsn)
    reader = Reader(postgres_dsn, RECORDS)
    for checkpoint_id in (3, 6):
        assert not run.with_server_killed_behind(checkpoint_id, postgres_server, reader)
    assert run.go_on()
    reader.look()
    check(reader, RECORDS)
    waiting = postgres_server.execute("SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE '%numbers%'")
    assert waiting == [(0,)]
