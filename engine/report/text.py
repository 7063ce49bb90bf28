"""The report as text: tasks, checkpoints by Flink's names, restores and notes. Renders the JSON-able report, so a
stored one looks like a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from engine.report.units import NOTHING, format_bytes, format_count, format_ns

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

HISTORY_ROWS = 10
"""Newest rows of the checkpoint history that are shown; the report holds them all."""
NOTES = 10
"""Notes that are shown."""

_PERCENTILES = ("min", "avg", "max", "p50", "p90", "p99", "p99.9")
_SUMMARY = (
    ("End to End Duration", "end_to_end_duration_ns", format_ns),
    ("Checkpointed Data Size", "checkpointed_data_size_bytes", format_bytes),
    ("Full Checkpoint Data Size", "full_checkpoint_data_size_bytes", format_bytes),
    ("Processed in-flight data", "processed_in_flight_data_bytes", format_bytes),
    ("Persisted in-flight data", "persisted_in_flight_data_bytes", format_bytes),
)
_SUBTASK_COLUMNS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("End to End Duration", "end_to_end_duration_ns", format_ns),
    ("Checkpointed Data Size", "checkpointed_data_size_bytes", format_bytes),
    ("Sync Duration", "sync_duration_ns", format_ns),
    ("Async Duration", "async_duration_ns", format_ns),
    ("Alignment Duration", "alignment_duration_ns", format_ns),
    ("Start Delay", "start_delay_ns", format_ns),
)


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """Print the parts of a report that say something about this run."""
    for part in report_parts(report):
        console.print(part)


def report_parts(report: Mapping[str, Any]) -> list[RenderableType]:
    """What :func:`print_report` prints, in order."""
    parts: list[RenderableType] = [tasks_table(report)]
    checkpoints = report["checkpoints"]
    if checkpoints["history"]:
        parts += [overview_line(checkpoints), history_table(checkpoints, report["run"]["started_ns"])]
        completed = [row for row in checkpoints["history"] if row["status"] == "COMPLETED"]
        if completed:
            parts += [subtasks_table(completed[-1]), summary_table(checkpoints)]
    parts += [Text(line) for line in restore_lines(report)]
    parts += [Text(line) for line in note_lines(report["notes"])]
    return parts


def tasks_table(report: Mapping[str, Any]) -> Table:
    """One row per subtask of the last attempt, with the counters its operators kept."""
    table = _table("Tasks", ("Task", "State"), ("Records in", "Records out"), last="Counters")
    operators: Mapping[str, Mapping[str, int]] = report["metrics"]["operators"]
    for task in report["tasks"]:
        table.add_row(
            Text(task["name"]),
            task["state"],
            format_count(task["records_in"]),
            format_count(task["records_out"]),
            "",
        )
    for scope, counters in operators.items():
        text = ", ".join(f"{name} {format_count(value)}" for name, value in counters.items())
        table.add_row(Text(f"  {scope}"), "", "", "", Text(text))
    return table


def overview_line(checkpoints: Mapping[str, Any]) -> Text:
    """Flink's Overview in one line."""
    overview = checkpoints["overview"]
    counts = ", ".join(
        f"{name} {overview[key]}"
        for name, key in (
            ("Triggered", "triggered"),
            ("In Progress", "in_progress"),
            ("Completed", "completed"),
            ("Failed", "failed"),
            ("Restored", "restored"),
        )
    )
    return Text(f"Checkpoints: {counts}")


