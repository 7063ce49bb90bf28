"""A campaign of kills on a Spark cluster: executors, workers and drivers of a job die at drawn instants.

``python -m tests.crash.cluster_campaign --each 10 --seed 7`` starts a master and two workers, and goes on until so many
of each are dead. The job, the reader of its output and the judge are those of ``spark_campaign``: a row that no
checkpoint covers is early, and in the end every row is there once. ``--workers 1 --cores 2 --batches 3`` is a small
cluster with a short job: one worker, and on it two executors.

An executor dies alone, and the worker starts another. A worker dies with its executor, and this program starts another.
A driver dies at a drawn instant, too; the executors work on, and the next driver goes on from the checkpoint. All
drivers share a JVM that outlives them: a session on a cluster takes half a minute.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import pyspark.sql  # noqa: F401 (before the forks: each of them would need the time)

from spark_bridge.cluster import StandaloneCluster
from tests.crash.campaign import CampaignFailedError, carried_out
from tests.crash.forked import Ending, weir
from tests.crash.jobs import spark_job
from tests.crash.kept_spark import KeptSpark, connect
from tests.crash.spark_campaign import BATCHES, BRIEF_LIFE, BUSY, KilledSparkJob, Tally

EXECUTOR, WORKER, DRIVER, HOLDER = "executor", "worker", "driver", "holder"
AT_ANY_INSTANT = (EXECUTOR, WORKER, DRIVER)
VICTIMS = (*AT_ANY_INSTANT, HOLDER)
"""A holder is an executor that holds output of a stage, and dies at a record in the middle of the next one."""
GIVEN_UP = ("the Spark cluster is gone", "Spark has given up a batch", "no executor of")
"""What a run says when Spark has retried in vain, or has got no executor yet; it goes on with the next process."""
MOST_LATE = 5
"""Processes in a row that may give up."""
WORKER_MIB = 512
"""Of each core, for the executor that has it; Spark takes no less than 450."""
STARTS_SECONDS = 600.0

PROPERTIES = {
    # Very many executors die, and none of them is to blame.
    "spark.task.maxFailures": "50",
    "spark.stage.maxConsecutiveAttempts": "50",
    # Each core is an executor.
    "spark.executor.cores": "1",
    "spark.executor.memory": f"{WORKER_MIB}m",
    # Two attempts at once, as soon as one takes longer than the others.
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "50ms",
}
MASTER = {"spark.deploy.maxExecutorRetries": "-1", "spark.worker.timeout": "15"}


def executors_of(worker: int) -> list[int]:
    """The executors that a worker has started."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == worker and b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


def executors(cluster: StandaloneCluster) -> list[int]:
    """The executors of all workers."""
    return [one for worker in cluster.workers for one in executors_of(worker.pid)]


def wait_for_executors(cluster: StandaloneCluster, count: int) -> None:
    """Wait until so many have started: a busy machine takes its time."""
    end = time.monotonic() + STARTS_SECONDS
    while len(found := executors(cluster)) < count:
        if time.monotonic() > end:
            raise CampaignFailedError(f"{len(found)} of {count} executors have started within {STARTS_SECONDS:g} s")
        time.sleep(0.1)


class Killer:
    """Kills one thing after the other while a driver works, each at a drawn instant.

    Instants are drawn in units of a batch, which takes a second on an idle machine, and ten on a busy one. The first is
    after the first checkpoint of the driver, or in every fourth process after its start.
    """

    def __init__(
        self, cluster: StandaloneCluster, draw: random.Random, kills: Counter[str], wanted: Counter[str]
    ) -> None:
        self._cluster, self._draw, self._kills, self._wanted = cluster, draw, kills, wanted
        self._next_s: float | None = None
        self._checkpoint, self._seen_s, self._batch_s = "", 0.0, 2.0

    @property
    def missing(self) -> list[str]:
        """The kinds of which more must die."""
        return [one for one in VICTIMS if self._kills[one] < self._wanted[one]]

    def holder(self) -> int | None:
        """An executor that is to die in the middle of a stage; ``None``: none this time."""
        found = executors(self._cluster)
        return self._draw.choice(found) if HOLDER in self.missing and found and self._draw.random() < 0.5 else None

    def begin(self, checkpoint: str) -> None:
        """A driver begins, after this checkpoint."""
        self._checkpoint, self._seen_s = checkpoint, 0.0
        self._next_s = self._drawn(0.0) if self._draw.random() < 0.25 else None

    def _drawn(self, lasted_s: float) -> float:
        return lasted_s + self._draw.uniform(0.0, 2.0) * self._batch_s

    def look(self, driver: int, lasted_s: float, checkpoint: str) -> None:
        """The driver with this process id is so old, and this is the newest checkpoint."""
        if checkpoint != self._checkpoint:
            if self._seen_s:
                self._batch_s = lasted_s - self._seen_s
            self._checkpoint, self._seen_s = checkpoint, lasted_s
            if self._next_s is None:
                self._next_s = self._drawn(lasted_s)
        missing = [one for one in self.missing if one != HOLDER]
        if self._next_s is None or lasted_s < self._next_s or not missing:
            return
        victim = self._draw.choice(missing)
        if self._kill(victim, driver):
            self._kills[victim] += 1
            after = os.path.basename(checkpoint) or "the start"
            sys.stderr.write(f"{time.strftime('%X')} {lasted_s:.1f} s: {victim}, after {after}\n")
        self._next_s = self._drawn(lasted_s)

    def _kill(self, victim: str, driver: int) -> bool:
        if victim == DRIVER:
            os.kill(driver, signal.SIGKILL)
            return True
        cluster = self._cluster
        if victim == WORKER:
            worker = self._draw.choice(cluster.workers)
            cluster.workers.remove(worker)
            worker.signal(signal.SIGKILL)
            worker.process.wait()
            cluster.add_worker()
            return True
        found = executors(cluster)
        if not found:
            return False
        os.kill(self._draw.choice(found), signal.SIGKILL)
        return True


