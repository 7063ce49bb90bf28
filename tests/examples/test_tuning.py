"""The tuning lessons: each shows what it says, at a small size; the page shows what the commands print."""

from __future__ import annotations

import re
from functools import cache, partial
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from engine.study import StudyTable, read_study, sweep
from examples.tuning import (
    acking,
    back_to_back,
    failing_queue,
    intervals,
    local_recovery,
    slow_input,
    snapshots,
    state_per_task,
    timeouts,
    unaligned,
)
from examples.tuning.lesson import Lesson, mean
from tests.house.documents import transcripts
from tests.house.project import ROOT

MODULES = {
    one.__name__.rpartition(".")[2]: one
    for one in (
        back_to_back, timeouts, state_per_task, slow_input, snapshots, local_recovery, acking, unaligned, intervals,
        failing_queue,
    )
}  # fmt: skip
LESSONS: dict[str, Lesson] = {name: module.LESSON for name, module in MODULES.items()}
PAGE = (ROOT / "docs/tuning.md").read_text("utf-8")


@cache
def small(name: str) -> StudyTable:
    """The runs of a lesson at the size of ``--quick``, which it can draw and conclude from."""
    lesson = LESSONS[name]
    table = lesson.measure(True, 1)
    assert not table.failed, table.failed
    assert all(map(str, lesson.tables(table)))
    assert "nan" not in lesson.conclude(table)
    table.plot(**lesson.plot)
    return table


def test_back_to_back_the_duration_is_the_period() -> None:
    """A period is the longest of interval, duration, and duration with pause. Below 8 % of its time for the pauses of
    the task, the source keeps up with 92 of 100 records."""
    table = small("back_to_back")

    for row in table:
        interval_ns, pause_ns = {"100ms": 1e8, "2s": 2e9}[row["checkpoint_interval"]], 1e9 * (row["min_pause"] == "1s")
        assert row["period_ns"] == pytest.approx(max(interval_ns, row["duration_ns"] + pause_ns), rel=1e-3), row
        assert (row["latency_p99_ns"] < 2e8) == (0.1e9 / row["period_ns"] < 0.08), row
    assert {row["latency_p99_ns"] < 2e8 for row in table} == {True, False}


def test_the_checkpoint_table_tells_why_a_checkpoint_timed_out() -> None:
    """Each cause is told by its signature, and the tasks that are in time are those that a timeout finds."""
    table = small("timeouts")
    failed = timeouts.clicks(timeouts.ALIGNMENT, checkpoint_timeout="1s", tolerable_failures=9).checkpoints

    assert [row["told"] for row in table] == list(timeouts.CAUSES)
    assert (failed["status"][0], f"{failed['acknowledged'][0]}/12") == ("FAILED", table[1]["in_time"])
    assert "timeout" in failed["failure"][0]


def test_the_largest_task_decides_until_storage_is_shared() -> None:
    """Duration = greatest part / bandwidth of a task, or all parts / bandwidth of all."""
    for row in small("state_per_task"):
        greatest, tasks = row["greatest_task_bytes"], row["parallelism"]
        own_s, all_s = greatest / state_per_task.TASK, greatest * tasks / row["to_mean"] / state_per_task.SHARED
        expected_s = own_s if row["storage"] == state_per_task.OWN else max(own_s, all_s)
        assert row["duration_ns"] / 1e9 == pytest.approx(expected_s, rel=0.02), row


def test_a_slow_input_costs_latency_or_duplicates() -> None:
    """Aligned, the quick input waits for the late barrier; at-least-once counts twice what came meanwhile."""
    for row in small("slow_input"):
        late_ms, mode = row["late_ms"], row["mode"]
        waits_ms = late_ms if mode == "aligned" else 0
        assert row["latency_p99_ns"] / 1e6 == pytest.approx(waits_ms, abs=0.01 * waits_ms + 3), row
        assert row["counted_twice"] == (slow_input.RATE * late_ms / 1_000 if mode == "at-least-once" else 0), row
        assert (row["stored_bytes"] > 0) == (mode == "unaligned"), row


def test_a_changelog_makes_durations_equal() -> None:
    """Full checkpoints grow with the state. Incremental ones write what is new, and all after a compaction. With a log
    a checkpoint that has a materialisation takes no longer."""
    full, incremental, log = (
        [row for row in small("snapshots") if row["state"] == state] for state in snapshots.STATES
    )

    steps = [after["written_bytes"] - before["written_bytes"] for before, after in pairwise(full)]
    assert max(steps) < 1.1 * min(steps)
    assert [row["written_bytes"] == row["restore_bytes"] for row in incremental] == [True, *[False] * 3, True, False]
    assert [row["written_bytes"] > 5 * log[0]["written_bytes"] for row in log] == [*[False] * 4, True, False]
    assert log[4]["duration_ns"] == pytest.approx(log[2]["duration_ns"], rel=0.01)
    assert max(row["duration_ns"] for row in incremental) > 3 * incremental[3]["duration_ns"]


