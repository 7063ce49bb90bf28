"""Small recorded runs, made once for each module that asks."""

from __future__ import annotations

from typing import Any

from engine import CollectionSource, Job
from engine.explore.cases import FIFO, Case
from engine.explore.run import Subject
from engine.faults.fault import parse_fault
from engine.faults.injector import FaultInjector
from engine.observe.trace import TraceDigest
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import ChoiceRecorder
from engine.view import Recorder, run_data
from examples.teaching import counting
from operators.log.connectors import LogSink

CASE = Case(
    config={"batch_size": 1, "cost.source_record_ns": 0, "mode": "at-least-once"},
    faults=(parse_fault("crash:job manager@after:manifest.rename#1"),),
    checkpoints=(0,),
    scheduler=FIFO,
    schedule={1: 1, 2: 1, 3: 2},
    dropped={"right/sequence-0-of-1": ((1, 2),)},
)
"""Of ``counting.py``: a record sent after its source's snapshot reaches the counter before the counter's, and is read
again after the crash."""


def recorded(
    job: Job | None = None, *faults: str, mode: str = "aligned", seed: str = "1", most: int = 60_000, **settings: Any
) -> tuple[Recorder, str]:
    """A run of a job (by default, of ``examples/teaching/counting.py``) with a recorder; and its trace digest."""
    digest = TraceDigest()
    return recorded_run(job, *faults, digest=digest, mode=mode, seed=seed, most=most, **settings)[0], digest.hexdigest()


def recorded_run(
    job: Job | None = None,
    *faults: str,
    digest: TraceDigest | None = None,
    mode: str = "aligned",
    seed: str = "1",
    most: int = 60_000,
    **settings: Any,
) -> tuple[Recorder, ExecutionResult]:
    """The same, with the result of the run."""
    made = counting.job() if job is None else job
    config = RunConfig(
        **{"mode": mode, "seed": seed, "batch_size": 1, "checkpoint_interval": CheckpointInterval.parse("2rec")}
        | settings
    )
    recorder = Recorder(Subject(lambda _: made, label=made.name), most=most)
    plan = recorder.of_run(made.plan(), "/nowhere")
    choices = ChoiceRecorder(config.seed)
    injector = FaultInjector([parse_fault(one) for one in faults], choices=choices)
    instruments = [recorder.observe, *([] if digest is None else [digest])]
    execution = Execution(plan, config, choices=choices, interference=injector, instruments=instruments)
    injector.install(execution)
    return recorder, recorder.run(execution)


def wide(parallelism: int) -> Job:
    """Five records through very many subtasks."""
    job = Job("wide", max_parallelism=max(64, parallelism))
    numbers = job.source(CollectionSource(list(range(5))), name="numbers")
    most = numbers.key_by(lambda one: one).reduce(max, name="most", parallelism=parallelism)
    most.sink(LogSink("most"), name="out", chain=False)
    return job


def plain_digest(mode: str = "aligned", seed: str = "1") -> str:
    """The digest of the same run without a recorder and without an injector."""
    config = RunConfig(mode=mode, seed=seed, batch_size=1, checkpoint_interval=CheckpointInterval.parse("2rec"))
    digest = TraceDigest()
    Execution(counting.job().plan(), config, instruments=[digest]).run()
    return digest.hexdigest()


def data_of(recorder: Recorder) -> dict[str, Any]:
    return run_data(recorder, {})
