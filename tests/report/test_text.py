"""The text of a report uses Flink's headings, fits 80 columns, and leaves nothing out silently."""

from __future__ import annotations

import copy
import io
from functools import cache
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rich.console import Console, Group

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointType
from engine.report.text import HISTORY_ROWS, NOTES, SUBTASK_ROWS, TASK_ROWS, note_lines, print_report, report_parts
from engine.report.text_tables import TABLE_WIDTH
from tests.report.runs import make_run


@cache
def killed() -> dict[str, Any]:
    """The report of a run that was killed once. Nothing may change it: tests that do take a copy."""
    return make_run(kill=True).report


def text_of(report: dict[str, Any], width: int = 300) -> str:
    """The text on a terminal without colours."""
    file = io.StringIO()
    print_report(report, Console(file=file, width=width))
    return file.getvalue()


def changed(**of_every_row: Any) -> dict[str, Any]:
    """The report with these values in every row of the history."""
    report = copy.deepcopy(killed())
    for row in report["checkpoints"]["history"]:
        row.update(of_every_row)
    return report


def table_text(text: str, title: str) -> str:
    """The lines from a title to the next empty line."""
    lines = [line.rstrip() for line in text.splitlines()]
    start = lines.index(title)
    return "\n".join(lines[start : lines.index("", start)] if "" in lines[start:] else lines[start:])


def headings(table: str) -> list[str]:
    """The words of the headings above the rule; a heading stands in several lines."""
    lines = table.splitlines()[1:]
    rule = next(index for index, line in enumerate(lines) if line.startswith("─"))
    return sorted(word for line in lines[:rule] for word in line.split())


def words(text: str) -> list[str]:
    """The same of the expected text."""
    return sorted(text.split())


# --- text that is shown ---


def test_headings_are_flinks() -> None:
    """Overview, History, per subtask and Summary, under the names of Flink's checkpoint tab."""
    text = text_of(killed())
    history, subtasks, summary = (
        headings(table_text(text, title))
        for title in ("History", "Checkpoint 4, the slowest of these, by subtask", "Summary")
    )

    assert history == words("ID Status Acknowledged Trigger Time End to End Duration Checkpointed Data Size")
    durations = "Sync Duration Async Duration Alignment Duration Start Delay"
    assert subtasks == words(f"Subtask End to End Duration Checkpointed Data Size {durations}")
    in_flight = "Processed in-flight data Persisted in-flight data"
    assert summary == words(f"End to End Duration Checkpointed Data Size Full Checkpoint Data Size {in_flight}")
    assert "Checkpoints: Triggered 4, In Progress 0, Completed 3, Failed 1, Restored 1\n" in text
    assert "Latest: Completed 4, Failed 2, Restore 1\n" in text
    assert "attempt 2 started from checkpoint 1" in text


def test_when_a_checkpoint_was_requested_is_shown_if_one_had_to_wait() -> None:
    """Beside the time of the trigger; a report of an earlier version knows one time only."""
    report = copy.deepcopy(killed())
    report["checkpoints"]["history"][0]["request_timestamp"] -= 1
    assert "Request" in headings(table_text(text_of(report), "History"))

    del report["checkpoints"]["history"][0]["request_timestamp"]

    assert "Request" not in headings(table_text(text_of(report), "History"))


def test_the_summary_has_a_line_for_each_percentile() -> None:
    """Minimum, average, maximum and the five that Flink shows."""
    lines = table_text(text_of(killed()), "Summary").splitlines()

    assert [line.split()[0] for line in lines[-8:]] == [
        "Minimum", "Average", "Maximum", "p50", "p90", "p95", "p99", "p99.9",
    ]  # fmt: skip
    spread = killed()["checkpoints"]["summary"]["checkpointed_size"]
    assert [int(line.split()[2]) for line in lines[-8:-5]] == [spread[which] for which in ("min", "avg", "max")]


