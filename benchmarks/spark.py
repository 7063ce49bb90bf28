"""Jobs on Spark: W1 in rows and in columns, a batch with next to nothing in it, and state that is hardly touched.

One session on two local cores serves all of it, and its start is not in the time. A query runs batch after batch, each
with its checkpoint, and the bare loop runs between them, while Spark waits. A time is that of a whole batch, from the
checkpoint before (and the reference after it) to its own: so Spark's logs of the query and the commits are in it. The
first batch starts workers and compiles plans; it is left out.

The clock is the wall's, whatever ``--clock`` says: the work is done by other processes.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.columnar import ColumnarKeyedSum
from benchmarks.keyed_sum import KEYS, KeyedSum, bare_loop, expected_sums, make_records, scratch_directory
from benchmarks.measure import Goal, Paired, Result, at_least, below, per_second
from engine.elements.batch import Batch
from engine.graph.job import Job
from engine.graph.plan import ExecutionPlan
from engine.observe.trace_events import CheckpointCompleted, TraceEvent
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import ExecutionResult
from engine.runtime.storage import open_storage
from operators.basic import SinkOperator
from operators.sources import GeneratorSource
from state_backends.files import LocalFileSystem
from state_backends.offline import SnapshotContent

if TYPE_CHECKING:
    from state_backends.snapshots import CheckpointStorage

_UNIT = "× bare loop"
_SUBTASKS = 2
_COUNTER = "records"


class _Counted(SinkOperator):
    """Counts records. Counters come back to the driver with each batch."""

    def process_batch(self, batch: Batch) -> None:
        self.context.metrics.count(_COUNTER, len(batch))


class _CountedSink:
    name = "count"

    def create_operator(self) -> SinkOperator:
        return _Counted()


@dataclass(slots=True)
class Laps:
    """Times of batches. ``reference`` runs after each of them, and is not in its time."""

    reference: Callable[[], object]
    seconds: list[float] = field(default_factory=list)
    reference_seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """What the driver's own process has computed in each batch."""
    memory_mib: list[float] = field(default_factory=list)
    """The most that it has held so far."""
    _begun: tuple[float, float] = (0.0, 0.0)

    def begin(self) -> None:
        """The first batch begins."""
        self._begun = time.perf_counter(), time.process_time()

    def batch_over(self) -> None:
        """A batch is over, and the next one begins after the reference."""
        ended = time.perf_counter()
        self.seconds.append(ended - self._begun[0])
        self.cpu_seconds.append(time.process_time() - self._begun[1])
        self.memory_mib.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        before = time.perf_counter()
        self.reference()
        self.reference_seconds.append(time.perf_counter() - before)
        self.begin()

    def warm(self, batches: int) -> Paired:
        """So many batches after the first one, each beside the reference before and after it."""
        assert len(self.seconds) > batches, (len(self.seconds), batches)
        around = tuple((before + after) / 2 for before, after in pairwise(self.reference_seconds))
        return Paired(tuple(self.seconds[1 : batches + 1]), around[:batches])


