"""Runs to report on: a small keyed job, as it ends in several ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine import CollectionSource, FileSink, Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace import TraceDigest
from engine.report import RunFacts, build_report, judge_run
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from state_backends.files import MemoryFileSystem


@dataclass(frozen=True)
class Run:
    """A finished run with everything that a report is made from."""

    execution: Execution
    result: ExecutionResult
    oracle: CutOracle
    report: dict[str, Any]


def make_run(*, kill: bool = False, fail: bool = False, mode: str = "aligned", parallelism: int = 2) -> Run:
    """Run the job; the report is built as the command line builds it."""

    def check(value: int) -> int:
        if fail and value == 30:
            raise ValueError("thirty")
        return value

    job = Job("sums", parallelism=parallelism)
    (
        job.source(CollectionSource(list(range(60)), splits=2), name="numbers")
        .map(check, name="check")
        .key_by(lambda value: value % 5)
        .reduce(lambda left, right: left + right, name="sum")
        .sink(FileSink("sums"), name="out")
    )
    # Storage takes its time, so that a kill can meet a checkpoint that is still in progress.
    config = RunConfig(
        mode=mode,
        batch_size=4,
        checkpoint_interval=CheckpointInterval(records=20),
        cost=CostModel(storage_latency_ns=1_500),
        inline_state_bytes=0,
    )
    oracle, digest = CutOracle(), TraceDigest()
    execution = Execution(
        job.plan(), config, file_system=MemoryFileSystem(), output_dir="/out", instruments=[oracle, digest]
    )
    if kill:
        execution.kill("sum", 22_000)
    result = execution.run()
    facts = RunFacts(weir_version="0", python_version="3", trace_events=digest.events, trace_digest=digest.hexdigest())
    verdict = judge_run(result, oracle, config.protocol)
    report = build_report(result, job.plan(), config, oracle, verdict, facts)
    return Run(execution, result, oracle, report)