def test_rows_show_the_numbers_of_the_report() -> None:
    """The newest checkpoint first, with its id, status, acknowledgements and size."""
    lines = table_text(text_of(killed()), "History").splitlines()
    rows = [line.split() for line in lines if line[:2].strip().isdigit()]

    assert [(int(row[0]), row[1], row[2]) for row in rows] == [
        (row["id"], row["status"], f"{row['num_acknowledged_subtasks']}/{row['num_subtasks']}")
        for row in killed()["checkpoints"]["history"]
    ]
    assert [int(row[5]) for row in rows] == [row["checkpointed_size"] for row in killed()["checkpoints"]["history"]]


def test_failed_checkpoints_show_their_reason() -> None:
    """By its name and in words, under the history."""
    assert "checkpoint 2 failed (CHECKPOINT_COORDINATOR_SUSPEND): the job left the running state" in text_of(killed())


def test_an_inconsistent_cut_shows_both_ways() -> None:
    """How many a restore would count twice, and how many it would lose."""
    report = copy.deepcopy(killed())
    report["checkpoints"]["history"][1].update(orphans=3, in_transit=2)
    cuts = [line.split()[7:] for line in table_text(text_of(report), "History").splitlines() if "µs" in line]

    assert cuts == [["consistent"], ["3", "twice,", "2", "lost"], ["–"], ["consistent"]]


@pytest.mark.parametrize(
    ("change", "heading"),
    [
        ({"state_size": 10**6}, "Full"),
        ({"processed_data": 10}, "(persisted)"),
        ({"persisted_data": 10}, "(persisted)"),
        ({"checkpoint_type": "UNALIGNED_CHECKPOINT"}, "Type"),
        ({"orphans": 1}, "Cut"),
        ({"in_transit": 1}, "Cut"),
    ],
)
def test_columns_that_say_something_are_shown(change: dict[str, Any], heading: str) -> None:
    """Full size, in-flight data, type and cut, as soon as one of the shown rows makes a difference."""
    assert heading not in table_text(text_of(killed()), "History")
    text = text_of(changed(**change))

    assert heading in text[text.index("History") : text.index("by subtask")]


def test_types_have_short_names() -> None:
    """Every type that a row can have, in the column after the id."""
    report = copy.deepcopy(killed())
    for row, type_ in zip(report["checkpoints"]["history"], CheckpointType, strict=True):
        row["checkpoint_type"] = type_.value
    rows = [line.split() for line in table_text(text_of(report), "History").splitlines() if "µs" in line]

    assert [row[1] for row in rows] == ["checkpoint", "unaligned", "savepoint", "sync"]


def test_in_flight_data_of_subtasks_is_shown_where_there_is_some() -> None:
    """In the table of subtasks: beside the other numbers, or in a further table."""
    report = copy.deepcopy(killed())
    row = report["checkpoints"]["history"][0]
    task = next(iter(row["tasks"].values()))
    task["subtasks"][0]["alignment"]["persisted"] = 2048
    for summary in (row["summary"], task["summary"]):
        summary["alignment"]["persisted"]["max"] = 2048
    text = text_of(report)
    subtasks = text[text.index("by subtask") : text.index("Summary")]

    assert "Persisted" in subtasks
    assert "Processed" not in subtasks
    assert subtasks.count("2 KiB") == 1


def test_the_slowest_checkpoint_is_shown_in_detail() -> None:
    """Of those in the history that is shown: an older one that took longer, and not one that failed."""
    report = copy.deepcopy(killed())
    report["checkpoints"]["history"][1]["end_to_end_duration"] = 10**6
    report["checkpoints"]["history"][2]["end_to_end_duration"] = 10**7

    assert "Checkpoint 3, the slowest of these, by subtask\n" in text_of(report)

    report["checkpoints"]["history"] = report["checkpoints"]["history"][1:3]
    assert "Checkpoint 3 by subtask\n" in text_of(report)