@dataclass(frozen=True, slots=True)
class Batches:
    """One query: ``plan`` in batches of ``records``, all subtasks of its source together; then ``check``."""

    plan: ExecutionPlan
    records: int
    source_subtasks: int
    check: Callable[[ExecutionResult, CheckpointStorage], None]
    reference: Callable[[], object] = lambda: None
    options: tuple[tuple[str, str], ...] = ()
    batch_size: int = 1_024

    def run(self) -> Laps:
        """The times of all batches; the session runs already, or is started first."""
        from spark_bridge.pipeline import spark_execution

        laps = Laps(self.reference)

        def look(event: TraceEvent) -> None:
            if isinstance(event, CheckpointCompleted):
                laps.batch_over()

        interval = CheckpointInterval(records=self.records // self.source_subtasks)
        config = RunConfig(checkpoint_interval=interval, batch_size=self.batch_size, **dict(self.options))
        with scratch_directory() as directory, open_storage(directory, self.plan.job_name) as opened:
            execution = spark_execution(
                self.plan,
                config,
                master=None,
                storage=opened.storage,
                incarnation=opened.incarnation,
                output_dir=directory,
                instruments=[look],
            )
            laps.begin()
            result = execution.run()
            result.raise_on_failure()
            self.check(result, opened.storage)
        return laps


def measure(quick: bool) -> list[Result]:
    """All of it; nothing when Spark is not installed."""
    if find_spec("pyspark") is None:
        return []
    records, batches = (100_000, 2) if quick else (4_000_000, 5)
    return [
        *_rows(records, batches),
        *_columns(records, 2 if quick else 24),
        _native(records, batches),
        _almost_empty(3 if quick else 15),
        _large_state(*((20_000, 20_000, 2) if quick else (1_000_000, records, batches))),
    ]


# -- W1 ---------------------------------------------------------------------------------------------------------------


def _rows(records: int, batches: int) -> Iterator[Result]:
    case = KeyedSum(records * (batches + 1), parallelism=_SUBTASKS)
    laps = _keyed_sum(case, records).run()
    yield _result("W1 on Spark", laps.warm(batches), records, at_least(0.25))


def _columns(records: int, batches: int) -> Iterator[Result]:
    """Enough of them to show that a long input costs the driver nothing."""
    case = ColumnarKeyedSum(records * (batches + 1), parallelism=_SUBTASKS, batch_size=100_000)
    laps = _keyed_sum(case, records).run()
    yield _result("columnar W1 on Spark", laps.warm(batches), records, at_least(1.5))
    # Python's arenas grow in the first batches; the second half shows whether they go on.
    growth = laps.memory_mib[batches] - laps.memory_mib[batches // 2]
    yield Result(
        f"the driver's own process, input of {case.count:,} records",
        "CPU ms per batch",
        tuple(1_000 * one for one in laps.cpu_seconds[1 : batches + 1]),
        None,
        {"mib_more_in_the_second_half": round(growth, 1)},
    )


def _keyed_sum(case: KeyedSum, records: int) -> Batches:
    plan, rounds = case.plan(_CountedSink()), partial(bare_loop, records)
    return Batches(plan, records, _SUBTASKS, partial(_check_sums, case), rounds, batch_size=case.batch_size)


def _check_sums(case: KeyedSum, result: ExecutionResult, storage: CheckpointStorage) -> None:
    _check_count(case.count, result)
    case.check_checkpoint(storage)


def _check_count(count: int, result: ExecutionResult) -> None:
    came_out = sum(one.get(_COUNTER, 0) for one in result.counters.values())
    assert came_out == count, (came_out, count)


def _result(name: str, pairs: Paired, records: int, goal: Goal | None) -> Result:
    details = {
        "records_per_s": per_second(records, pairs.seconds),
        "bare_loop_records_per_s": per_second(records, pairs.reference_seconds),
    }
    return Result(name, _UNIT, pairs.speed_ratios, goal, details)


def _native(records: int, batches: int) -> Result:
    """The sums of W1 by Spark alone: its own source, aggregation and state store, no Python for any record. It gives
    the sum of a key once per batch, and not after every record."""
    from pyspark.sql import functions as f

    from spark_bridge.session import get_session

    laps, sums, wanted = Laps(partial(bare_loop, records)), {}, batches + 1

    def look(frame: Any, number: int) -> None:
        # The query goes on until it is stopped, and Spark fails a batch whose state nobody has asked for.
        found = frame.collect()
        if number < wanted:
            sums.update(found)
            laps.batch_over()

    session = get_session()
    stream = session.readStream.format("rate-micro-batch")
    rows = stream.options(rowsPerBatch=records, numPartitions=_SUBTASKS, startTimestamp=0).load()
    keyed = rows.selectExpr(f"(value * 2654435761 & 4294967295) div 128 % {KEYS} AS key", "value % 1000 * 2 AS value")
    grouped = keyed.groupBy("key").agg(f.sum("value").alias("sum"))
    with scratch_directory() as directory:
        query = grouped.writeStream.outputMode("update").foreachBatch(look).option("checkpointLocation", directory)
        laps.begin()
        running = query.start()
        try:
            while len(laps.seconds) < wanted:
                assert not running.awaitTermination(1), running.exception()
        finally:
            running.stop()
    assert sums == expected_sums(records * wanted), "the sums of Spark are wrong"
    return _result("W1 by Spark's own aggregation", laps.warm(batches), records, None)


# -- batches and state ------------------------------------------------------------------------------------------------


def _almost_empty(batches: int) -> Result:
    records = 10
    count = records * (batches + 1)
    job = Job("almost-empty")
    source = job.source(GeneratorSource(make_records, count))
    source.key_by(lambda record: record[0]).reduce(_later, uid="last").sink(_CountedSink())
    query = Batches(job.plan(), records, 1, lambda result, _: _check_count(count, result))
    return Result("almost empty batch, one keyed stage", "s", query.run().warm(batches).seconds, below(0.6))


def _later(_before: Any, record: Any) -> Any:
    return record


def _large_state(keys: int, records: int, batches: int) -> Result:
    """Times with ``keys`` in state, of which a hundredth change in each batch, over those with this hundredth alone."""
    with_state, without = (
        _few_of_many(keys, kept, records, batches).run().warm(batches) for kept in (keys, keys // 100)
    )
    extra = tuple(
        100.0 * (alone / own - 1.0) for own, alone in zip(with_state.speed_ratios, without.speed_ratios, strict=True)
    )
    details = {"s_per_batch": round(median(with_state.seconds), 2)}
    return Result(f"{keys:,} keys in state, 1 % changed, incremental", "% more time", extra, below(15.0), details)


def _few_of_many(keys: int, kept: int, records: int, batches: int) -> Batches:
    """The first batch begins with a record for each of the ``kept`` keys. After them come records of every hundredth of
    ``keys``."""
    count = records * (batches + 1)

    def make(start: int, stop: int) -> list[tuple[int, int]]:
        first = [(i % kept * (keys // kept), 1) for i in range(start, min(stop, keys))]
        return first + [(i % (keys // 100) * 100, 1) for i in range(max(start, keys), stop)]

    def check(result: ExecutionResult, storage: CheckpointStorage) -> None:
        _check_count(count, result)
        metadata, problems = storage.latest_usable()
        assert metadata is not None, problems
        place = storage.location(metadata.checkpoint_id).directory
        values = [entry.value for entry in SnapshotContent.at(LocalFileSystem(), place).entries("sum")]
        assert (len(values), sum(values)) == (kept, count), (len(values), sum(values))

    job = Job("few-of-many", parallelism=_SUBTASKS)
    source = job.source(GeneratorSource(make, count), parallelism=1)
    keyed = source.key_by(lambda record: record[0], value=lambda record: record[1])
    keyed.reduce(_add, uid="sum").sink(_CountedSink())
    options = (("state_backend", "lsm"), ("snapshot", "incremental"))
    return Batches(job.plan(), records, 1, check, partial(bare_loop, records), options)


def _add(before: int, value: int) -> int:
    return before + value
