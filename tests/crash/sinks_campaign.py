"""A campaign of kills for every sink: real processes, SIGKILL, a database server that dies too, and a reader.

``python -m tests.crash.sinks_campaign --kills 500 --seed 7 [--sink postgres]`` goes on until that many processes have
been killed. Each job writes to one sink, is killed and resumed, killed while it recovers, resumed with another
parallelism, finds its disk full now and then, and loses its database. All the time another process reads the output, as
a downstream program would. What it sees is part of the reference output, holds no row twice, never shrinks, and is
complete in the end; a partition that is reported as complete is complete.

A process is struck at a drawn instant, or before a drawn change to the sink's files, or around a drawn call to its
database (:mod:`tests.crash.strikes`). A job that fails keeps its directory, with what each process printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine import SqliteMetastore
from operators.databases.postgres_database import PostgresSession
from operators.databases.sqlite_database import SqliteSession
from state_backends.files import FaultRule, FileFault, LocalFileSystem
from state_backends.offline import SnapshotContent
from state_backends.snapshots import CheckpointStorage
from tests.crash.campaign import REFUSALS, CampaignFailedError, carried_out
from tests.crash.databases import KilledServer
from tests.crash.forked import Ending, weir
from tests.crash.jobs import sinks_job
from tests.crash.jobs.sinks_job import LOG, METASTORE, SINKS, SQLITE, TABLE
from tests.crash.poller import Poller, Sighting
from tests.crash.processes import DESCRIPTOR
from tests.crash.readers import OLD_FILE, OLD_ROWS, View, reader_of, watch_for
from tests.crash.strikes import CALLS, CHANGES, CallStrike, FileStrike, prepare_calls, prepare_files
from tests.postgres_server import binaries
from tests.scenarios.live_files import check_live_files

MODES = ("aligned", "aligned", "unaligned", "aligned-timeout")
RELAYED = "rows"
"""What the job that reads the log writes to."""
NUMBERS = (2, 2, 1, 3)
"""Parallelism of a start."""
STORAGE_FAULTS = (
    (FileFault.DISK_FULL, "*"),
    (FileFault.DISK_FULL, "write"),
    (FileFault.TORN_WRITE, "write"),
    (FileFault.ERROR_BEFORE, "rename"),
    (FileFault.ERROR_AFTER, "rename"),
    (FileFault.ERROR_BEFORE, "fsync"),
    (FileFault.ERROR_BEFORE, "delete"),
)
LEFT_BEHIND = (".staged-commit-", ".table.parts-")
"""How hidden files begin that sinks leave for good: journals of what was committed."""


@dataclass(frozen=True)
class Order:
    """One job: its sink, how it is run, and the faults besides kills. ``log``: it reads this log instead."""

    sink: str
    records: int
    options: tuple[str, ...]
    share_of_faults: float = 0.0
    share_of_rescales: float = 0.0
    share_of_server_kills: float = 0.0
    log: str = ""

    @property
    def job_name(self) -> str:
        return "relayed" if self.log else "killed"


def drawn_order(draw: random.Random, sink: str, *, faults: bool = True) -> Order:
    options = ["--mode", draw.choice(MODES), "--batch-size", str(draw.choice((16, 50, 128)))]
    options += ["--checkpoint-interval", f"{draw.choice((300, 500, 900))}rec", "--retain", str(draw.choice((1, 2, 3)))]
    options += ["--seed", str(draw.randrange(1_000)), "--restart", "fixed:20:10ms"]
    return Order(
        sink,
        draw.choice((4_000, 6_000)),
        tuple(options),
        share_of_faults=draw.choice((0.0, 0.3)) if faults else 0.0,
        share_of_rescales=draw.choice((0.0, 0.3)),
        share_of_server_kills=0.4 if sink.startswith("postgres") else 0.0,
    )


@dataclass
class Tally:
    """The counts of the campaign."""

    jobs: int = 0
    processes: int = 0
    kills: int = 0
    kills_of_resumes: int = 0
    exact_kills: int = 0
    server_kills: int = 0
    server_kills_before_commit: int = 0
    server_kills_survived: int = 0
    """After which the same process came to the end of the job."""
    restored: int = 0
    rescaled: int = 0
    storage_faults: int = 0
    refusals: int = 0
    looks: int = 0
    views: int = 0
    rows: int = 0
    kills_of: Counter[str] = field(default_factory=Counter)
    """By sink."""

    def line(self, seed: str, seconds: float) -> str:
        """One line of ``name=value``."""
        numbers = {name: value for name, value in vars(self).items() if name != "kills_of"}
        numbers["least_kills_of_a_sink"] = min(self.kills_of.values(), default=0)
        values = {"seed": seed, **numbers, "seconds": round(seconds, 1)}
        return " ".join(f"{name}={value}" for name, value in values.items())


class KilledSinkJob:
    """One job in a directory of its own, from its start to its end, and the process that reads its output."""

    def __init__(
        self,
        order: Order,
        directory: Path,
        draw: random.Random,
        tally: Tally,
        typical_s: float,
        server: KilledServer | None,
    ) -> None:
        directory.mkdir()
        self.order, self.directory, self._draw, self._tally = order, directory, draw, tally
        self._typical_s, self._server = typical_s, server
        self._out = directory / "out"
        self._storages = [directory / "state-0"]
        """The last one is in use; a run with another parallelism gets one of its own."""
        self._parallelism = 2
        self._rescales = self._number = 0
        self._target = str(self._out) if server is None else server.new_database()
        self._lay_out()

    def _lay_out(self) -> None:
        """Prepare what the job needs before its start."""
        sink, table = self.order.sink, self._out / TABLE
        if sink.startswith("partitioned"):
            self._out.mkdir()
            SqliteMetastore(str(self._out / METASTORE)).create_table(TABLE, ("hour",))
        if sink == "staged":
            for row in OLD_ROWS:
                place = table / f"hour={row.hour}"
                place.mkdir(parents=True)
                old = {"number": row.number, "key": row.key, "seen": row.seen}
                (place / OLD_FILE).write_text(json.dumps(old) + "\n", encoding="utf-8")

    def _poller(self) -> Poller:
        order = self.order
        sink = RELAYED if order.log else order.sink
        read, watch = reader_of(sink), watch_for(sink, sinks_job.expected_rows(order.records))
        out, target = str(self._out), self._target

        def look() -> View:
            return read(out, target)

        return Poller(look, watch, (lambda checkpoint: None) if order.log else covered_rows)

    def to_its_end(self, most_kills: int) -> None:
        """Start, kill and resume until a process has ended by itself; at most so many kills."""
        kills, poller = 0, self._poller()
        try:
            while True:
                ending = self._process(may_kill=kills < most_kills)
                if not (self._storage / DESCRIPTOR).exists() and len(self._storages) > 1:
                    # Killed before it had begun: the next process goes on from where this one would have.
                    self._storages.pop()
                self._check(poller.look(self._newest_checkpoint()))
                if ending.killed:
                    kills += 1
                    self._maybe_rescale()
                elif ending.exit_code == 0:
                    break
            sighting = poller.end()
            self._check(sighting)
        finally:
            poller.close()
        self._tally.looks += sighting.looks
        self._tally.views += sighting.changes
        self._tally.rows += sighting.rows
        self._judge()

    def _check(self, sighting: Sighting) -> None:
        if sighting.problem is not None:
            raise CampaignFailedError(f"behind process {self._number} a reader saw: {sighting.problem}")

    @property
    def _storage(self) -> Path:
        return self._storages[-1]

    def _newest_checkpoint(self) -> str:
        """Its directory, empty without one. A run that resumes another run has no checkpoint of its own at first."""
        for storage in reversed(self._storages):
            found = storage.glob(f"{self.order.job_name}/chk-*/_metadata")
            newest = max(found, key=lambda path: int(path.parent.name[4:]), default=None)
            if newest is not None:
                return str(newest.parent)
        return ""

    def _maybe_rescale(self) -> None:
        """The next process resumes the newest checkpoint with another parallelism, in a storage of its own."""
        has_checkpoint = Path(self._newest_checkpoint()).is_relative_to(self._storage)
        if self._draw.random() < self.order.share_of_rescales and has_checkpoint:
            self._rescales += 1
            self._tally.rescaled += 1
            self._storages.append(self.directory / f"state-{self._rescales}")
            self._parallelism = self._draw.choice(NUMBERS)

    # --- one process ----------------------------------------------------------------------------------------

    def _process(self, *, may_kill: bool) -> Ending:
        tally, draw, order = self._tally, self._draw, self.order
        resumes = (self._storages[0] / DESCRIPTOR).exists()
        rules: tuple[FaultRule, ...] = ()
        files: FileStrike | None = None
        call: CallStrike | None = None
        kill_after_s = None
        server_dies = may_kill and draw.random() < order.share_of_server_kills
        if may_kill:
            if draw.random() < order.share_of_faults:
                rules = _drawn_rules(draw)
            if draw.random() < 0.5:
                files, call = _drawn_strike(draw, order.sink, server_dies)
            if files is None and call is None and not (server_dies and draw.random() < 0.6):
                kill_after_s = _drawn_instant(draw) * self._typical_s
        meanwhile = None
        assault = None
        if server_dies and self._server is not None:
            assault = Assault(self._server, draw, None if call else draw.uniform(0, 1) * self._typical_s)
            meanwhile = assault.look
        self._number += 1
        log = str(self.directory / f"process-{self._number}.txt")
        with open(f"{log}.plan", "w", encoding="utf-8") as plan:
            print(shlex.join(self._arguments()), rules, files, call, kill_after_s, server_dies, file=plan)

        def prepare() -> None:
            prepare_files(files, rules)
            if call is not None:
                prepare_calls(call, SqliteSession if order.sink.startswith("sqlite") else PostgresSession)

        ending = weir(self._arguments(), log, kill_after_s, prepare, meanwhile)
        struck = assault.finish() if assault is not None else 0
        tally.server_kills += struck
        tally.server_kills_before_commit += bool(struck and call is not None and call.call == "commit")
        tally.server_kills_survived += bool(struck and not ending.exit_code)
        tally.processes += 1
        tally.storage_faults += bool(rules)
        tally.restored += "restored checkpoint" in ending.words
        if ending.killed:
            tally.kills += 1
            tally.kills_of[order.sink] += 1
            tally.kills_of_resumes += resumes
            tally.exact_kills += kill_after_s is None
        elif ending.exit_code:
            if not (rules or struck) or ending.exit_code not in REFUSALS:
                raise CampaignFailedError(f"process {self._number}: exit code {ending.exit_code}\n{ending.words}")
            tally.refusals += 1
        return ending

    def _arguments(self) -> list[str]:
        if (self._storage / DESCRIPTOR).exists():
            return ["resume", str(self._storage)]
        order = self.order
        params = {"sink": order.sink, "records": order.records, "target": self._target, "log": order.log}
        command = ["run", sinks_job.__file__, "--storage", str(self._storage), "--out", str(self._out), *order.options]
        command += [part for name, value in params.items() for part in ("--param", f"{name}={value}")]
        if len(self._storages) > 1:
            command += ["--from", str(self._storages[-2]), "--parallelism", str(self._parallelism)]
        return command

    # --- the end --------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        order = self.order
        hidden = [path for path in self._out.rglob(".*") if path.is_file()]
        left = sorted(path.name for path in hidden if not path.name.startswith(LEFT_BEHIND))
        if left:
            raise CampaignFailedError(f"left in the output: {left}")
        if self._server is not None:
            waiting = self._server.prepared(self._target)
            if waiting:
                raise CampaignFailedError(f"left in the server: {waiting}")
        if order.sink == "sqlite":
            waiting = staged_in_sqlite(self._out / SQLITE)
            if waiting:
                raise CampaignFailedError(f"left in the database: {waiting}")
        try:
            storage = CheckpointStorage(LocalFileSystem(), str(self._storage), order.job_name)
            check_live_files(LocalFileSystem(), storage)
        except AssertionError as error:
            raise CampaignFailedError(f"left in storage: {error}") from error


def covered_rows(checkpoint: str) -> dict[int, int]:
    """How many rows of each key a checkpoint covers, by the state of the count; none without a checkpoint."""
    if not checkpoint:
        return {}
    content = SnapshotContent.at(LocalFileSystem(), checkpoint)
    return {entry.key: entry.value["seen"] for entry in content.entries("count")}


def staged_in_sqlite(path: Path) -> list[tuple[object, ...]]:
    """Transactions that are not committed, and rows that wait for their commit."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT name, state FROM weir_transactions WHERE state <> 'committed'").fetchall()
        return found + database.execute(f"SELECT * FROM weir_staged_{TABLE} LIMIT 3").fetchall()


