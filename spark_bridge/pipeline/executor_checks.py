"""Whether the executors can run a job, before its first batch: one small Spark job asks each of them for facts.

A wrong executor would fail in the middle of a batch, with an error of Spark or of an import that names no host.
"""

from __future__ import annotations

import os
import platform
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.graph.plan import ExecutionPlan
from spark_bridge.errors import ExecutorError, SparkBridgeError
from spark_bridge.jvm import beside
from spark_bridge.pipeline import executor_facts
from spark_bridge.pipeline.stages import stages_of
from state_backends.files import LocalFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_SECONDS = 180.0
"""An executor takes the small job within this time, or the cluster has none to give."""


STAGES = ("pyarrow", "spark_bridge.pipeline.stage_function")
"""What stages of a job import."""


def check_executors(
    session: SparkSession,
    directories: Sequence[str],
    name: str,
    driver: int,
    job: object,
    needs: Sequence[str] = STAGES,
) -> None:
    """Ask all executors. ``directories``: the driver puts a file of this ``name`` into each, and executors must see it;
    all drivers of a job give one name, so that the file of one that has died does not stay. ``driver``: the number of
    this one. ``job``: must be loadable there; it may be pickled already. ``needs``: modules that its work imports.

    Raises :class:`ExecutorError` when one cannot run the job, :class:`SparkBridgeError` when none answers.
    """
    from pyspark import cloudpickle

    packed: bytes = job if isinstance(job, bytes) else cloudpickle.dumps(job)  # type: ignore[no-untyped-call]
    cloudpickle.register_pickle_by_value(executor_facts)  # type: ignore[no-untyped-call]
    try:
        with _files(directories, name, driver) as files:
            facts = _asked(session, files, packed, needs)
    finally:
        cloudpickle.unregister_pickle_by_value(executor_facts)  # type: ignore[no-untyped-call]
    check_facts(facts)


def check_facts(facts: Iterable[Mapping[str, Any]]) -> None:
    """Raises :class:`ExecutorError` with every problem of every host. ``facts``: of :func:`executor_facts.facts_of`."""
    problems = dict.fromkeys(f"{one['host']} {problem}" for one in facts for problem in _problems(one))
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ExecutorError(f"executors cannot run the job, so nothing was started:\n{listed}")


def _problems(facts: Mapping[str, Any]) -> Iterator[str]:
    # By name: the front door of Weir leads to rooms above this one.
    version = import_module("engine").__version__
    mine, python = platform.python_version_tuple()[:2], facts["python"]
    if tuple(python.split(".")[:2]) != mine:
        yield (
            f"runs Python {python}, and the driver runs {platform.python_version()}\n"
            f"    fix: install Python {'.'.join(mine)} there, and name it in PYSPARK_PYTHON"
        )
    wanted = f"pip install 'weirstream[spark]=={version}'"
    if facts["weir"] is None:
        yield f"has no Weir in {facts['executable']}\n    fix: {wanted} there, or name another Python in PYSPARK_PYTHON"
    elif facts["weir"] != version:
        yield f"has Weir {facts['weir']}, and the driver has {version}\n    fix: {wanted} there"
    elif facts["imports"] is not None:
        yield f"cannot import what its work needs: {facts['imports']}\n    fix: {wanted} there"
    elif facts["job"] is not None:
        yield (
            f"cannot load the job: {facts['job']}\n"
            "    fix: install this module there, or keep it beside the job file: then it travels with the job"
        )
    for path, problem in facts["files"].items():
        yield (
            f"does not share {posixpath.dirname(path)} with the driver: {path}: {problem}\n"
            "    fix: name a directory that driver and executors see under one path, and may write"
        )


def cores_of(session: SparkSession) -> int:
    """The cores that executors have."""
    known: Any = session.sparkContext._jsc.sc().statusStore().executorList(True)
    return sum(known.apply(number).totalCores() for number in range(known.size()))


def few_cores(plan: ExecutionPlan, cores: int) -> str | None:
    """A note when the subtasks of a stage cannot run at the same time; ``None`` when they can."""
    largest = max(stages_of(plan), key=lambda stage: len(stage.subtasks))
    wanted = len(largest.subtasks)
    if cores >= wanted:
        return None
    return (
        f"executors have {cores} core{'s' * (cores != 1)}, and stage {largest.number} has {wanted} subtasks, which run"
        " one after the other\n"
        f"  fix: give the cluster {wanted} cores, or run the job with --parallelism {max(cores, 1)}"
    )


@contextmanager
def _files(directories: Sequence[str], name: str, driver: int) -> Iterator[dict[str, str]]:
    """Files of the driver, by path, with their text."""
    files = {posixpath.join(one, name): f"driver {driver} in {one}\n" for one in directories}
    file_system = LocalFileSystem()
    try:
        for path, text in files.items():
            file_system.make_dirs(posixpath.dirname(path))
            with file_system.open_write(path) as file:
                file.write(text.encode())
                # A network file system shows it to other hosts after this.
                file.fsync()
        yield files
    finally:
        for path in files:
            if file_system.exists(path):
                file_system.delete(path)


def _asked(
    session: SparkSession, files: Mapping[str, str], packed: bytes, needs: Sequence[str]
) -> list[dict[str, Any]]:
    """The facts of all executors: twice as many tasks as cores, so that each gets one."""
    context = session.sparkContext
    tasks = 2 * context.defaultParallelism
    # By name: a reference to its module would have the executor import it.
    facts_of = executor_facts.facts_of
    rows = context.parallelize(range(tasks), tasks).mapPartitions(lambda _: [facts_of(files, packed, needs)])
    try:
        answers: list[dict[str, Any]] = beside(rows.collect, MOST_SECONDS)
    except TimeoutError:
        context.cancelAllJobs()
        raise SparkBridgeError(
            f"no executor of {context.master} has taken a task within {MOST_SECONDS:g} s, so nothing was started\n"
            "  fix: check that the cluster has workers with free cores and memory, and that they reach the driver on"
            f" {os.uname().nodename}"
        ) from None
    return answers
