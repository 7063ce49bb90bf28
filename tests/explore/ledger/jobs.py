"""Jobs and runs that the tests of the ledger share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine import CheckpointInterval, CollectedResults, CollectSink, CostModel, Job, RunConfig, SequenceSource
from engine.explore.ledger import EffectLedger, Findings, Seen, findings, reference
from engine.faults import FaultPlan
from engine.observe.trace_events import CheckpointCut, TraceEvent
from engine.runtime.execution import Execution, ExecutionResult
from state_backends import MemoryFileSystem

RECORDS = 320
KEYS = 5


def counting(results: CollectedResults, *, parallelism: int = 2, records: int = RECORDS, sources: int = 2) -> Job:
    """Running counts per key of the numbers, into ``results``."""
    job = Job("counting", max_parallelism=16)
    numbers = job.source(SequenceSource(0, records, splits=2), name="numbers", uid="numbers", parallelism=sources)
    keyed = numbers.map(lambda number: (number % KEYS, 1), name="pair", uid="pair", parallelism=sources)
    counts = keyed.key_by(lambda pair: pair[0]).reduce(
        lambda a, b: (a[0], a[1] + b[1]), name="count", uid="count", parallelism=parallelism
    )
    counts.sink(CollectSink(results), name="out", uid="out", parallelism=parallelism)
    return job


def config(mode: str = "aligned", **settings: Any) -> RunConfig:
    """Checkpoints every 60 µs, one sender behind a slow link."""
    return RunConfig(
        **{
            "mode": mode,
            "batch_size": 8,
            "checkpoint_interval": CheckpointInterval.parse("60us"),
            "cost": CostModel(slow_links={"numbers[1]": 50_000}),
            **settings,
        }
    )


@dataclass
class Audited:
    """One run with its ledger, and the findings."""

    ledger: EffectLedger
    result: ExecutionResult
    results: CollectedResults
    found: Findings
    cuts: list[CheckpointCut] = field(default_factory=list)

    def told(self) -> list[str]:
        return self.found.paragraphs(self.ledger)


def audited(
    settings: RunConfig,
    kills: Sequence[str] = (),
    *,
    make: Callable[[CollectedResults], Job] = counting,
    transactional: bool = True,
    sees: bool = True,
) -> Audited:
    """Run the job of ``make`` with these kills, and compare it with its reference."""
    results, cuts, ledger = CollectedResults(transactional=transactional), [], EffectLedger()

    def keep(event: TraceEvent) -> None:
        if isinstance(event, CheckpointCut):
            cuts.append(event)

    plan = make(results).plan()
    execution = Execution(
        plan, settings, file_system=MemoryFileSystem(), output_dir="/out", instruments=[keep], provenance=ledger
    )
    FaultPlan.parse(kills).install(execution)
    result = execution.run().raise_on_failure()
    seen = {"out": Seen([repr(record) for record in results.records])} if sees else None
    found = findings(ledger, reference(plan, settings), seen=seen)
    return Audited(ledger, result, results, found, cuts)