class Assault:
    """Kills the server while a process runs: after so many seconds, or when the process is found stopped."""

    def __init__(self, server: KilledServer, draw: random.Random, after_s: float | None) -> None:
        self._server, self._after_s = server, after_s
        self._down_s = draw.choice((0.0, draw.uniform(0, 0.4)))
        self._then_kill = draw.random() < 0.4
        self._killed_at: float | None = None
        self._is_back = False

    def look(self, process: int, age_s: float) -> None:
        """Called while the process lives."""
        if self._killed_at is None:
            if self._after_s is None:
                if _is_stopped(process):
                    self._kill(age_s)
                    os.kill(process, signal.SIGKILL if self._then_kill else signal.SIGCONT)
            elif age_s >= self._after_s:
                self._kill(age_s)
        elif not self._is_back and age_s - self._killed_at >= self._down_s:
            self._is_back = True
            self._server.begin()

    def _kill(self, age_s: float) -> None:
        self._server.kill9()
        self._killed_at = age_s

    def finish(self) -> int:
        """Start the server again after the process has ended. Returns how often the server was killed."""
        if self._killed_at is None:
            return 0
        if not self._is_back:
            self._server.begin()
        self._server.wait_until_ready()
        return 1


def _is_stopped(process: int) -> bool:
    with open(f"/proc/{process}/stat", encoding="utf-8") as status:
        return status.read().rpartition(")")[2].split()[0] == "T"


