"""The display of ``weir explore``: its progress, coverage, and the summary in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

import engine
from engine.observe.points import POINTS
from engine.report.units import NOTHING, format_count, plural

if TYPE_CHECKING:
    from engine.explore.run import Reference, Subject
    from engine.explore.search import CampaignReport, Coverage, Failure

SCHEMA = "weir-explore-1"


def how_far(coverage: Coverage, seconds: float) -> str:
    """The progress of a search, in a line."""
    struck, reachable = coverage.crash_points
    return (
        f"{plural(coverage.runs, 'run')} in {seconds:.0f} s ({_per_second(coverage.runs, seconds)}/s),"
        f" {format_count(len(coverage.behaviours))} distinct,"
        f" {plural(sum(coverage.faults.values()), 'fault')}, crash points {struck}/{reachable}"
    )


def _per_second(runs: int, seconds: float) -> str:
    return f"{runs / seconds:.0f}" if seconds > 0 else "0"


def summary_line(report: CampaignReport) -> str:
    """The whole search in one line of ``key=value``."""
    coverage = report.coverage
    struck, reachable = coverage.crash_points
    happened = sum(1 for name in coverage.applied if coverage.happened[name])
    values: dict[str, object] = {
        "runs": coverage.runs,
        "seconds": f"{report.seconds:.1f}",
        "runs_per_s": _per_second(coverage.runs, report.seconds),
        "jobs": report.order.jobs,
        "distinct": len(coverage.behaviours),
        "run_twice": coverage.checked,
        "min_choices": coverage.choices.least,
        "avg_choices": coverage.choices.mean,
        "max_choices": coverage.choices.greatest,
        "events": coverage.events.total,
        "processes": coverage.processes,
        "faults": sum(coverage.faults.values()),
        "fault_kinds": len(coverage.faults),
        "crash_points": f"{struck}/{reachable}",
        "sometimes": f"{happened}/{len(coverage.applied)}",
        "failures": len(report.failures),
        "reference": "none" if report.reference is None else "+".join(report.reference.kinds).replace(" ", "-"),
        "verdict": report.verdict[0],
    }
    return " ".join(f"{name}={value}" for name, value in values.items())


def coverage_table(coverage: Coverage) -> Table:
    """One row for each visited named point: the number of runs that visited it, and of those with a fault there."""
    table = Table(title="Named points", title_justify="left")
    for name in ("point", "step"):
        table.add_column(name, no_wrap=name == "point")
    for name in ("phase", "runs", "struck"):
        table.add_column(name, justify="right")
    named = None
    for point, phase in coverage.reachable:
        visited, struck = coverage.visited[point, phase], coverage.struck[point, phase]
        times = format_count(struck) if struck else NOTHING
        names = ("", "") if point == named else (point, POINTS[point].meaning)
        table.add_row(*names, phase, format_count(visited), times)
        named = point
    return table


def sometimes_table(coverage: Coverage) -> Table:
    """By event that some run should have: the number of runs in which it was possible, and in which it happened."""
    from engine.explore.invariants import SOMETIMES

    table = Table(title="Sometimes", title_justify="left")
    table.add_column("name", no_wrap=True)
    for name in ("what", "runs", "possible in"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for name in sorted(coverage.applied):
        happened, applied = coverage.happened[name], coverage.applied[name]
        times = format_count(happened) if happened else "never"
        table.add_row(name, SOMETIMES[name].meaning, times, format_count(applied))
    for reason, runs in sorted(coverage.skipped.items()):
        table.add_row("not judged", reason, format_count(runs), format_count(coverage.runs))
    return table


def report_plain(
    report: CampaignReport, subject: Subject, tokens: Sequence[str], written: Sequence[str]
) -> dict[str, Any]:
    """The whole report as plain data, for JSON."""
    name, reason, exit_code = report.verdict
    order = report.order
    return {
        "schema": SCHEMA,
        "weir_version": engine.__version__,
        "job": {"name": subject.label, "file": subject.path, "params": dict(subject.params)},
        "order": {
            "seed": order.seed,
            "runs": order.runs,
            "seconds": order.seconds,
            "jobs": order.jobs,
            "modes": list(order.swarm.modes),
            "settings": dict(order.swarm.fixed),
            "fault_kinds": None if order.swarm.kinds is None else list(order.swarm.kinds),
            "promise": order.promise,
            "keep_going": order.keep_going,
        },
        "seconds": round(report.seconds, 3),
        "coverage": report.coverage.as_plain(),
        "reference": reference_plain(report.reference),
        "failures": [_failure(one, token) for one, token in zip(report.failures, tokens, strict=True)],
        "written": list(written),
        "verdict": {"name": name, "reason": reason, "exit_code": exit_code},
    }


def reference_plain(reference: Reference | None) -> dict[str, Any] | None:
    """The judge of output: in a few words, by sink, why not the second opinion, how it depends on order."""
    if reference is None:
        return None
    return {
        "judged_by": reference.judged_by,
        "sinks": dict(reference.judges),
        "not_evaluated": dict(reference.not_evaluated),
        "order_dependent": reference.order_dependent,
    }


def _failure(failure: Failure, token: str) -> dict[str, Any]:
    from engine.explore.cases import case_to_plain

    return {
        "number": failure.number,
        "seed": failure.seed,
        "token": token,
        "replayed": failure.replayed,
        "trace_digest": failure.digest,
        "violations": [
            {"invariant": one.invariant, "text": one.text, "at_ns": one.at_ns} for one in failure.violations
        ],
        "case": case_to_plain(failure.case),
    }
