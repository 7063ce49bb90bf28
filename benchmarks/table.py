"""How results are shown: as a Markdown table, which is readable as it is and can be pasted into a page."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measure import Result

_COLUMNS = ("case", "unit", "min", "median", "max", "goal", "met", "also")


def machine() -> dict[str, Any]:
    """What the numbers were made on."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def render(results: Sequence[Result]) -> str:
    """The table."""
    rows = [_COLUMNS, *map(_row, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def as_json(results: Mapping[str, Sequence[Result]], *, quick: bool, clock: str) -> dict[str, Any]:
    """Everything measured, with each sample."""
    return {
        "machine": machine(),
        "clock": clock,
        "quick": quick,
        "benchmarks": {
            name: [
                {
                    "case": result.case,
                    "unit": result.unit,
                    "samples": list(result.samples),
                    "median": result.median,
                    "goal": _goal(result),
                    "met": None if result.goal is None else result.goal.met_by(result.median),
                    **({"details": dict(result.details)} if result.details else {}),
                }
                for result in group
            ]
            for name, group in results.items()
        },
    }


def _row(result: Result) -> tuple[str, ...]:
    goal = result.goal
    met = "" if goal is None else ("yes" if goal.met_by(result.median) else "no")
    numbers = (min(result.samples), result.median, max(result.samples))
    also = ", ".join(f"{value:,} {_readable(name)}" for name, value in result.details.items())
    return (result.case, result.unit, *map(_number, numbers), _goal(result) or "", met, also)


def _readable(name: str) -> str:
    return name.replace("_per_s", "/s").replace("_mib", " MiB").replace("_", " ")


def _goal(result: Result) -> str | None:
    if result.goal is None:
        return None
    return f"{'≥' if result.goal.at_least else '<'} {result.goal.bound:g}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