def _drawn_instant(draw: random.Random) -> float:
    # Every third kill comes early: while the process recovers, or just after its start.
    return draw.uniform(0, 0.3) if draw.random() < 0.33 else draw.uniform(0, 1.1)


def _drawn_strike(draw: random.Random, sink: str, server_dies: bool) -> tuple[FileStrike | None, CallStrike | None]:
    # As often among the first few as among hundreds.
    number = round(4.0 ** draw.uniform(0, 4.5))
    if sink.startswith(("sqlite", "postgres")):
        calls = ("take_over", "upsert") if sink.endswith("upsert") else CALLS[:-1]
        call = "commit" if server_dies and not sink.endswith("upsert") else draw.choice(calls)
        limit = {"take_over": 2, "abort": 2}.get(call, 12)
        return None, CallStrike(draw.randint(1, limit), call, draw.random() < 0.5 and not server_dies, server_dies)
    operations = draw.choice((CHANGES, ("rename",), ("fsync", "fsync_dir"), ("delete", "truncate", "rename")))
    return FileStrike(number, operations), None


def _drawn_rules(draw: random.Random) -> tuple[FaultRule, ...]:
    kind, operation = draw.choice(STORAGE_FAULTS)
    # Once, or from then on for good: a disk that is full stays full.
    at_call = None if draw.random() < 0.2 else draw.randrange(1, 120)
    return (FaultRule(kind, operation, "*", at_call, keep_bytes=draw.randrange(40)),)


