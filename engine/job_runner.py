"""What ``Job.run`` does: settings and surroundings, each by its name, become one run. The package ``engine`` hands it
to the port in ``engine.graph.running``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.setting_fields import DURATION
from engine.elements.suggestions import nearest
from engine.faults.fault_plan import FaultPlan
from engine.graph.job import Job
from engine.graph.plan import ExecutionPlan
from engine.graph.run_settings import Settings, Surroundings
from engine.observe.cut_oracle import CutOracle
from engine.observe.latencies import Latencies
from engine.report import RunResult
from engine.runtime.config import SETTINGS, JobSettings, RunConfig, SparkCluster, config_of, parse_where
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.storage import open_storage
from operators.sources import Arrivals, source_of
from state_backends.snapshots import CheckpointStorage

_GROUPS = {one.owner for one in SETTINGS.values() if one.owner}
_OF_THE_JOB = ("parallelism", "max_parallelism")
_SURROUNDINGS = frozenset(Surroundings.__annotations__)
_OF_RUNS = [name for name in SETTINGS if name not in JobSettings.__dataclass_fields__]
_NAMES = [*_OF_RUNS, "preset", *Surroundings.__annotations__, *_GROUPS]
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "storage": ((str, os.PathLike), "storage='state'"),
    "output_dir": ((str, os.PathLike), "output_dir='out'"),
    "restore": ((bool,), "restore=True"),
    "on": ((str,), "on='spark'"),
    "kills": ((list, tuple), "kills=['count[1]@3ms']"),
    "instruments": ((list, tuple), "instruments=[MessageCounter()]"),
    "audit": ((bool,), "audit=True"),
    "latency": ((bool,), "latency=True"),
}
"""Of the surroundings that are easily mistaken: a text is a sequence of letters, too."""


def run(job: Job, settings: Settings) -> RunResult:
    """Run the job to its end; raises its error when it fails, and ``ConfigurationError`` before anything has
    happened."""
    values = _flat(settings)
    around: dict[str, Any] = {name: values.pop(name) for name in list(values) if name in _SURROUNDINGS}
    for name, value in around.items():
        types, example = _TYPES.get(name, ((object,), ""))
        if not isinstance(value, types):
            raise ConfigurationError(f"run: {name} is {value!r} of type {type(value).__name__}; write {example}")
    for name, value in values.items():
        # The name of a field says the unit of a number; this name does not.
        if SETTINGS[name].kind is DURATION and type(value) is int:
            raise ConfigurationError(f"run: {name} is {value}; write it with a unit: {name}='{value}ns'")
    config = config_of(values)
    oracle = CutOracle() if around.pop("audit", False) else None
    if oracle is not None:
        around["instruments"] = (*around.get("instruments", ()), oracle)
    cluster = parse_where(around.pop("on", None))
    if cluster is not None:
        return RunResult(_run_on(cluster, job, config, around), job.plan(), config, oracle)
    faults = FaultPlan.parse(around.pop("kills", ()))
    latencies = _latencies(job, config, around)
    restore = around.pop("restore", False)
    with _opened(around.pop("storage", None), job.name, config.inline_state_bytes, restore) as (storage, incarnation):
        output_dir = os.fspath(around.pop("output_dir", "."))
        execution = Execution(
            job.plan(), config, storage=storage, incarnation=incarnation, restore=restore, output_dir=output_dir,
            **around,
        )  # fmt: skip
        faults.install(execution)
        return RunResult(execution.run().raise_on_failure(), job.plan(), config, oracle, latencies)


def _latencies(job: Job, config: RunConfig, around: dict[str, Any]) -> Latencies | None:
    """Where the latency of records goes; by default it is measured if records come at times of their own."""
    wanted = around.pop("latency", None)
    if wanted and "provenance" in around:
        raise ConfigurationError("run: latency=True and provenance=... both follow each record; leave one of them out")
    if wanted is None and "provenance" not in around and not config.protocol.tracks_records:
        wanted = has_arrivals(job.plan())
    if not wanted:
        return None
    around["provenance"] = latencies = Latencies()
    return latencies


def has_arrivals(plan: ExecutionPlan) -> bool:
    """Whether records of the job come at times of their own."""
    sources = [source_of(operator.factory) for _, operator in plan.operators()]
    return any(isinstance(getattr(source, "inner", source), Arrivals) for source in sources)


def _run_on(cluster: SparkCluster, job: Job, config: RunConfig, around: dict[str, Any]) -> ExecutionResult:
    from spark_bridge.pipeline import check_installed, check_plan, spark_execution

    known = ("storage", "restore", "output_dir", "instruments")
    for name in around:
        if name not in known:
            raise ConfigurationError(f"run: {name} works in the simulator only; leave it out, or leave out on=")
    storage = around.get("storage")
    if storage is None:
        raise ConfigurationError(
            "run: on='spark' needs a directory for checkpoints that all executors see; add storage='state'"
        )
    # Before anything is created.
    check_plan(job.plan(), config)
    check_installed()
    restore = around.get("restore", False)
    with _opened(storage, job.name, config.inline_state_bytes, restore) as (opened, incarnation):
        assert opened is not None
        execution = spark_execution(
            job.plan(),
            config,
            master=cluster.master,
            storage=opened,
            incarnation=incarnation,
            output_dir=os.path.abspath(os.fspath(around.get("output_dir", "."))),
            restore=restore,
            instruments=around.get("instruments", ()),
        )
        return execution.run().raise_on_failure()


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their names in the table: ``cost={"link_latency": …}`` is ``cost.link_latency``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in _GROUPS:
            found[name] = value
        elif isinstance(value, Mapping):
            found |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            example = next(one for one in SETTINGS.values() if one.owner == name and one.kind is DURATION)
            shown = f"{name}={{{example.name.removeprefix(f'{name}.')!r}: {example.show(example.default)!r}}}"
            raise ConfigurationError(f"run: {name} is {value!r} of type {type(value).__name__}; write {shown}")
    for name in found:
        if name in _OF_THE_JOB:
            raise ConfigurationError(f"run: {name} belongs to the job; write Job(name, {name}=...)")
        if name not in _NAMES:
            close = nearest(name, _NAMES)
            hint = "all of them: docs/configuration.md" if close is None else f"did you mean {close!r}?"
            raise ConfigurationError(f"run: there is no setting {name!r}; {hint}")
    return found


@contextmanager
def _opened(
    directory: str | os.PathLike[str] | None, job_name: str, inline_state_bytes: int, restore: bool
) -> Iterator[tuple[CheckpointStorage | None, int]]:
    """Checkpoint storage, held while the block runs, and the number of its incarnation."""
    if directory is None:
        if restore:
            raise ConfigurationError("run: restore=True needs the directory to restore from; add storage='state'")
        yield None, 1
        return
    if "://" in os.fspath(directory):
        raise ConfigurationError(
            f"run: storage is {directory!r}; it must be a local directory. A URL works with weir run JOB --storage URL"
        )
    path = os.path.abspath(directory)
    with open_storage(path, job_name, inline_state_bytes=inline_state_bytes) as opened:
        # Beginning again over these checkpoints would commit their output a second time.
        if not restore and opened.storage.highest_checkpoint_id():
            raise StorageError(
                f"{path}: holds checkpoints of job {job_name!r}\n"
                "  fix: go on from the newest (restore=True), or choose a new directory for a new run"
            )
        yield opened.storage, opened.incarnation
