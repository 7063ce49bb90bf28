"""A campaign of kills: ``weir run`` and ``weir resume`` in real processes, killed with SIGKILL at seeded instants.

``python -m tests.crash.campaign --kills 2000 --seed 7`` goes on until that many processes have been killed. Each job
gets options drawn from the seed (mode, state backend, form of its snapshots, local recovery, batch size, interval);
then it is run, killed, resumed, killed while it resumes, and so on, until one process comes to its end. Between kills a
process may find its storage full, read-only, or torn in the middle of a write: it may then fail with a clear error, but
it must not spoil anything. In the end the committed rows are those that a plain loop over the input gives, and of the
files in storage none is missing, damaged or left over.

Kill instants are drawn; where they strike is up to the machine. So a failure cannot be repeated from the seed alone:
the directory of the job is kept, with what each of its processes printed.
"""

from __future__ import annotations

import argparse
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.cli.settings import places
from engine.cli.verbs import resume, run
from operators.files.sinks import read_committed
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, LocalFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.crash.forked import Ending, weir
from tests.crash.jobs import killed_job, stateful_job
from tests.crash.processes import DESCRIPTOR, expected_rows
from tests.crash.small_stores import make_stores_small
from tests.scenarios.live_files import check_live_files

IN_MEMORY = Path("/dev/shm")
"""Killed processes lose nothing that they have written, so it need not be a disk."""

MODES = ("aligned", "aligned", "unaligned", "aligned-timeout")
BACKENDS = ("heap", "heap", "lsm", "changelog", "changelog:lsm")
STORAGE_FAULTS = (
    (FileFault.DISK_FULL, "*"),
    (FileFault.DISK_FULL, "write"),
    (FileFault.TORN_WRITE, "write"),
    (FileFault.READ_ONLY, "*"),
    (FileFault.ERROR_BEFORE, "rename"),
    (FileFault.ERROR_AFTER, "rename"),
    (FileFault.ERROR_BEFORE, "fsync"),
    (FileFault.ERROR_BEFORE, "delete"),
)
REFUSALS = range(10, 23)
"""Exit codes of a process that says what is wrong with the world."""


@dataclass(frozen=True)
class Order:
    """One job of the campaign: which one, how it is run, and how often storage fails it."""

    name: str
    job_file: str
    records: int
    options: tuple[str, ...]
    share_of_faults: float


def drawn_order(draw: random.Random, faults: bool) -> Order:
    options = ["--mode", draw.choice(MODES), "--state-backend", draw.choice(BACKENDS)]
    options += ["--snapshot", draw.choice(("full", "incremental")), "--retain", str(draw.choice((1, 2, 3)))]
    options += ["--batch-size", str(draw.choice((16, 64, 256))), "--seed", str(draw.randrange(1_000))]
    if "changelog" in options[3]:
        options += ["--materialization-interval", "3ms"]
    if draw.random() < 0.3:
        options.append("--local-recovery")
    share = draw.choice((0.0, 0.3)) if faults else 0.0
    if draw.random() < 0.5:
        options += ["--checkpoint-interval", f"{draw.choice((500, 1_500))}rec"]
        return Order("counts", killed_job.__file__, 12_000, tuple(options), share)
    options += ["--checkpoint-interval", f"{draw.choice((300, 900))}rec"]
    return Order("visits", stateful_job.__file__, 4_000, tuple(options), share)


@dataclass
class Tally:
    """The counts of the campaign. ``seen``: how processes ended, by kind."""

    jobs: int = 0
    kills: int = 0
    kills_of_resumes: int = 0
    processes: int = 0
    storage_faults: int = 0
    refusals: int = 0
    restored: int = 0
    longest: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def line(self, seed: str, seconds: float) -> str:
        """One line of ``name=value``."""
        values = {
            "seed": seed, "jobs": self.jobs, "processes": self.processes, "kills": self.kills,
            "kills_of_resumes": self.kills_of_resumes, "most_kills_of_one_job": self.longest,
            "restored": self.restored, "storage_faults": self.storage_faults, "refusals": self.refusals,
            "seconds": round(seconds, 1),
        }  # fmt: skip
        return " ".join(f"{name}={value}" for name, value in values.items())


class CampaignFailedError(Exception):
    """A job came to another end than a run without failures would have."""