def test_names_in_brackets_are_no_markup() -> None:
    """`sum -> out[0]` is printed as it is; rich would take the brackets for a style."""
    assert "sum -> out[0]" in text_of(killed())


def test_counters_have_a_table_of_their_own() -> None:
    """One line per operator, subtask and counter; a run without counters has none."""
    report = copy.deepcopy(killed())
    report["metrics"]["operators"] = {"window[1]": {"numLateRecordsDropped": 1234}}

    assert table_text(text_of(report), "Counters, all attempts together").splitlines()[-1].split() == [
        "window[1]", "numLateRecordsDropped", "1,234",
    ]  # fmt: skip
    assert "Counters" not in text_of(killed())


def test_a_run_without_checkpoints_prints_no_empty_tables() -> None:
    """Only tables with content are printed."""
    text = text_of(make_run(mode="none").report)

    assert "Tasks" in text
    assert "History" not in text
    assert "Summary" not in text


def test_a_run_whose_checkpoints_all_failed_has_a_history_only() -> None:
    """It has no completed checkpoint to summarise and no subtask to show."""
    report = copy.deepcopy(killed())
    checkpoints = report["checkpoints"]
    checkpoints["history"] = [row for row in checkpoints["history"] if row["status"] == "FAILED"]
    checkpoints["counts"]["completed"] = 0
    text = text_of(report)

    assert "History" in text
    assert "Summary" not in text
    assert "by subtask" not in text


# --- what is left out is said ---


def test_after_a_failure_tasks_say_their_attempt_and_what_all_attempts_did() -> None:
    """An attempt alone would look as if records were lost."""
    table = table_text(text_of(killed()), "Tasks, each in its last attempt")
    task = killed()["tasks"][0]

    expected = "Task Attempt State Records in Records out In, all attempts Out, all attempts"
    assert headings(table) == words(expected)
    assert task["total_records_in"] > task["records_in"]
    assert table.splitlines()[4].split()[-4:] == [
        str(task[name]) for name in ("records_in", "records_out", "total_records_in", "total_records_out")
    ]


def test_one_attempt_needs_no_number() -> None:
    """The table is as narrow as before."""
    report = copy.deepcopy(killed())
    report["run"]["attempts"] = 1

    assert "ttempt" not in table_text(text_of(report), "Tasks")


def test_a_part_of_the_tasks_that_started_anew_is_named() -> None:
    """One by its name, several by their number."""
    report = copy.deepcopy(killed())
    (restore,) = [one for one in report["restores"] if one["attempt"] == 2]
    restore["tasks"] = ["numbers[0]"]
    one = text_of(report)
    restore["tasks"] = ["numbers[0]", "numbers[1]"]
    two = text_of(report)

    assert "attempt 2 of numbers[0] started from checkpoint 1" in one
    assert "attempt 2 of 2 tasks started from checkpoint 1" in two


def test_a_long_history_says_what_it_leaves_out() -> None:
    """The newest rows are shown, and the title says of how many."""
    report = copy.deepcopy(killed())
    row = report["checkpoints"]["history"][0]
    report["checkpoints"]["history"] = [{**row, "id": number} for number in range(3000, 0, -1)]
    text = text_of(report)

    assert f"History (newest {HISTORY_ROWS} of 3,000)" in text
    assert "3000  COMPLETED" in text
    assert "2990  COMPLETED" not in text


def test_many_tasks_and_counters_are_cut() -> None:
    """The titles say of how many."""
    report = copy.deepcopy(killed())
    report["tasks"] = [{**report["tasks"][0], "name": f"t[{number}]"} for number in range(TASK_ROWS + 1)]
    report["metrics"]["operators"] = {f"o[{number}]": {"c": 1} for number in range(TASK_ROWS + 5)}
    text = text_of(report)

    assert f"Tasks, each in its last attempt (first {TASK_ROWS} of {TASK_ROWS + 1})" in text
    assert f"Counters, all attempts together (first {TASK_ROWS} of {TASK_ROWS + 5})" in text
    assert f"t[{TASK_ROWS}]" not in text