class KilledClusterJob(KilledSparkJob):
    """The job of :class:`KilledSparkJob` on a cluster."""

    def __init__(
        self, directory: Path, draw: random.Random, tally: Tally, kept: KeptSpark, killer: Killer, batches: int
    ) -> None:
        super().__init__(directory, draw, tally, kept, 0, batches)
        self._killer = killer
        self._late = 0

    def _process(self, point: str | None, *, is_last: bool) -> Ending:
        self._number += 1
        shared = self._kept.one_more()
        self._killer.begin(self._newest_checkpoint())

        def look(driver: int, lasted_s: float) -> None:
            self._killer.look(driver, lasted_s, self._newest_checkpoint())

        log = str(self._directory / f"process-{self._number}.txt")
        holder = self._killer.holder()
        if holder is not None:
            number = self._drawn_record(self._done())
            spark_job.order(self._orders, holder, self._draw.choice(spark_job.STAGES[1:]), number)
        ending = weir(self._arguments(), log, None, lambda: connect(*shared), look)
        self._tally.processes += 1
        gave_up = any(words in ending.words for words in (BUSY, *GIVEN_UP))
        self._tally.late += gave_up
        self._late = self._late + 1 if gave_up else 0
        if holder is not None:
            self._tally.kills[HOLDER] += Path(f"{self._orders}.done").exists()
            Path(self._orders).unlink(missing_ok=True)
        if not ending.killed and ending.exit_code and (not gave_up or self._late > MOST_LATE):
            raise CampaignFailedError(f"process {self._number}: exit code {ending.exit_code}\n{ending.words}")
        return ending


def campaign(options: argparse.Namespace, directory: Path) -> Tally:
    """Kill so many of each kind of victim.

    Raises :class:`CampaignFailedError` at the first job that came to another end, or showed something wrong; its
    directory is kept.
    """
    draw, tally = random.Random(options.seed), Tally()
    wanted = Counter(dict.fromkeys(options.victim or VICTIMS, options.each))
    properties = PROPERTIES | dict(one.split("=", 1) for one in options.property)
    os.environ.setdefault("JDK_JAVA_OPTIONS", BRIEF_LIFE)
    with ExitStack() as stack:
        cores, memory = options.cores, f"{options.cores * WORKER_MIB}m"
        cluster = stack.enter_context(
            StandaloneCluster(options.workers, cores=cores, memory=memory, seconds=STARTS_SECONDS, options=MASTER)
        )
        kept = stack.enter_context(closing(KeptSpark(cluster.url, properties)))
        wait_for_executors(cluster, options.workers * cores)
        killer = Killer(cluster, draw, tally.kills, wanted)
        while killer.missing:
            place = directory / f"job-{tally.jobs}"
            try:
                KilledClusterJob(place, draw, tally, kept, killer, options.batches).to_its_end([])
            except CampaignFailedError as failed:
                raise CampaignFailedError(f"kept in {place}: {failed}") from failed
            shutil.rmtree(place)
            tally.jobs += 1
    return tally


def main() -> int:
    """The command line; exit code 1 when a job failed."""
    about = (__doc__ or "").split("\n", 1)[0]
    parser = argparse.ArgumentParser(prog="python -m tests.crash.cluster_campaign", description=about)
    parser.add_argument("--each", type=int, default=10, help="how many of each to kill [10]")
    parser.add_argument("--victim", action="append", choices=VICTIMS, help="what to kill; repeatable [all]")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="of Spark; repeatable")
    parser.add_argument("--workers", type=int, default=2, help="of the cluster [2]")
    parser.add_argument("--cores", type=int, default=1, help="of each worker, each with an executor [1]")
    parser.add_argument("--batches", type=int, default=BATCHES, help=f"of each job [{BATCHES}]")
    parser.add_argument("--directory", help="where [a temporary directory in memory]")
    options = parser.parse_args()
    return carried_out(options, partial(campaign, options))


if __name__ == "__main__":
    sys.exit(main())
