"""The end of a run in four lines: what ran, what failed and was recovered, the checkpoints, the output.

The verdict and the next command follow as the fifth. Computed from the JSON-able report, as the tables are, so that a
stored report has the same summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.report.text import restore_lines
from engine.report.units import format_bytes, format_count, format_ns, plural

_MORE = " (--table shows all)"


def summary_lines(report: Mapping[str, Any], *, with_table: bool = False) -> list[str]:
    """Four lines. A hint leads to what they leave out, unless they stand below the tables."""
    hint = "" if with_table else _MORE
    output = f"output in {report['run']['output_dir']}"
    return [_ran(report["run"]), _failures(report), _checkpoints(report) + hint, output]


def _ran(run: Mapping[str, Any]) -> str:
    again = f" ({format_count(run['replayed_records'])} of them again)" if run["replayed_records"] else ""
    return (
        f"{plural(run['source_records'], 'record')}{again} in {format_ns(run['duration_ns'])} of virtual time,"
        f" {plural(run['attempts'], 'attempt')}, trace digest {run['trace_digest'][:16]}"
    )


def _failures(report: Mapping[str, Any]) -> str:
    """The first thing that happened, how many more there are, each checkpoint that was passed over, and the newest
    start of tasks."""
    starts = restore_lines(report)
    happened = [text.partition("\n")[0] for text in report["notes"]]
    parts = happened[:1]
    if len(happened) > 1:
        parts.append(plural(len(happened) - 1, "further note"))
    # A damaged checkpoint is a warning about the storage, whatever else has happened.
    parts += [text.strip() for text in starts if text.startswith(" ")]
    parts += [text for text in starts if not text.startswith(" ")][-1:]
    if report["run"]["error"] is not None:
        parts.append("the job failed")
    return "; ".join(parts) or "no task failed"


def _checkpoints(report: Mapping[str, Any]) -> str:
    checkpoints, acking = report["checkpoints"], report["acking"]
    counts, history, summary = checkpoints["counts"], checkpoints["history"], checkpoints["summary"]
    if acking is not None:
        told = {"acknowledged": "completed", "failed": "failed", "timed out": "timed_out"}
        roots = ", ".join(f"{format_count(acking[key])} {name}" for name, key in told.items())
        return f"no checkpoints, but {plural(acking['tracked'], 'tracked record')}: {roots}"
    if report["run"]["mode"] == "none":
        return "no checkpoints: mode none takes none"
    if not counts["total"]:
        return "no checkpoints"
    text = f"{plural(counts['completed'], 'checkpoint')} completed"
    if counts["failed"]:
        reasons = {row["failure_reason"]: None for row in history if row["status"] == "FAILED"}
        text += f", {format_count(counts['failed'])} failed" + (f" ({', '.join(reasons)})" if reasons else "")
    if counts["in_progress"]:
        text += f", {format_count(counts['in_progress'])} in progress"
    if not counts["completed"]:
        return text
    waits = [row["summary"]["alignment"]["duration"]["max"] or 0 for row in history if row["status"] == "COMPLETED"]
    aligned = f" (alignment up to {format_ns(max(waits))})" if any(waits) else ""
    longest, largest = summary["end_to_end_duration"]["max"], summary["checkpointed_size"]["max"]
    return f"{text}; longest {format_ns(longest)}{aligned}, largest {format_bytes(largest)}"
