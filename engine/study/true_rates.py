"""How many tasks does each vertex need, and how much state moves when their number changes?"""

from __future__ import annotations

from math import ceil

from engine.elements.errors import ConfigurationError
from engine.elements.laws import parse_rate
from engine.report import ResultTable, RunResult
from state_backends.base import operator_index_for_key_group


def rescaling(result: RunResult, rate: str) -> ResultTable:
    """The number of tasks with which each vertex (operators in one chain) handles ``rate``, such as ``"900/s"``: the
    records of all sources together.

    The rule of DS2: tasks = load / true rate, rounded up. The load of a vertex is its part of the records in this run;
    the true rate of a task is its records per second in which it works, not counting the time in which it waits
    for input or for room in an output (V. Kalavri et al.: Three steps is all you need, OSDI 2018). If the time for a
    record depends on the number of tasks, repeat it with a run at the proposed numbers; three steps are enough.

    ``moved_share`` is the part of the keyed state that another task has after stopping the job and starting
    it with these numbers; ``None`` = it has no keyed state, or fewer key groups (``max_parallelism``) than tasks are
    needed. A vertex whose records take no time keeps its number, and has no rate.

    Raises :class:`ConfigurationError` for what is no rate, and for a run that read nothing.
    """
    per_ns = parse_rate(rate)
    if not result.source_records:
        raise ConfigurationError("rescaling: no source of the run read a record; give the job input")
    rows = []
    for vertex in result.plan.vertices:
        tasks = [task for task in result.execution.tasks if task.vertex == vertex.name]
        records, busy_ns = sum(task.total_records_in for task in tasks), sum(task.times.busy_ns for task in tasks)
        before, groups = vertex.parallelism, vertex.max_parallelism
        # Load and true rate have the vertex's own records in common. A fraction: 3.0 tasks are three, not four.
        after = max(1, ceil(per_ns * busy_ns / result.source_records)) if busy_ns else before
        is_keyed = any(operator.keyed for operator in vertex.operators)
        moved = moved_share(before, after, groups) if is_keyed and after <= groups else None
        rows.append((vertex.name, before, records / busy_ns * 1e9 if busy_ns else None, after, groups, moved))
    columns = ("vertex", "parallelism", "true_rate_per_s", "proposed", "max_parallelism", "moved_share")
    return ResultTable("rescaling", columns, rows)


def moved_share(before: int, after: int, key_groups: int) -> float:
    """The share of key groups that another subtask has when ``before`` subtasks become ``after``.

    Subtask i of p has the groups from i / p to (i + 1) / p. So a group stays only where subtask i has it before and
    after (S. Richter: A deep dive into rescalable state in Apache Flink, Flink blog of 2017-07-04).
    """
    owners = (
        [operator_index_for_key_group(key_groups, one, group) for group in range(key_groups)] for one in (before, after)
    )
    moved: int = sum(old != new for old, new in zip(*owners, strict=True))
    return moved / key_groups