# --- the campaign -------------------------------------------------------------------------------------------


def sinks_to_try(names: list[str]) -> list[str]:
    """All sinks that can be tried on this machine, or the given ones."""
    return [name for name in names or SINKS if not name.startswith("postgres") or binaries() is not None]


def campaign(
    kills: int,
    seed: str,
    directory: Path,
    sinks: list[str],
    *,
    faults: bool = True,
    most_kills: int = 10,
    records: int | None = None,
    adjust: Callable[[Order], Order] = lambda order: order,
) -> Tally:
    """Kill so many processes, sink after sink, and at least one of each. ``most_kills``, ``records``: of each job;
    ``adjust``: has the last word on its options.

    Raises :class:`CampaignFailedError` at the first job that came to another end, or showed something wrong; its
    directory is kept.
    """
    draw, tally = random.Random(seed), Tally()
    typical_s: dict[str, float] = {}
    with ExitStack() as stack:
        server = None
        if any(sink.startswith("postgres") for sink in sinks):
            server = stack.enter_context(KilledServer.running())
        while tally.kills < kills or not all(tally.kills_of[sink] for sink in sinks):
            for sink in sinks:
                if tally.kills >= kills and tally.kills_of[sink]:
                    continue
                order = adjust(drawn_order(draw, sink, faults=faults))
                if records is not None:
                    order = replace(order, records=records)
                mine = server if sink.startswith("postgres") else None
                place = directory / f"job-{tally.jobs}-{sink}"
                if records is not None and typical_s:
                    # Brief ones take about the same time: no need to measure them all.
                    typical_s.setdefault(sink, max(typical_s.values()))
                if sink not in typical_s:
                    typical_s[sink] = _timed(order, directory / f"calm-{sink}", mine)
                lasts_s = typical_s[sink]
                _one(KilledSinkJob(order, place, draw, tally, lasts_s, mine), draw.randint(1, most_kills))
                if sink == "log":
                    relay = replace(order, log=str(place / "out" / LOG))
                    _one(KilledSinkJob(relay, place / "relay", draw, tally, lasts_s, None), draw.randint(1, most_kills))
                shutil.rmtree(place)
                tally.jobs += 1
    return tally