@pytest.mark.parametrize(
    ("parallelism", "lines"), [(1, 1), (2, 2), (3, 6), (SUBTASK_ROWS, SUBTASK_ROWS + 3), (SUBTASK_ROWS + 1, 4)]
)
def test_tasks_of_many_subtasks_show_their_spread_only(parallelism: int, lines: int) -> None:
    """One or two are shown; up to eight have their spread too; of more there is the spread and their number."""
    report = copy.deepcopy(killed())
    row = report["checkpoints"]["history"][0]
    name, task = next(iter(row["tasks"].items()))
    one = task["subtasks"][0]
    row["tasks"] = {name: {**task, "subtasks": [{**one, "index": index} for index in range(parallelism)]}}
    table = table_text(text_of(report), "Checkpoint 4, the slowest of these, by subtask")
    rows = table[table.rindex("─") + 1 :].strip("\n").splitlines()

    assert len([line for line in rows if "µs" in line]) + (parallelism > SUBTASK_ROWS) == lines
    assert f"{parallelism} subtasks:" in " ".join(table.split()) or lines != 4


def test_notes_are_cut_to_their_first_line_and_number() -> None:
    """A screen is no place for a hundred notes; the report has them whole."""
    lines = note_lines([f"note {number}\nmore" for number in range(NOTES + 5)])

    assert len(lines) == NOTES + 1
    assert lines[0] == "note: note 0"
    assert lines[-1] == "note: … and 5 further notes in the report"


# --- the width ---


@pytest.mark.parametrize("width", [80, 170, 300])
def test_tables_fit_eighty_columns_on_any_console(width: int) -> None:
    """In log files and on wide terminals they look as on the narrowest usual one."""
    report = changed(state_size=10**6, processed_data=10**7, persisted_data=10**5, checkpoint_type="SYNC_SAVEPOINT")
    report["tasks"][0]["name"] = "a source with quite a long name -> and an operator chained to it[17]"
    # Prose is folded where the console ends.
    lines = [line.rstrip() for line in text_of(report, width).splitlines() if "failed (" not in line]

    assert max(map(len, lines)) <= TABLE_WIDTH


def test_a_narrower_console_gets_narrower_tables() -> None:
    """No column is cut: those that do not fit beside the first column go into a further table."""
    lines = [line.rstrip() for line in text_of(killed(), 40).splitlines()]

    assert max(map(len, lines)) <= 40
    assert "History (continued)" in lines


NAMES = st.text("abcdefgh ->[]", min_size=1, max_size=90)
NUMBERS = st.integers(0, 10**15)


@given(NAMES, NUMBERS, st.integers(1, 10**6), st.sampled_from(("SAVEPOINT", "UNALIGNED_CHECKPOINT")), st.integers(0, 9))
def test_nothing_a_run_can_produce_is_wider(name: str, number: int, count: int, type_: str, orphans: int) -> None:
    """Long names, large numbers, many subtasks, any type."""
    report = changed(
        id=count,
        state_size=number,
        processed_data=number // 3,
        persisted_data=number // 7,
        end_to_end_duration=number,
        checkpoint_type=type_,
        num_subtasks=count,
        num_acknowledged_subtasks=count,
        orphans=orphans * number,
        in_transit=number,
    )
    for task in report["tasks"]:
        task.update(name=name, records_in=number, records_out=number)
    for row in report["checkpoints"]["history"]:
        for task in row["tasks"].values():
            task["name"] = name
    tables = [part for part in report_parts(report) if isinstance(part, Group)]
    file = io.StringIO()
    Console(file=file, width=500).print(*tables, sep="\n")

    assert max(len(line.rstrip()) for line in file.getvalue().splitlines()) <= TABLE_WIDTH
