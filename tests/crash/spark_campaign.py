"""A campaign of kills on Spark: the driver of a job dies at drawn steps of drawn batches, and the job is resumed.

``python -m tests.crash.spark_campaign --each 5 --seed 7`` goes on until a driver has died so often at each of the
points. All the time another process reads the output of both sinks, and compares what is new with the newest
checkpoint: a row that no ``_metadata`` covers is early. In the end every row is there once.

A driver is a real process. Most of them share a JVM that outlives them, as executors of a cluster do: what a dead
driver has begun goes on there. Some, ``--own`` at each point, have a JVM that ends with them. At the point "in a stage"
a worker kills the driver when it comes to a drawn record; at all others the driver sends the signal to itself. A job
that fails keeps its directory, with what each process printed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyspark.sql  # noqa: F401 (before the forks: each of them would need the time)

from engine.runtime.storage import CheckpointFiles
from spark_bridge.pipeline.batch_driver import BatchDriver
from spark_bridge.pipeline.batch_stages import BatchStages
from spark_bridge.session import BRIEF_LIFE
from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.crash.campaign import CampaignFailedError, carried_out
from tests.crash.forked import Ending, weir
from tests.crash.jobs import spark_job
from tests.crash.jobs.sinks_job import SPLITS
from tests.crash.kept_spark import KeptSpark, connect
from tests.crash.poller import Poller
from tests.crash.processes import DESCRIPTOR
from tests.crash.readers import View, Watch, files_reader
from tests.crash.sinks_campaign import covered_rows
from tests.crash.strikes import CallStrike, prepare_calls
from tests.scenarios.live_files import check_live_files

BATCH = 50
"""Records that a subtask of the source emits in a batch."""
BATCHES = 10
BUSY = "Python worker failed to connect back"
"""What Spark says on a busy machine; the job then goes on with the next process."""

IN_A_STAGE = "in-a-stage"
POINTS: dict[str, tuple[tuple[type, str, bool, tuple[int, ...]], ...]] = {
    "before-the-metadata": ((BatchStages, "run", True, (1, 2)), (CheckpointFiles, "complete", False, (1, 2))),
    "after-the-metadata": ((CheckpointFiles, "complete", True, (1, 2)),),
    # Four subtasks of sinks commit in a batch, and once more after a resume.
    "between-two-commits": ((BatchDriver, "commit_operator", True, (1, 2, 3, 5, 6, 7)),),
    "after-the-commits": ((BatchDriver, "run_batch", True, (1, 2)),),
}
"""By name: a class, its method, whether the driver dies after the call, and in which one."""


@dataclass
class Tally:
    """The counts of the campaign."""

    jobs: int = 0
    processes: int = 0
    late: int = 0
    """Processes that gave up because Python took longer to start than Spark waits."""
    looks: int = 0
    views: int = 0
    rows: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """By point."""

    def line(self, seed: str, seconds: float) -> str:
        """One line of ``name=value``."""
        numbers = {name: value for name, value in vars(self).items() if name != "kills"}
        values = {"seed": seed, **numbers, **self.kills, "seconds": round(seconds, 1)}
        return " ".join(f"{name}={value}" for name, value in values.items())


class KilledSparkJob:
    """One job in a directory of its own, from its start to its end, and the process that reads its output."""

    def __init__(
        self, directory: Path, draw: random.Random, tally: Tally, kept: KeptSpark, own: int, batches: int = BATCHES
    ) -> None:
        directory.mkdir()
        self._kept, self._own, self._batches = kept, own, batches
        self._draw, self._tally = draw, tally
        self._directory, self._storage, self._out = directory, directory / "state", directory / "out"
        self._orders = str(directory / "orders")
        self._records = SPLITS * BATCH * batches
        self._number = 0

    def to_its_end(self, points: list[str]) -> None:
        """Run until a process has ended by itself. Those before it are killed at these points, as far as they come
        there; a point is removed from the list when a driver has died at it."""
        watch = Watch(spark_job.expected_rows(self._records))
        poller = Poller(self._look, watch, covered_rows, self._newest_checkpoint)
        try:
            while True:
                ending = self._process(points[0] if points else None, is_last=len(points) == 1)
                problem = poller.look(self._newest_checkpoint()).problem
                if problem is not None:
                    raise CampaignFailedError(f"after process {self._number} a reader saw: {problem}")
                if ending.killed:
                    if points:
                        self._tally.kills[points.pop(0)] += 1
                elif not ending.exit_code:
                    break
            sighting = poller.end()
            if sighting.problem is not None:
                raise CampaignFailedError(f"at the end a reader saw: {sighting.problem}")
        finally:
            poller.close()
        self._tally.looks += sighting.looks
        self._tally.views += sighting.changes
        self._tally.rows += sighting.rows
        self._judge_files()

    def _look(self) -> View:
        return files_reader(str(self._out), "")

    def _newest_checkpoint(self) -> str:
        found = self._storage.glob("killed/chk-*/_metadata")
        newest = max(found, key=lambda path: int(path.parent.name[4:]), default=None)
        return "" if newest is None else str(newest.parent)

    def _process(self, point: str | None, *, is_last: bool) -> Ending:
        self._number += 1
        log = str(self._directory / f"process-{self._number}.txt")
        done = self._done()
        strike = None
        if point == IN_A_STAGE:
            strike = self._draw.choice(spark_job.STAGES), self._drawn_record(done)
        elif point is not None:
            owner, call, behind, numbers = self._draw.choice(POINTS[point])
            number = self._draw.choice(numbers)
            if is_last and numbers == (1, 2):
                # The batch after all data: no later one would commit what it leaves.
                number = self._batches - done // BATCH + 1
            strike = owner, CallStrike(number, call, behind)
        Path(f"{log}.plan").write_text(f"{point}: {strike}\n", encoding="utf-8")

        shared = None if point is not None and self._tally.kills[point] < self._own else self._kept.one_more()

        def prepare() -> None:
            if shared is not None:
                connect(*shared)
            Path(self._orders).unlink(missing_ok=True)
            if point == IN_A_STAGE:
                spark_job.order(self._orders, os.getpid(), *strike)
            elif strike is not None:
                prepare_calls(strike[1], strike[0])

        ending = weir(self._arguments(), log, None, prepare)
        self._tally.processes += 1
        is_late = BUSY in ending.words
        self._tally.late += is_late
        if not ending.killed and ending.exit_code and not is_late:
            raise CampaignFailedError(f"process {self._number}: exit code {ending.exit_code}\n{ending.words}")
        return ending

    def _done(self) -> int:
        """How many records of each split the newest checkpoint covers."""
        return sum(covered_rows(self._newest_checkpoint()).values()) // SPLITS

    def _drawn_record(self, done: int) -> int:
        """One of the next two batches."""
        return min(done + self._draw.randrange(1, 2 * BATCH), BATCH * self._batches - 1)

    def _arguments(self) -> list[str]:
        if (self._storage / DESCRIPTOR).exists():
            return ["resume", str(self._storage), "--on", "spark"]
        params = {"records": self._records, "orders": self._orders}
        command = ["run", spark_job.__file__, "--on", "spark", "--storage", str(self._storage), "--out", str(self._out)]
        command += ["--checkpoint-interval", f"{BATCH}rec", "--retain", "3"]
        return command + [part for name, value in params.items() for part in ("--param", f"{name}={value}")]

    def _judge_files(self) -> None:
        left = sorted(path.name for path in self._out.rglob(".*") if path.is_file())
        if left:
            raise CampaignFailedError(f"left in the output: {left}")
        try:
            storage = CheckpointStorage(LocalFileSystem(), str(self._storage), "killed")
            check_live_files(LocalFileSystem(), storage)
        except AssertionError as error:
            raise CampaignFailedError(f"left in storage: {error}") from error


def campaign(each: int, own: int, seed: str, directory: Path, points: list[str]) -> Tally:
    """Kill so many drivers at each of the points; ``own`` of them have a JVM of their own.

    Raises :class:`CampaignFailedError` at the first job that came to another end, or showed something wrong; its
    directory is kept.
    """
    draw, tally = random.Random(seed), Tally()
    os.environ.setdefault("JDK_JAVA_OPTIONS", BRIEF_LIFE)
    with closing(KeptSpark()) as kept:
        while missing := [point for point in points if tally.kills[point] < each]:
            draw.shuffle(missing)
            place = directory / f"job-{tally.jobs}"
            try:
                KilledSparkJob(place, draw, tally, kept, own).to_its_end(missing)
            except CampaignFailedError as failed:
                raise CampaignFailedError(f"kept in {place}: {failed}") from failed
            shutil.rmtree(place)
            tally.jobs += 1
    return tally


def main() -> int:
    """The command line; exit code 1 when a job failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.spark_campaign", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--each", type=int, default=5, help="how many drivers to kill at each point [5]")
    parser.add_argument("--own", type=int, default=1, help="how many of them with a JVM of their own [1]")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--point", action="append", default=[], choices=[IN_A_STAGE, *POINTS], help="repeatable [all]")
    parser.add_argument("--directory", help="where [a temporary directory in memory]")
    options = parser.parse_args()
    points = options.point or [IN_A_STAGE, *POINTS]
    return carried_out(options, lambda directory: campaign(options.each, options.own, options.seed, directory, points))


if __name__ == "__main__":
    sys.exit(main())