def test_copies_are_worth_most_when_no_disk_is_lost() -> None:
    """Tasks that find their copy read it at the speed of a disk; a host that is lost fetches its part, an eighth."""
    of = partial(mean, small("local_recovery"))
    read_s = local_recovery.STATE_BYTES / local_recovery.HOSTS / 2e9

    assert of("recovery_ns", fails="task", local_recovery=True) / 1e9 == pytest.approx(2.01 + read_s, rel=0.05)
    assert of("fetched_bytes", fails="task", local_recovery=True) == 0
    part = of("fetched_bytes", fails="host", local_recovery=True) / local_recovery.STATE_BYTES
    assert part == pytest.approx(1 / local_recovery.HOSTS, rel=0.3)
    for fails in ("task", "host"):
        assert of("recovery_ns", fails=fails, local_recovery=False) > 2 * of(
            "recovery_ns", fails=fails, local_recovery=True
        )


def test_unaligned_barriers_trade_time_for_bytes() -> None:
    """Aligned: full buffers are worked off first. Unaligned: the duration is flat, and full buffers are stored. With a
    timeout it is no longer than the timeout and an unaligned one."""
    check_unaligned(small("unaligned"))


@pytest.mark.slow
def test_unaligned_barriers_trade_time_for_bytes_up_to_parallelism_50() -> None:
    """The same for the whole grid of the question."""
    check_unaligned(unaligned.LESSON.measure(False, 1))


def check_unaligned(table: StudyTable) -> None:
    slowest = max(row["slowdown"] for row in table)
    for tasks in {row["parallelism"] for row in table}:
        buffers = 2 * tasks + 8
        aligned, timeout, flat = (
            {measure: of(measure, slowdown=slowest) for measure in unaligned.LESSON.shown}
            for mode in unaligned.MODES
            for of in [partial(mean, table, mode=mode, parallelism=tasks)]
        )
        assert aligned["duration_ns"] / 1e6 == pytest.approx(100 + buffers * slowest / 10, rel=0.1), tasks
        assert aligned["in_flight_bytes"] == 0
        calm_ns = mean(table, "duration_ns", mode="unaligned", slowdown=1, parallelism=tasks)
        assert calm_ns <= flat["duration_ns"] < 1.1 * calm_ns, tasks
        # Of the buffers of a sink one is in service.
        assert flat["in_flight_bytes"] == tasks * (buffers - 1) * unaligned.BUFFER, tasks
        assert timeout["duration_ns"] <= flat["duration_ns"] + 20e6, tasks


def test_acking_costs_messages_and_its_replay_waits() -> None:
    """Control messages: tasks + 2 for a record. A lost record is sent again after one to two timeouts."""
    for row in small("acking"):
        if row["protocol"] == acking.BARRIERS:
            assert row["messages"] < 1, row
            assert row["sent_again"] == pytest.approx(acking.RATE * 0.8, rel=0.05), row
        else:
            timeout_s = {"acking 1s": 1, "acking 10s": 10}[row["protocol"]]
            assert row["messages"] == row["tasks"] + 2, row
            assert 0 < row["sent_again"] < 10, row
            assert timeout_s < row["longest_ns"] / 1e9 < 2 * timeout_s + 0.5, row


def test_a_failing_queue_loses_more_at_long_intervals() -> None:
    """The same failures; the work since the checkpoint is lost."""
    of = partial(mean, small("failing_queue"))

    assert of("attempts", checkpoint_interval="2s") > 1
    assert of("lost_ns", checkpoint_interval="20s") > 2 * of("lost_ns", checkpoint_interval="2s")
    told = LESSONS["failing_queue"].conclude(small("failing_queue"))
    assert re.search(r"Calls come for 1.25m. The makespan is 1.\d+m, 1.\d+m on average", told)


def test_lost_work_is_half_an_interval_and_recovery_works_it_off() -> None:
    """With one seed the failure comes at the same part of an interval, so twice the interval loses twice as much."""
    table = small("intervals")

    for short, long in zip(*([row for row in table if row["interval"] == one] for one in ("5s", "10s")), strict=True):
        assert 0 < short["lost_ns"] < 5e9
        assert long["lost_ns"] == pytest.approx(2 * short["lost_ns"], rel=0.01)
    for row in table:
        assert row["recovery_ns"] / 1e9 == pytest.approx(2 * intervals.DOWN_S + row["lost_ns"] / 1e9, abs=6), row


