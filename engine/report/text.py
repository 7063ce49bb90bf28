"""The report as text: tasks, checkpoints by Flink's names, restores and notes. Renders the JSON-able report, so a
stored one looks like a fresh one.

Tables are at most 80 columns wide. Uninformative parts are left out (in-flight data that is 0 everywhere, the full
size where it is the checkpointed one, the cuts when all are consistent, as the verdict says); the report has it all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from engine.report.text_tables import TABLE_WIDTH, Column, fitted
from engine.report.units import NOTHING, format_count, format_ns, short_bytes, short_ns

HISTORY_ROWS = 10
"""How many of the newest rows of the checkpoint history are shown."""
TASK_ROWS = 32
"""How many tasks, and counters of operators, are shown."""
SUBTASK_ROWS = 8
"""How many subtasks of a vertex are shown; of more there are only minimum, average and maximum, which one or two
subtasks do not need."""
NOTES = 10
"""How many notes, and losses, are shown."""

_EMPTY = Text()
_SPREAD_ROWS = (
    ("Minimum", "min"), ("Average", "avg"), ("Maximum", "max"),
    ("p50", "p50"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("p99.9", "p999"),
)  # fmt: skip
_TYPES = {
    "CHECKPOINT": "checkpoint",
    "UNALIGNED_CHECKPOINT": "unaligned",
    "SAVEPOINT": "savepoint",
    "SYNC_SAVEPOINT": "sync savepoint",
}
_Show = Callable[[float | None], str]
_SUMMARY: tuple[tuple[str, str, _Show], ...] = (
    ("End to End Duration", "end_to_end_duration", short_ns),
    ("Checkpointed Data Size", "checkpointed_size", short_bytes),
    ("Full Checkpoint Data Size", "state_size", short_bytes),
    ("Processed in-flight data", "processed_data", short_bytes),
    ("Persisted in-flight data", "persisted_data", short_bytes),
)
_SUBTASK_COLUMNS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], _Show], ...] = (
    # Heading, its place in a subtask, the place of its spread in a summary.
    ("End to End Duration", ("end_to_end_duration",), ("end_to_end_duration",), short_ns),
    ("Checkpointed Data Size", ("checkpointed_size",), ("checkpointed_size",), short_bytes),
    ("Sync Duration", ("checkpoint", "sync"), ("checkpoint_duration", "sync"), short_ns),
    ("Async Duration", ("checkpoint", "async"), ("checkpoint_duration", "async"), short_ns),
    ("Alignment Duration", ("alignment", "duration"), ("alignment", "duration"), short_ns),
    ("Start Delay", ("start_delay",), ("start_delay",), short_ns),
)
_FULL_SIZE = ("Full Checkpoint Data Size", ("state_size",), ("state_size",), short_bytes)
_IN_FLIGHT = (
    ("Processed in-flight data", ("alignment", "processed"), ("alignment", "processed"), short_bytes),
    ("Persisted in-flight data", ("alignment", "persisted"), ("alignment", "persisted"), short_bytes),
)


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """Print the informative parts of a report, as wide as the terminal; in a log, as on the narrowest terminal."""
    for part in report_parts(report, console.width if console.is_terminal else min(console.width, TABLE_WIDTH)):
        console.print(part)


def report_parts(report: Mapping[str, Any], width: int = TABLE_WIDTH) -> list[RenderableType]:
    """The parts that :func:`print_report` prints, in order."""
    parts: list[RenderableType] = _spaced(tasks_tables(report, width))
    if report["acking"] is not None:
        parts += _spaced(acking_tables(report["acking"], width))
    checkpoints = report["checkpoints"]
    history = checkpoints["history"]
    if history:
        parts += [_EMPTY, *map(Text, overview_lines(checkpoints))]
        parts += _spaced(history_tables(history, report["run"]["started_ns"], width))
        parts += map(Text, failure_lines(history))
        completed = [row for row in history[:HISTORY_ROWS] if row["status"] == "COMPLETED" and row["tasks"]]
        if completed:
            # Subtasks show where the time went, so take the slowest checkpoint; of equal ones the newest.
            slowest = max(completed, key=lambda row: row["end_to_end_duration"])
            which = ", the slowest of these," if len(completed) > 1 else ""
            parts += _spaced(subtask_tables(f"Checkpoint {slowest['id']}{which} by subtask", slowest, width))
        if checkpoints["counts"]["completed"]:
            parts += _spaced(summary_tables(checkpoints, width))
    lines = [
        *restore_lines(report),
        *note_lines(report.get("losses", ()), "lost", "losses"),
        *note_lines(report["notes"]),
    ]
    return [*parts, _EMPTY, *map(Text, lines)] if lines else parts


def _spaced(tables: Sequence[Group]) -> list[RenderableType]:
    return [part for table in tables for part in (_EMPTY, table)]


# --- tasks --------------------------------------------------------------------------------------------------------


def tasks_tables(report: Mapping[str, Any], width: int = TABLE_WIDTH) -> list[Group]:
    """One row per subtask, and the counters of its operators. For several attempts it names the last one of each task,
    and the totals of all of them."""
    tasks = report["tasks"]
    shown = tasks[:TASK_ROWS]
    is_one = report["run"]["attempts"] <= 1
    columns = [
        Column("Task", [task["name"] for task in shown], is_text=True),
        Column("State", [task["state"] for task in shown], is_text=True),
        Column("Records in", [format_count(task["records_in"]) for task in shown]),
        Column("Records out", [format_count(task["records_out"]) for task in shown]),
    ]
    if not is_one:
        columns.insert(1, Column("Attempt", [str(task["attempt"]) for task in shown]))
        columns += [
            Column("In, all attempts", [format_count(task["total_records_in"]) for task in shown]),
            Column("Out, all attempts", [format_count(task["total_records_out"]) for task in shown]),
        ]
    title = "Tasks" if is_one else "Tasks, each in its last attempt"
    tables = fitted(_of(title, shown, tasks, "first"), columns, width)
    operators: Mapping[str, Mapping[str, int]] = report["metrics"]["operators"]
    counters = [(scope, *counter) for scope, counters in operators.items() for counter in counters.items()]
    if counters:
        shown_counters = counters[:TASK_ROWS]
        tables += fitted(
            _of("Counters" if is_one else "Counters, all attempts together", shown_counters, counters, "first"),
            (
                Column("Operator", [scope for scope, _, _ in shown_counters], is_text=True),
                Column("Counter", [name for _, name, _ in shown_counters], is_text=True),
                Column("Value", [format_count(value) for _, _, value in shown_counters]),
            ),
            width,
        )
    return tables


# --- acking ---------------------------------------------------------------------------------------------------------


def acking_tables(acking: Mapping[str, Any], width: int = TABLE_WIDTH) -> list[Group]:
    """The cost of mode ``acking``, and its results. Roots are records sent, including repeated ones."""
    control = ", ".join(f"{format_count(count)} {kind}" for kind, count in acking["control"].items() if count)
    rows = (
        ("Roots tracked", format_count(acking["tracked"])),
        ("  acknowledged", format_count(acking["completed"])),
        ("  failed", format_count(acking["failed"])),
        ("  timed out", format_count(acking["timed_out"])),
        ("  without an answer", format_count(acking["unresolved"])),
        ("  most at once at a source", format_count(acking["max_pending"])),
        ("Records sent again by a source that lives", format_count(acking["replayed"])),
        ("Records lost on channels", format_count(acking["lost"])),
        ("Latency of a record, mean", format_ns(acking["latency_mean_ns"])),
        ("Latency of a record, longest", format_ns(acking["latency_max_ns"])),
        ("Records between tasks", format_count(acking["data"])),
        ("Control messages", format_count(acking["control_messages"])),
        ("  lost at an acker that was down", format_count(acking["lost_messages"])),
        ("Most entries at an acker", format_count(acking["max_acker_entries"])),
        ("Entries that ackers forgot", format_count(acking["expired_entries"])),
        ("Offsets committed, times", format_count(acking["commits"])),
    )
    columns = (Column("", [name for name, _ in rows], is_text=True), Column("Value", [value for _, value in rows]))
    tables = [*fitted("Record acking", columns, width), *([Group(Text(f"Control: {control}"))] if control else [])]
    return tables + _spouts_table(acking["spouts"], width)


def _spouts_table(spouts: Mapping[str, Mapping[str, int]], width: int) -> list[Group]:
    """One row per subtask of a source."""
    shown = list(spouts.items())[:TASK_ROWS]
    if not shown:
        return []
    columns = [Column("Source", [name for name, _ in shown], is_text=True)]
    counts = {"Roots": "tracked", "Acked": "completed", "Failed": "failed", "Timed out": "timed_out"}
    counts |= {"Sent again": "replayed", "Most pending": "max_pending"}
    columns += [Column(title, [format_count(one[key]) for _, one in shown]) for title, key in counts.items()]
    latencies = {"Mean latency": "latency_mean_ns", "Longest": "latency_max_ns"}
    columns += [Column(title, [format_ns(one[key]) for _, one in shown]) for title, key in latencies.items()]
    return fitted(_of("Record acking, by source", shown, list(spouts), "first"), columns, width)


# --- checkpoints --------------------------------------------------------------------------------------------------


def overview_lines(checkpoints: Mapping[str, Any]) -> list[str]:
    """Flink's Overview: the counts, and the latest checkpoint of each sort."""
    counts, latest = checkpoints["counts"], checkpoints["latest"]
    names = {"Triggered": "total", "In Progress": "in_progress", "Completed": "completed", "Failed": "failed"}
    told = [f"{name} {format_count(counts[key])}" for name, key in (*names.items(), ("Restored", "restored"))]
    of_sort = {"Completed": "completed", "Failed": "failed", "Savepoint": "savepoint", "Restore": "restored"}
    ids = [f"{name} {latest[key]['id']}" for name, key in of_sort.items() if latest[key] is not None]
    return [f"Checkpoints: {', '.join(told)}", *([f"Latest: {', '.join(ids)}"] if ids else [])]


