"""Jobs for the tests of mode ``acking``, and a run of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine.graph.job import Job
from engine.observe.trace_events import Instrument
from engine.protocols.acking.settings import AckingSettings
from engine.protocols.acking.statistics import AckingStatistics
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from operators.basic import CollectedResults, CollectSink
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.runtime.support import MS, US

TIMEOUT_NS = 1 * MS


def at_once() -> CollectedResults:
    return CollectedResults(transactional=False)


def pipeline(results: CollectedResults, records: int = 20, *, parallelism: int = 2, splits: int = 2) -> Job:
    """numbers -> tens -> (by key) ones -> sink, every arrow a channel. No task has state."""
    job = Job("pipeline", parallelism=parallelism)
    numbers = job.source(SequenceSource(0, records, splits=splits), name="numbers")
    tens = numbers.rebalance().map(lambda number: number * 10, name="tens")
    ones = tens.key_by(lambda number: number % 7).map(lambda number: number + 1, name="ones")
    ones.rebalance().sink(CollectSink(results), name="sink", parallelism=1)
    return job


def expected(records: int = 20) -> Counter[Any]:
    """The output of :func:`pipeline`, without failures."""
    return Counter(number * 10 + 1 for number in range(records))


def acking_config(**settings: Any) -> RunConfig:
    """Mode acking with a timeout of 1 ms, a commit every 5 µs and links that take 1 µs. Arguments replace any setting;
    those that AckingSettings knows go there."""
    acking = {"timeout_ns": TIMEOUT_NS}
    for name in ("ackers", "timeout_ns", "max_pending", "max_replays", "recovery_ns"):
        if name in settings:
            acking[name] = settings.pop(name)
    settings.setdefault("checkpoint_interval", CheckpointInterval(time_ns=5 * US))
    settings.setdefault("cost", CostModel(link_latency_ns=1 * US))
    return RunConfig(mode="acking", acking=AckingSettings(**acking), **settings)


def storage_on(files: MemoryFileSystem, name: str = "pipeline") -> CheckpointStorage:
    return CheckpointStorage(files, "/checkpoints", name)


def run_acked(
    job: Job,
    config: RunConfig | None = None,
    kills: Sequence[tuple[str, int]] = (),
    instruments: Sequence[Instrument] = (),
    **surroundings: Any,
) -> tuple[ExecutionResult, AckingStatistics]:
    """Run a job; ``kills``: targets and times in ns."""
    chosen = acking_config() if config is None else config
    execution = Execution(job.plan(), chosen, instruments=instruments, **surroundings)
    for target, at_ns in kills:
        execution.kill(target, at_ns)
    result = execution.run()
    execution.manager.validate()
    assert result.acking is not None
    return result, result.acking