def _timed(order: Order, place: Path, server: KilledServer | None) -> float:
    """How long it takes without a kill."""
    alone = KilledSinkJob(order, place, random.Random(0), Tally(), 0.0, server)
    started = time.monotonic()
    alone.to_its_end(0)
    shutil.rmtree(place)
    return time.monotonic() - started


def _one(job: KilledSinkJob, kills: int) -> None:
    try:
        job.to_its_end(kills)
    except CampaignFailedError as failed:
        raise CampaignFailedError(f"sink {job.order.sink}, kept in {job.directory}: {failed}") from failed


def main() -> int:
    """The command line; exit code 1 when a job failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.sinks_campaign", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=100, help="how many processes to kill [100]")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--sink", action="append", default=[], choices=list(SINKS), help="repeatable [all]")
    parser.add_argument("--records", type=int, help="of each job [4000 or 6000]")
    parser.add_argument("--most-kills", type=int, default=10, help="of one job [10]")
    parser.add_argument("--no-storage-faults", action="store_true", help="only kills")
    parser.add_argument("--directory", help="where [a temporary directory in memory]")
    options = parser.parse_args()
    # A process that is told to end also ends the server.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return carried_out(
        options,
        lambda directory: campaign(
            options.kills,
            options.seed,
            directory,
            sinks_to_try(options.sink),
            faults=not options.no_storage_faults,
            most_kills=options.most_kills,
            records=options.records,
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