def history_tables(history: Sequence[Mapping[str, Any]], started_ns: int, width: int = TABLE_WIDTH) -> list[Group]:
    """Flink's History, newest first; times count from the start of the run."""
    shown = history[:HISTORY_ROWS]
    columns = [Column("ID", [str(row["id"]) for row in shown])]
    if any(row["checkpoint_type"] != "CHECKPOINT" for row in shown):
        columns.append(Column("Type", [_TYPES[row["checkpoint_type"]] for row in shown], is_text=True))
    columns += [
        Column("Status", [row["status"] for row in shown], is_text=True),
        Column("Acknowledged", [f"{row['num_acknowledged_subtasks']}/{row['num_subtasks']}" for row in shown]),
        *_times(shown, started_ns),
        Column("End to End Duration", [_time(row["end_to_end_duration"]) for row in shown]),
        Column("Checkpointed Data Size", [short_bytes(row["checkpointed_size"]) for row in shown]),
    ]
    if any(row["state_size"] != row["checkpointed_size"] for row in shown):
        columns.append(Column("Full Checkpoint Data Size", [short_bytes(row["state_size"]) for row in shown]))
    if any(row["processed_data"] or row["persisted_data"] for row in shown):
        in_flight = [f"{short_bytes(row['processed_data'])} ({short_bytes(row['persisted_data'])})" for row in shown]
        columns.append(Column("Processed (persisted) in-flight data", in_flight))
    if any(row["orphans"] or row["in_transit"] for row in shown):
        columns.append(Column("Cut", [_cut(row) for row in shown], is_text=True))
    return fitted(_of("History", shown, history, "newest"), columns, width)