class KilledJob:
    """One job in a directory of its own, from its start to its end."""

    def __init__(self, order: Order, directory: Path, draw: random.Random, tally: Tally, typical_s: float) -> None:
        self._order = order
        self._storage = directory / "state"
        self._out = directory / "out"
        self._directory = directory
        self._draw = draw
        self._tally = tally
        self._typical_s = typical_s
        self._number = 0

    def to_its_end(self, most_kills: int) -> None:
        """Start, kill and resume until a process has ended by itself; at most so many kills."""
        kills = 0
        while True:
            may_kill = kills < most_kills
            ending = self._process(self._drawn_instant() if may_kill else None, with_faults=may_kill)
            if ending.killed:
                kills += 1
                self._tally.longest = max(self._tally.longest, kills)
            elif ending.exit_code == 0:
                break
        self._judge()

    def _drawn_instant(self) -> float:
        # Every third kill comes early: while the process recovers, or just after its start.
        share = self._draw.uniform(0, 0.25) if self._draw.random() < 0.33 else self._draw.uniform(0, 1.1)
        return share * self._typical_s

    def _process(self, kill_after_s: float | None, *, with_faults: bool) -> Ending:
        tally, resumes = self._tally, (self._storage / DESCRIPTOR).exists()
        rules = self._drawn_rules() if with_faults and self._draw.random() < self._order.share_of_faults else ()
        self._number += 1
        log = str(self._directory / f"process-{self._number}.txt")
        ending = weir(self._arguments(resumes), log, kill_after_s, lambda: _prepare(rules))
        tally.processes += 1
        tally.storage_faults += bool(rules)
        tally.restored += "restored checkpoint" in ending.words
        if ending.killed:
            tally.kills += 1
            tally.kills_of_resumes += resumes
        elif ending.exit_code:
            if not rules or ending.exit_code not in REFUSALS:
                raise CampaignFailedError(f"process {self._number}: exit code {ending.exit_code}\n{ending.words}")
            tally.refusals += 1
        return ending

    def _drawn_rules(self) -> tuple[FaultRule, ...]:
        kind, operation = self._draw.choice(STORAGE_FAULTS)
        # Once, or from then on for good: a disk that is full stays full.
        number = self._draw.randrange(1, 60)
        at_call = None if self._draw.random() < 0.2 else number
        return (FaultRule(kind, operation, "*", at_call, keep_bytes=self._draw.randrange(40)),)

    def _arguments(self, resumes: bool) -> list[str]:
        if resumes:
            return ["resume", str(self._storage)]
        order = self._order
        where = ["--storage", str(self._storage), "--out", str(self._out)]
        return ["run", order.job_file, *where, *order.options, "--param", f"records={order.records}"]

    def _judge(self) -> None:
        order = self._order
        committed = read_committed(LocalFileSystem(), str(self._out / "counts"))
        expected = expected_rows(order.records) if order.name == "counts" else stateful_job.expected_rows(order.records)
        if committed != expected:
            raise CampaignFailedError(f"the committed rows differ: {_difference(expected, committed)}")
        hidden = sorted(path.name for path in self._out.rglob(".*") if path.is_file())
        if hidden:
            raise CampaignFailedError(f"left in the output: {hidden}")
        try:
            check_live_files(LocalFileSystem(), CheckpointStorage(LocalFileSystem(), str(self._storage), "killed"))
        except AssertionError as error:
            raise CampaignFailedError(f"left in storage: {error}") from error


def _difference(expected: dict[str, list[str]], found: dict[str, list[str]]) -> str:
    wanted = Counter(row for rows in expected.values() for row in rows)
    there = Counter(row for rows in found.values() for row in rows)
    lost, more = wanted - there, there - wanted
    return f"{lost.total()} lost {list(lost)[:3]}, {more.total()} too many {list(more)[:3]}"


def _prepare(rules: tuple[FaultRule, ...]) -> None:
    """In the new process: small stores, and a storage that fails by these rules."""
    make_stores_small()
    if rules:
        failing = FaultInjectingFileSystem(LocalFileSystem(), rules)
        for verb in (run, resume):
            verb.place = lambda text: (failing, places.place(text)[1])  # type: ignore[attr-defined]


def campaign(kills: int, seed: str, directory: Path, *, faults: bool = True) -> Tally:
    """Kill so many processes. Raises :class:`CampaignFailedError` at the first job that came to another end; its
    directory is kept."""
    draw, tally = random.Random(seed), Tally()
    typical_s: dict[str, float] = {}
    while tally.kills < kills:
        order = drawn_order(draw, faults)
        place = directory / f"job-{tally.jobs}"
        place.mkdir()
        calm = random.Random(0)
        if order.name not in typical_s:
            alone = KilledJob(Order(*_plain(order)), place, calm, Tally(), 0.0)
            started = time.monotonic()
            alone.to_its_end(0)
            typical_s[order.name] = time.monotonic() - started
            shutil.rmtree(place)
            place.mkdir()
        job = KilledJob(order, place, draw, tally, typical_s[order.name])
        try:
            job.to_its_end(draw.randrange(1, 12))
        except CampaignFailedError as failed:
            command = shlex.join(["weir", *job._arguments(resumes=False)])
            raise CampaignFailedError(f"job {tally.jobs} ({command}), kept in {place}: {failed}") from failed
        shutil.rmtree(place)
        tally.jobs += 1
    return tally


def _plain(order: Order) -> tuple[str, str, int, tuple[str, ...], float]:
    return order.name, order.job_file, order.records, order.options, 0.0


def main() -> int:
    """The command line; exit code 1 when a job came to another end."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.campaign", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=200, help="how many processes to kill [200]")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--no-storage-faults", action="store_true", help="only kills")
    parser.add_argument("--directory", help="where [a temporary directory in memory]")
    options = parser.parse_args()
    faults = not options.no_storage_faults
    return carried_out(options, lambda directory: campaign(options.kills, options.seed, directory, faults=faults))


def carried_out(options: argparse.Namespace, work: Callable[[Path], Any]) -> int:
    """The exit code of a campaign in a directory of its own, which is kept when a job came to another end."""
    parent = options.directory or (str(IN_MEMORY) if IN_MEMORY.is_dir() else None)
    directory = Path(tempfile.mkdtemp(prefix="weir-kills-", dir=parent))
    started = time.monotonic()
    try:
        tally = work(directory)
    except CampaignFailedError as failed:
        print(failed)
        return 1
    print(tally.line(options.seed, time.monotonic() - started))
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