def history_table(checkpoints: Mapping[str, Any], started_ns: int) -> Table:
    """Flink's History, newest first; times count from the start of the run."""
    history = checkpoints["history"]
    shown = history[-HISTORY_ROWS:][::-1]
    title = "History" if len(shown) == len(history) else f"History (newest {len(shown)} of {len(history)})"
    table = _table(
        title,
        ("ID", "Status"),
        (
            "Acknowledged",
            "Trigger Time",
            "Latest Acknowledgement",
            "End to End Duration",
            "Checkpointed Data Size",
            "Full Checkpoint Data Size",
            "Processed (persisted) in-flight data",
        ),
        last="Cut",
    )
    for row in shown:
        latest = row["latest_acknowledgement_ns"]
        in_flight = format_bytes(row["processed_in_flight_data_bytes"])
        table.add_row(
            str(row["id"]),
            row["status"],
            f"{row['acknowledged']}/{row['subtasks']}",
            f"+{format_ns(row['trigger_time_ns'] - started_ns)}",
            NOTHING if latest is None else f"+{format_ns(latest - started_ns)}",
            format_ns(row["end_to_end_duration_ns"]),
            format_bytes(row["checkpointed_data_size_bytes"]),
            format_bytes(row["full_checkpoint_data_size_bytes"]),
            f"{in_flight} ({format_bytes(row['persisted_in_flight_data_bytes'])})",
            Text(_cut(row)),
        )
    return table


def _cut(row: Mapping[str, Any]) -> str:
    if row["status"] == "FAILED":
        reason = (row["failure_reason"] or "failed").lower().replace("_", " ")
        return ": ".join(text for text in (reason, row["failure_message"]) if text)
    if row["orphans"] is None:
        return NOTHING
    if not row["orphans"] and not row["in_transit"]:
        return "consistent"
    return f"{row['orphans']} twice, {row['in_transit']} lost"


def subtasks_table(row: Mapping[str, Any]) -> Table:
    """One completed checkpoint, per operator and subtask, with Min / Avg / Max where there are several."""
    titles = [title for title, _, _ in _SUBTASK_COLUMNS]
    table = _table(f"Checkpoint {row['id']} by operator and subtask", ("Subtask",), titles)
    for operator in row["operators"]:
        for one in operator["subtasks"]:
            cells = [show(one[name]) for _, name, show in _SUBTASK_COLUMNS]
            table.add_row(Text(f"{operator['name']}[{one['subtask']}]"), *cells)
        if len(operator["subtasks"]) > 1:
            for which in ("min", "avg", "max"):
                cells = [show(operator["spread"][name][which]) for _, name, show in _SUBTASK_COLUMNS]
                table.add_row(Text(f"  {which.capitalize()}"), *cells, style="dim")
    return table


def summary_table(checkpoints: Mapping[str, Any]) -> Table:
    """Flink's Summary over the completed checkpoints."""
    table = _table("Summary", ("",), _PERCENTILES)
    for title, name, show in _SUMMARY:
        spread = checkpoints["summary"][name]
        if spread is not None:
            table.add_row(title, *(show(spread[which]) for which in _PERCENTILES))
    return table


def restore_lines(report: Mapping[str, Any]) -> list[str]:
    """How each attempt but an ordinary first one began, and which checkpoints were passed over."""
    lines = []
    for restore in report["restores"]:
        checkpoint_id = restore["checkpoint_id"]
        if checkpoint_id is not None or restore["attempt"] > 1:
            origin = "the beginning" if checkpoint_id is None else f"checkpoint {checkpoint_id}"
            at = format_ns(restore["time_ns"] - report["run"]["started_ns"])
            lines.append(f"attempt {restore['attempt']} started from {origin} at +{at}")
        lines += [f"  passed over: {problem}" for problem in restore["problems"]]
    return lines


def note_lines(notes: Sequence[str]) -> list[str]:
    """The first line of the first notes, and how many more there are; the report has them whole."""
    lines = [f"note: {note.partition(chr(10))[0]}" for note in notes[:NOTES]]
    if len(notes) > NOTES:
        lines.append(f"note: … and {len(notes) - NOTES} further notes in the report")
    return lines


def _table(title: str, left: Sequence[str], right: Sequence[str], last: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in left:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right", overflow="fold")
    if last is not None:
        table.add_column(last, overflow="fold")
    return table