def _times(shown: Sequence[Mapping[str, Any]], started_ns: int) -> list[Column]:
    """When each was triggered, and when it was requested if one of them had to wait."""
    # A report of an earlier version has one time only.
    requested = [row.get("request_timestamp", row["trigger_timestamp"]) for row in shown]
    triggered = [row["trigger_timestamp"] for row in shown]
    columns = {"Request Time": requested} if requested != triggered else {}
    columns["Trigger Time"] = triggered
    return [Column(name, [f"+{format_ns(at - started_ns)}" for at in times]) for name, times in columns.items()]


def failure_lines(history: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"checkpoint {row['id']} failed ({row['failure_reason']}): {row['failure_message']}"
        for row in history[:HISTORY_ROWS]
        if row["status"] == "FAILED"
    ]


def _cut(row: Mapping[str, Any]) -> str:
    if row["orphans"] is None:
        return NOTHING
    if not row["orphans"] and not row["in_transit"]:
        return "consistent"
    return f"{row['orphans']} twice, {row['in_transit']} lost"


def subtask_tables(title: str, row: Mapping[str, Any], width: int = TABLE_WIDTH) -> list[Group]:
    """One checkpoint by task and subtask, with minimum, average and maximum where there are more than two."""
    shown = list(_SUBTASK_COLUMNS)
    if row["state_size"] != row["checkpointed_size"]:
        shown.append(_FULL_SIZE)
    shown += [column for column in _IN_FLIGHT if _at(row["summary"], column[2])["max"]]
    labels: list[str] = []
    cells: list[list[str]] = [[] for _ in shown]
    dim_rows = []
    for task in row["tasks"].values():
        for label, values, is_dim in _task_rows(task):
            if is_dim:
                dim_rows.append(len(labels))
            labels.append(label)
            for column, (_, in_subtask, in_summary, show) in zip(cells, shown, strict=True):
                column.append("" if values is None else show(_number(values, in_subtask, in_summary)))
    columns = [Column("Subtask", labels, is_text=True)]
    columns += [Column(shown[index][0], column) for index, column in enumerate(cells)]
    return fitted(title, columns, width, dim_rows=dim_rows)