@pytest.mark.slow
def test_lost_work_and_recovery_follow_the_law() -> None:
    """Means over 40 seeds: half an interval, and the time to work it off, within three standard errors."""
    for interval_s in (20, 80):
        table = sweep(intervals.study, interval=f"{interval_s}s", seed=range(40), failure_s=200)
        for measure, expected_s in zip(intervals.LESSON.shown, intervals.law_s(interval_s), strict=True):
            (found,) = table.mean(measure, "interval")
            half_ns = found["high_ns"] - found["mean_ns"]
            assert abs(found["mean_ns"] - expected_s * 1e9) < 1.5 * half_ns, (interval_s, measure, found)


# --- the command line ---


def squares(x: int) -> int:
    return 1 // x


def lesson(*values: int) -> Lesson:
    return Lesson(
        "Squares", lambda quick, jobs: sweep(squares, x=values[quick:], jobs=jobs), ("value",),
        lambda table: f"of {len(table)}", {"measure": "value"},
    )  # fmt: skip


def test_a_lesson_prints_its_table_and_what_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table, the conclusion, and a plot if one is asked for."""
    lesson(2, 1, -1).main(["--quick", "--plot", f"{tmp_path}/plot.svg"])

    assert capsys.readouterr().out.split() == ["x", "value", "1", "1", "-1", "-1", "of", "2"]
    assert "<svg" in (tmp_path / "plot.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--plot", "x.txt"], "argument --plot: 'x.txt' must end with .svg or .png"),
        (["--jobs", "0"], "error: jobs is 0; it must be a whole number from 1"),
        ([], "error: a run failed: x=0: ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_a_lesson_that_cannot_answer_says_why(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints no table, and ends with an error code."""
    with pytest.raises(SystemExit) as caught:
        lesson(1, 0).main(arguments)

    assert error in f"{caught.value.code}{capsys.readouterr().err}"


# --- the page ---


def test_the_page_has_each_lesson() -> None:
    """Its command with what it prints, and its picture."""
    commands = {one.text: one.printed for one in transcripts.commands(PAGE)}

    assert list(commands) == [f"python -m examples.tuning.{name}" for name in LESSONS]
    assert all(commands.values())
    assert re.findall(r"\]\(pictures/tuning/(\w+)\.\w+\)", PAGE) == list(LESSONS)


@pytest.mark.parametrize("name", ["unaligned", "intervals", "failing_queue"])
def test_a_study_of_the_page_asks_what_its_command_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same function for the same cases. The two questions take at most twelve lines each."""
    asked: list[dict[str, Any]] = []

    def record(study: Any, **values: Any) -> StudyTable:
        asked.append({one: list(values[one]) for one in values if one not in ("jobs", "out")})
        row = {"checkpoint_interval": "1m", "status": "ok", "error": None, "makespan_ns": 1}
        return StudyTable("recorded", ("checkpoint_interval",), [row])

    monkeypatch.setattr(MODULES[name], "sweep", record)
    monkeypatch.setattr("engine.study.sweep", record)
    program = studies()[name]
    exec(program, {})
    LESSONS[name].measure(False, 2)

    assert asked[0] == asked[1]
    if name != "failing_queue":
        function = getsource(MODULES[name].study)
        assert function in program
        call = program.partition("table = sweep(")[2]
        assert len(function.splitlines()) + len(call.splitlines()) <= 12


def test_the_study_of_the_page_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With fewer calls and seeds. It prints means, and leaves its results."""
    program = studies()["failing_queue"]
    for large, few in (("count=100_000", "count=300"), ("range(20)", "range(2)")):
        assert large in program
        program = program.replace(large, few)
    (tmp_path / "queue.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    run_path("queue.py")

    assert len(capsys.readouterr().out.splitlines()) == 1 + 3
    assert len(read_study("study.parquet")) == 6


def studies() -> dict[str, str]:
    """The programs of the page, by the lesson whose command follows."""
    found = re.findall(r"^```python\n(.*?)^```$.*?^\$ python -m examples.tuning.(\w+)", PAGE, re.MULTILINE | re.DOTALL)
    return {name: program for program, name in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LESSONS if name != "intervals"])
def test_commands_of_the_page_print_what_it_shows(name: str) -> None:
    """At full size; the one that takes a minute has a test of its numbers above."""
    (command,) = (one for one in transcripts.commands(PAGE) if one.text.endswith(f".{name}"))

    printed = transcripts.run_command(command.text, ROOT, ROOT)
    assert transcripts.is_shown(command.printed, printed), "\n".join(printed)
