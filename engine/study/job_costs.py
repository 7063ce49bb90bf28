"""What a checkpoint and a recovery cost a job, measured with runs of the job itself.

A checkpoint is in the way of a job while a task takes its synchronous part, and while channels wait for barriers. How
much of that the job notices depends on where it happens: a pause of a task that would have waited anyway costs nothing.
So the cost is the difference of two makespans, with checkpoints and without them, divided by their number. Work that
goes on beside the job, such as writing to storage, is no part of it.

If records come at times of their own, the makespan says nothing: the job catches up after each checkpoint. Then the
cost is the longest pause of a task, synchronous part and alignment, on average over the checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from math import fsum

from engine.elements.durations import duration_text
from engine.elements.errors import ConfigurationError
from engine.elements.failure_laws import Failures
from engine.elements.laws import Constant
from engine.report import RunResult
from engine.report.units import format_ns

Run = Callable[..., RunResult]
"""Runs the job with these settings on top of its own."""

_PROBED, _LEAST = 10, 4
"""Checkpoints of the run that measures one, and periods in a run that can tell intervals apart."""


def check_length(makespan_ns: int, mtbf_ns: int, period_ns: float = 0.0) -> None:
    """Raises :class:`ConfigurationError` when a run sees less than one failure on average, or hardly a checkpoint."""
    least_ns = max(mtbf_ns, _LEAST * period_ns)
    if makespan_ns < least_ns:
        also = f" and a checkpoint about each {format_ns(period_ns)}" if period_ns else ""
        raise ConfigurationError(
            f"the job takes {format_ns(makespan_ns)} of virtual time, too short for a failure each"
            f" {format_ns(mtbf_ns)}{also}: it must take at least {format_ns(least_ns)}\n"
            "  fix: give it more records, or more time for each (cost.source_record, cost.record, service), or give a"
            " shorter mtbf"
        )


def check_mode(calm: RunResult) -> None:
    """Raises :class:`ConfigurationError` when the job takes no checkpoints."""
    if not calm.config.protocol.takes_checkpoints:
        raise ConfigurationError(
            f"mode {calm.config.mode} takes no checkpoints, so there is no interval to choose\n"
            "  fix: use mode aligned, unaligned, aligned-timeout or at-least-once"
        )


def checkpoint_cost_ns(run: Run, calm: RunResult, mtbf_ns: int, *, is_paced: bool) -> float:
    """What one checkpoint costs the job. ``calm`` is its run without periodic checkpoints and without failures, and
    ``is_paced`` says that records come at times of their own.

    Raises :class:`ConfigurationError` when a checkpoint costs nothing, or more than the time between two failures.
    """
    every = duration_text(max(1, calm.makespan_ns // _PROBED))
    # With the pause the job gets on between two checkpoints, also if one takes longer than the interval.
    probed = run(checkpoint_interval=every, min_pause=every)
    count = probed.execution.checkpoints.completed - calm.execution.checkpoints.completed
    if count < 1:
        raise ConfigurationError(
            f"no checkpoint completes within the {format_ns(calm.makespan_ns)} of the job\n"
            "  fix: give the job more records, or make checkpoints faster (cost.storage_latency,"
            " cost.storage_bytes_per_s)"
        )
    cost_ns = _mean_pause_ns(probed) if is_paced else (probed.makespan_ns - calm.makespan_ns) / count
    if cost_ns <= 0:
        raise ConfigurationError(
            "a checkpoint costs the job no time, so the shortest interval is the best\n"
            "  fix: say what checkpoints cost: set cost.sync, the time in which a task does nothing else. Times of"
            " storage only delay the end of a checkpoint"
        )
    _check_bearable("a checkpoint", cost_ns, mtbf_ns)
    return cost_ns


def _check_bearable(what: str, cost_ns: float, mtbf_ns: int) -> None:
    if cost_ns > mtbf_ns:
        raise ConfigurationError(
            f"{what} costs the job {format_ns(cost_ns)}, more than the {format_ns(mtbf_ns)} between two failures:"
            f" it hardly gets on with any interval\n  fix: make {what} cheaper, or give a longer mtbf"
        )


def _mean_pause_ns(result: RunResult) -> float:
    pauses = []
    for row in result.checkpoints:
        if row["status"] == "COMPLETED":
            # At least once, and when barriers overtake, no channel waits.
            waits = result.config.protocol.consistent_cut and not row["is_unaligned"]
            pauses.append((row["sync_ns"] or 0) + (row["alignment_ns"] or 0 if waits else 0))
    return fsum(pauses) / len(pauses)


def recovery_cost_ns(run: Run, makespan_ns: int, mtbf_ns: int, period_ns: int, target: str) -> int:
    """How long one recovery takes, from the failure until the tasks have read their state: the first one of a run in
    which ``target`` fails. Raises :class:`ConfigurationError` when it is longer than the time between two failures."""
    failure = Failures(Constant(makespan_ns * 3 // 5), target, during_recovery=False)
    result = run(checkpoint_interval=duration_text(period_ns), failures=failure)
    cost_ns: int = next((time_ns for time_ns in result.recoveries["recovery_ns"] if time_ns is not None), 0)
    _check_bearable("a recovery", cost_ns, mtbf_ns)
    return cost_ns
