"""Workload W1, the keyed running sum, and its yardstick: one bare Python loop over a dict.

Record ``i`` has the key ``(i * 2654435761 & 0xFFFFFFFF) // 128 % 10000`` and the value ``i % 1000``. The job doubles
the value, sums up per key in keyed state, emits the sum after every record and counts what comes out; a Python
function of the user is called for each record at each of these steps. The yardstick computes key and value and adds
to a dict: no function is called, nothing is emitted, nothing survives.

After each run of the engine the result is checked: the number of outputs, the sum of every key in live state, and
again the sum of every key as read back from the last checkpoint on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.measure import now
from engine.graph.job import Job
from engine.graph.options import StreamTransform
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.storage import open_storage
from operators.basic import CountedRecords, CountingSink
from operators.sources import GeneratorSource
from state_backends.base import KeyGroupRange, ReducingStateDescriptor
from state_backends.heap import HeapKeyedStateBackend

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan
    from state_backends.api import KeyedStateBackend
    from state_backends.snapshots import CheckpointStorage

KEYS = 10_000
_JOB_NAME = "keyed-sum"
_SOURCE_RECORD_NS = 1_000  # the cost model's default: what an interval in virtual time counts


def bare_loop(count: int) -> dict[int, int]:
    """The yardstick's work: the sum of the values of each key."""
    sums: dict[int, int] = {}
    for i in range(count):
        key = (i * 2654435761 & 0xFFFFFFFF) // 128 % 10000
        value = i % 1000
        sums[key] = sums.get(key, 0) + value
    return sums


def time_bare_loop(count: int) -> float:
    """Seconds of one run of the yardstick."""
    start = now()
    sums = bare_loop(count)
    seconds = now() - start
    assert sum(sums.values()) == sum(expected_sums(count).values()) // 2
    return seconds


@cache
def expected_sums(count: int) -> dict[int, int]:
    """What the job must find: twice the yardstick's sums."""
    return {key: 2 * total for key, total in bare_loop(count).items()}


def make_records(start: int, stop: int) -> list[tuple[int, int]]:
    """Records ``start .. stop - 1`` as (key, value)."""
    return [((i * 2654435761 & 0xFFFFFFFF) // 128 % 10000, i % 1000) for i in range(start, stop)]


@dataclass(frozen=True, slots=True)
class KeyedSum:
    """One way to run the job.

    ``tuples``       reduce whole (key, value) records; without it only the value travels behind ``key_by``;
    ``checkpoints``  periodic checkpoints of a run, besides the last one.
    """

    count: int
    parallelism: int = 1
    batch_size: int = 1_024
    mode: str = "exactly-once"
    tuples: bool = False
    checkpoints: int = 5

    def time(self) -> float:
        """Seconds of one run on a real directory, from the first task to the last, results checked."""
        outputs = CountedRecords()
        plan = self.plan(CountingSink(outputs))
        with scratch_directory() as directory, open_storage(directory, plan.job_name) as opened:
            execution = Execution(
                plan, self._config(), storage=opened.storage, output_dir=directory, incarnation=opened.incarnation
            )
            start = now()
            result = execution.run()
            seconds = now() - start
            result.raise_on_failure()
            assert outputs.total == self.count, (outputs.total, self.count)
            self._check_sums(execution)
            if self.mode != "none":
                assert result.checkpoints.completed > self.checkpoints, result.checkpoints.completed
                self.check_checkpoint(opened.storage)
        return seconds

    def plan(self, sink: StreamTransform) -> ExecutionPlan:
        """The job, which ends in ``sink``."""
        job = Job(_JOB_NAME, parallelism=self.parallelism)
        source = GeneratorSource(make_records, self.count, splits=self.parallelism)
        doubled = job.source(source).map(lambda record: (record[0], record[1] * 2))
        if self.tuples:
            sums = doubled.key_by(lambda record: record[0]).reduce(_add_records, uid="sum")
        else:
            keyed = doubled.key_by(lambda record: record[0], value=lambda record: record[1])
            sums = keyed.reduce(_add_values, uid="sum")
        sums.sink(sink)
        return job.plan()

    def _config(self) -> RunConfig:
        # One more part than checkpoints: the last part ends with the checkpoint that every bounded job takes.
        virtual_ns = self.count * _SOURCE_RECORD_NS // self.parallelism
        interval = CheckpointInterval(time_ns=virtual_ns // (self.checkpoints + 1)) if self.checkpoints else None
        return RunConfig(mode=self.mode, batch_size=self.batch_size, checkpoint_interval=interval)

    def _check_sums(self, execution: Execution) -> None:
        found: dict[int, int] = {}
        for task in execution.manager.tasks.values():
            for context in task.chain.contexts:
                if context.keyed is not None:
                    found.update(self._sums_in(context.keyed))
        assert found == expected_sums(self.count), "the sums in live state are wrong"

    def check_checkpoint(self, storage: CheckpointStorage) -> None:
        """The newest checkpoint must hold the sum of every key."""
        metadata, problems = storage.latest_usable()
        assert metadata is not None, problems
        operator = next(one for one in metadata.operators if one.uid == "sum")
        handles = [subtask.keyed for subtask in operator.subtasks.values() if subtask.keyed is not None]
        everything = KeyGroupRange(0, operator.max_parallelism - 1)
        backend = HeapKeyedStateBackend(None, operator.max_parallelism, everything)
        backend.restore(handles, storage.reader(metadata.checkpoint_id))
        assert self._sums_in(backend) == expected_sums(self.count), "the sums in the last checkpoint are wrong"

    def _sums_in(self, backend: KeyedStateBackend) -> dict[int, int]:
        (name,) = backend.state_names()
        keys = backend.keys(name)
        values = backend.reducing_state(ReducingStateDescriptor(name, _add_values)).get_many(keys)
        return dict(zip(keys, (value[1] for value in values) if self.tuples else values, strict=True))


def _add_values(before: Any, value: Any) -> Any:
    return before + value


def _add_records(before: Any, record: Any) -> Any:
    return (before[0], before[1] + record[1])


@contextmanager
def scratch_directory() -> Iterator[str]:
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        yield str(Path(directory))