def _task_rows(task: Mapping[str, Any]) -> list[tuple[str, Any, bool]]:
    """``(label, subtask or (summary, which), of less weight)`` for each line of a task; no numbers in a caption."""
    reported = [one for one in task["subtasks"] if one["status"] == "completed"]
    spread = [(f"  {title}", (task["summary"], which), True) for title, which in _SPREAD_ROWS[:3] if len(reported) > 2]
    if len(reported) > SUBTASK_ROWS:
        return [(f"{task['name']}, {len(reported)} subtasks:", None, False), *spread]
    return [(f"{task['name']}[{one['index']}]", one, False) for one in reported] + spread


def _number(values: Any, in_subtask: Sequence[str], in_summary: Sequence[str]) -> Any:
    if isinstance(values, tuple):
        summary, which = values
        return _at(summary, in_summary)[which]
    return _at(values, in_subtask)


def _at(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        values = values[name]
    return values


def summary_tables(checkpoints: Mapping[str, Any], width: int = TABLE_WIDTH) -> list[Group]:
    """Flink's Summary over the completed checkpoints and savepoints."""
    columns = [Column("", [title for title, _ in _SPREAD_ROWS], is_text=True)]
    for title, name, show in _SUMMARY:
        spread = checkpoints["summary"][name]
        columns.append(Column(title, [show(spread[which]) for _, which in _SPREAD_ROWS]))
    return fitted("Summary", columns, width)


# --- lines --------------------------------------------------------------------------------------------------------


def restore_lines(report: Mapping[str, Any]) -> list[str]:
    """How each attempt except an ordinary first one began, and which checkpoints were skipped."""
    lines = []
    for restore in report["restores"]:
        checkpoint_id = restore["checkpoint_id"]
        if checkpoint_id is not None or restore["attempt"] > 1:
            origin = "from the beginning" if checkpoint_id is None else f"from checkpoint {checkpoint_id}"
            if report["acking"] is not None:
                origin = "with nothing in its state"
            at = format_ns(restore["time_ns"] - report["run"]["started_ns"])
            lines.append(f"attempt {restore['attempt']}{_of_tasks(restore['tasks'])} started {origin} at +{at}")
        lines += [f"  passed over: {problem}" for problem in restore["problems"]]
    return lines


def _of_tasks(names: Sequence[str] | None) -> str:
    if names is None:
        return ""
    return f" of {names[0]}" if len(names) == 1 else f" of {len(names)} tasks"


def note_lines(texts: Sequence[str], label: str = "note", many: str = "notes") -> list[str]:
    """The first line of the first notes or losses, and the number of further ones; the report has them complete."""
    lines = [f"{label}: {text.partition(chr(10))[0]}" for text in texts[:NOTES]]
    if len(texts) > NOTES:
        lines.append(f"{label}: … and {len(texts) - NOTES} further {many} in the report")
    return lines


def _of(title: str, shown: Sequence[object], everything: Sequence[object], which: str) -> str:
    if len(shown) == len(everything):
        return title
    return f"{title} ({which} {len(shown)} of {format_count(len(everything))})"


def _time(value: int) -> str:
    return NOTHING if value < 0 else short_ns(value)
