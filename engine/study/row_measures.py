"""The numbers of a row: what a study returns, as plain values by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import fsum
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.observe.histogram import Histogram
from engine.observe.latencies import Latencies
from engine.report import RunResult
from engine.study.case_grid import python_number

_OF_CHECKPOINTS = ("end_to_end_ns", "alignment_ns", "checkpointed_bytes", "full_bytes", "persisted_bytes")


def measures_of(returned: object, taken: Collection[str] = ()) -> dict[str, Any]:
    """By name. Raises :class:`ConfigurationError` when the study has returned something else, or a measure whose name
    is ``taken`` by another column of the row."""
    if isinstance(returned, RunResult):
        return _of_run(returned)
    returned = python_number(returned)
    if isinstance(returned, (int, float)) and not isinstance(returned, bool):
        return {"value": returned}
    if isinstance(returned, Mapping) and returned:
        return {_name(name, taken): _value(name, value) for name, value in returned.items()}
    raise ConfigurationError(
        f"the study returned {returned!r} of type {type(returned).__name__}; return the result of job.run(...), a"
        " number, or a dict of numbers by name"
    )


def _name(name: object, taken: Collection[str]) -> str:
    if not isinstance(name, str):
        raise ConfigurationError(f"the study returned a measure named {name!r}; names are texts")
    if name in taken:
        raise ConfigurationError(f"the study returned a measure named {name!r}, which a row has already; rename it")
    return name


def _value(name: str, value: object) -> Any:
    value = python_number(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigurationError(
        f"the study returned {name}={value!r} of type {type(value).__name__}; a measure is a number or a text"
    )


def _of_run(result: RunResult) -> dict[str, Any]:
    statistics = result.execution.checkpoints
    found = {
        "makespan_ns": result.makespan_ns,
        "attempts": result.attempts,
        "source_records": result.source_records,
        "replayed_records": result.replayed_records,
        "lost_ns": sum(lost or 0 for lost in result.recoveries["lost_ns"]),
        "recovery_ns": sum(recovery or 0 for recovery in result.recoveries["recovery_ns"]),
        "checkpoints": statistics.completed,
        "failed_checkpoints": statistics.failed,
    }
    completed = [row for row in result.checkpoints if row["status"] == "COMPLETED"]
    for column in _OF_CHECKPOINTS:
        values = sorted(row[column] for row in completed if row[column] is not None)
        stem, _, unit = column.rpartition("_")
        found[f"{stem}_mean_{unit}"] = fsum(values) / len(values) if values else None
        found[f"{stem}_p99_{unit}"] = percentile(values, 99) if values else None
    if result.latencies is not None:
        found |= _latency(result.latencies)
    # Two runs are the same run if they have made the same choices.
    return {**found, "choices": result.execution.choices.digest()}


def _latency(latencies: Latencies) -> dict[str, Any]:
    """Of all sinks together."""
    together = Histogram()
    for one in latencies.events.values():
        together.merge(one)
    percentiles = {f"latency_p{percent}_ns": together.percentile(percent) for percent in (50, 99)}
    return {"latency_mean_ns": together.mean, **percentiles}


def percentile(ordered: list[Any], percent: int) -> Any:
    """The least value that this part of all values does not exceed."""
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
