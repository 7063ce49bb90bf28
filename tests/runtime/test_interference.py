"""What a death or a silence in the middle of a step does to a run, and what it does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from engine.checkpoint.restart import FixedDelayRestart
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.observe.events import TaskState, TraceEvent
from engine.observe.points import AFTER, BEFORE
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.cost import CostModel
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.failover import HeartbeatTimeoutError
from engine.runtime.interfered_task import InterferedSourceTask, InterferedTask
from engine.runtime.interference import DELIVERED, JOB_MANAGER, PROCESS, ProcessDiedError, StruckDown
from engine.runtime.source_task import SourceTask
from engine.runtime.task import Task
from operators.sinks import CollectedResults
from operators.sources import SequenceSource

RECORDS, KEYS = 24, 3
EXPECTED = Counter((key, count) for key in range(KEYS) for count in range(1, 1 + len(range(key, RECORDS, KEYS))))


class Nothing:
    """Goes wrong; base of those that have something go wrong at a point."""

    def at(self, point: str, phase: str, actor: str) -> None:
        """Nothing."""

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        """As usual."""
        return DELIVERED

    def element_delay_ns(self, channel: str, kind: str) -> int:
        """None."""
        return 0

    def clock_skew_ns(self, task: str) -> int:
        """None."""
        return 0

    def hold_ns(self, task: str, is_source: bool) -> int:
        """Not at all."""
        return 0

    def watermark_delay_ns(self, task: str) -> int:
        """None."""
        return 0


class At(Nothing):
    """Does something the ``number``-th time that an actor comes by somewhere."""

    def __init__(self, point: str, phase: str, actor: str, number: int = 1) -> None:
        self.execution: Execution
        self.visits: list[tuple[str, str, str]] = []
        self._here, self._left = (point, phase, actor), number

    def at(self, point: str, phase: str, actor: str) -> None:
        """Counts."""
        self.visits.append((point, phase, actor))
        if (point, phase, actor) == self._here:
            self._left -= 1
            if not self._left:
                self.strike(actor)

    def strike(self, actor: str) -> None:
        """The actor dies."""
        raise StruckDown(actor, "struck down")


@dataclass
class Log:
    """What the operators of a job were told, as ``(what, attempt)``."""

    told: list[tuple[str, int]] = field(default_factory=list)


class Telling(Operator):
    """Passes records on, and tells what becomes of it."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def process_batch(self, batch: Batch) -> None:
        """Passes it on."""
        self._tell("batch")
        self.output.emit(batch)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tells."""
        self._tell("complete")

    def close(self) -> None:
        """Tells."""
        self._tell("close")

    def _tell(self, what: str) -> None:
        self._log.told.append((what, self.context.attempt))


def told(log: Log) -> Job:
    """A count, and a function behind it in a task of its own that says what is asked of it."""
    job = Job("told", max_parallelism=8)
    pairs = job.source(SequenceSource(0, RECORDS), name="numbers").key_by(
        lambda number: number % KEYS, value=lambda number: (number % KEYS, 1)
    )
    counted = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", parallelism=2)
    log_stream = counted.rebalance().via(lambda: Telling(log), name="tell")
    log_stream.collect(RESULTS, name="out", chain=False)
    return job


RESULTS = CollectedResults()


def config(mode: str = "aligned", **settings: object) -> RunConfig:
    """Checkpoints every 9 us, 700 ns per record, restarts without end."""
    return RunConfig(
        mode=mode,
        batch_size=4,
        checkpoint_interval=CheckpointInterval(time_ns=9_000),
        restart=FixedDelayRestart(None, 1_000),
        master_recovery_ns=1_000,
        cost=CostModel(record_ns=700, storage_latency_ns=900),
        **settings,  # type: ignore[arg-type]
    )
