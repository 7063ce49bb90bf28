"""The cases of a sweep on the executors of a Spark cluster. There, too, each has a process of its own, forked from one
that has run no case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from engine.runtime.config import SparkCluster
from engine.study.case_processes import CaseT, Outcome, each_in_its_process

Each = Callable[[Sequence[CaseT]], Iterator[tuple[int, Outcome]]]
"""Runs cases; gives ``(number of the case, outcome)``, as they end."""

_RUNTIME = "engine.job_runner"


@contextmanager
def on_executors(work: Callable[[CaseT], Any], cluster: SparkCluster) -> Iterator[Each[CaseT]]:
    """What runs cases on the executors. Raises, before any of them, what is wrong with these or with the study."""
    from spark_bridge.executor_pool import ExecutorPool, pool_session
    from spark_bridge.pipeline.giving_up import SWEEP

    # A task has one case, so its row is written as soon as it ends.
    with ExecutorPool(pool_session(cluster.master, _RUNTIME), partial(_in_worker, work), SWEEP, most=1) as pool:
        yield lambda cases: pool.as_they_end((case,) for case in cases)


def _in_worker(work: Callable[[CaseT], Any]) -> Callable[[CaseT], Outcome]:
    """What a Python worker runs each case with."""
    # As in a sweep of this machine, the processes of cases have the runtime already.
    import_module(_RUNTIME)
    return partial(_outcome, work)


def _outcome(work: Callable[[CaseT], Any], case: CaseT) -> Outcome:
    ((_, outcome),) = each_in_its_process(work, [case], 1)
    return outcome
