"""The text of a report uses Flink's headings, leaves nothing out silently, and takes names as they are."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from engine.report.text import HISTORY_ROWS, NOTES, note_lines, print_report
from tests.report.runs import make_run


def text_of(report: dict[str, Any]) -> str:
    """What a terminal without colours shows."""
    file = io.StringIO()
    print_report(report, Console(file=file, width=300))
    return file.getvalue()


def test_headings_are_flinks() -> None:
    """Overview, History, per subtask and Summary, under the names of Flink's checkpoint tab."""
    text = text_of(make_run(kill=True).report)

    for heading in (
        "Triggered", "Completed", "Restored", "History", "Acknowledged", "Trigger Time", "End to End Duration",
        "Checkpointed Data Size", "Processed (persisted) in-flight data", "Alignment Duration", "Start Delay",
        "Summary", "p99.9", "consistent",
    ):  # fmt: skip
        assert heading in text, heading
    assert "attempt 2 started from checkpoint" in text


def test_names_in_brackets_are_no_markup() -> None:
    """`sum -> out[0]` is printed as it is; rich would take the brackets for a style."""
    assert "sum -> out[0]" in text_of(make_run().report)


def test_a_long_history_says_what_it_leaves_out() -> None:
    """The newest rows are shown first, and the title says of how many."""
    report = make_run().report
    rows = report["checkpoints"]["history"]
    many = [{**rows[-1], "id": number} for number in range(1, 31)]
    text = text_of({**report, "checkpoints": {**report["checkpoints"], "history": many}})

    assert f"History (newest {HISTORY_ROWS} of 30)" in text


def test_failed_checkpoints_show_their_reason() -> None:
    """In words, in the place where a completed one shows its cut."""
    assert "suspend" in text_of(make_run(kill=True).report)


def test_an_inconsistent_cut_shows_both_ways() -> None:
    """How many a restore would count twice, and how many it would lose."""
    report = make_run().report
    report["checkpoints"]["history"][-1].update(orphans=3, in_transit=2)

    assert "3 twice, 2 lost" in text_of(report)


def test_a_run_without_checkpoints_prints_no_empty_tables() -> None:
    """Only what says something is printed."""
    text = text_of(make_run(mode="none").report)

    assert "Tasks" in text
    assert "History" not in text


def test_notes_are_cut_to_their_first_line_and_number() -> None:
    """A screen is no place for a hundred notes; the report has them whole."""
    lines = note_lines([f"note {number}\nmore" for number in range(NOTES + 5)])

    assert len(lines) == NOTES + 1
    assert lines[0] == "note: note 0"
    assert lines[-1] == "note: … and 5 further notes in the report"
