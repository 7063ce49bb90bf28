"""The checkpoint table has the fields of Flink's REST API, and its numbers are those that the subtasks reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import CheckpointStatistics, Spread, SubtaskCheckpointMetrics
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import SnapshotKind
from engine.graph.job import Job
from engine.graph.plan import ExecutionPlan
from engine.observe.cut_oracle import CutOracle, CutVerdict
from engine.report.checkpoint_table import checkpoint_table
from engine.runtime.config import CheckpointInterval, RunConfig
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.report.runs import Run, make_run

CHECKPOINT, SAVEPOINT = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT

# Field names as the REST API documents them.
CHECKPOINT_FIELDS = {
    "id", "status", "is_savepoint", "savepointFormat", "trigger_timestamp", "latest_ack_timestamp", "checkpointed_size",
    "state_size", "end_to_end_duration", "alignment_buffered", "processed_data", "persisted_data", "num_subtasks",
    "num_acknowledged_subtasks", "checkpoint_type", "external_path", "discarded", "failure_timestamp",
    "failure_message",
}  # fmt: skip
TASK_FIELDS = {
    "id", "status", "latest_ack_timestamp", "checkpointed_size", "state_size", "end_to_end_duration",
    "alignment_buffered", "processed_data", "persisted_data", "num_subtasks", "num_acknowledged_subtasks", "summary",
    "subtasks",
}  # fmt: skip
SUBTASK_FIELDS = {
    "index", "status", "ack_timestamp", "end_to_end_duration", "checkpointed_size", "state_size", "checkpoint",
    "alignment", "start_delay", "unaligned_checkpoint", "aborted",
}  # fmt: skip
SUMMARY_FIELDS = {
    "checkpointed_size", "state_size", "end_to_end_duration", "checkpoint_duration", "alignment", "start_delay",
}  # fmt: skip
JOB_SUMMARY_FIELDS = {
    "checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered", "processed_data", "persisted_data",
}  # fmt: skip
SPREAD_FIELDS = ["min", "max", "avg", "p50", "p90", "p95", "p99", "p999"]
ALIGNMENT_FIELDS = {"buffered", "processed", "persisted", "duration"}


@pytest.fixture(scope="module")
def killed() -> Run:
    return make_run(kill=True)


@pytest.fixture
def statistics() -> CheckpointStatistics:
    """Of a job that the test tells about."""
    return CheckpointStatistics()


def plan_of(parallelism: int) -> ExecutionPlan:
    """A source and a keyed sum, ``parallelism`` subtasks each."""
    job = Job("sums", parallelism=parallelism)
    numbers = job.source(SequenceSource(0, 10, splits=parallelism), name="numbers", uid="numbers")
    sums = numbers.key_by(lambda number: number).reduce(lambda left, right: left + right, name="sum", uid="sum")
    sums.collect(CollectedResults(), name="out")
    return job.plan()


PLAN = plan_of(2)


def table_of(statistics: CheckpointStatistics, *cuts: CutVerdict, config: RunConfig | None = None) -> dict[str, Any]:
    """The table of a run of two vertices with two subtasks each."""
    return checkpoint_table(statistics, PLAN, config or RunConfig(), CutOracle(list(cuts)))


def spreads_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every spread at any depth of a summary."""
    if "p50" in value:
        yield value
    else:
        for part in value.values():
            yield from spreads_in(part)


# --- the shape ---


def test_every_answer_has_the_fields_of_flinks(killed: Run) -> None:
    """Of the job, each checkpoint, task and subtask; no field of Flink is renamed, and fields beyond it are added."""
    table = killed.report["checkpoints"]

    assert {"counts", "summary", "latest", "history"} <= table.keys()
    assert set(table["counts"]) == {"restored", "total", "in_progress", "completed", "failed"}
    assert set(table["latest"]) == {"completed", "savepoint", "failed", "restored"}
    assert set(table["latest"]["restored"]) == {"id", "restore_timestamp", "is_savepoint", "external_path"}
    assert set(table["summary"]) == JOB_SUMMARY_FIELDS
    for row in table["history"]:
        assert row.keys() >= CHECKPOINT_FIELDS | {"tasks"}
        for task in row["tasks"].values():
            assert task.keys() >= TASK_FIELDS
            assert set(task["summary"]) == SUMMARY_FIELDS
            assert set(task["summary"]["alignment"]) == ALIGNMENT_FIELDS
            assert set(task["summary"]["checkpoint_duration"]) == {"sync", "async"}


def test_subtasks_have_the_fields_of_flinks(killed: Run) -> None:
    """Of one that has acknowledged, and of one that has not."""
    completed, failed = killed.report["checkpoints"]["history"][0], killed.report["checkpoints"]["latest"]["failed"]
    failed = next(row for row in killed.report["checkpoints"]["history"] if row["id"] == failed["id"])

    for task in completed["tasks"].values():
        for one in task["subtasks"]:
            assert one.keys() >= SUBTASK_FIELDS
            assert set(one["alignment"]) == ALIGNMENT_FIELDS
            assert set(one["checkpoint"]) == {"sync", "async"}
    pending = [one for task in failed["tasks"].values() for one in task["subtasks"] if one["status"] != "completed"]
    assert pending
    assert all(one == {"index": one["index"], "status": "pending_or_failed"} for one in pending)


def test_every_spread_has_every_percentile(killed: Run) -> None:
    """Extremes, average and the five percentiles, wherever there is a summary."""
    table = killed.report["checkpoints"]
    summaries = [table["summary"]]
    summaries += [part["summary"] for row in table["history"] for part in (row, *row["tasks"].values())]
    found = [spread for summary in summaries for spread in spreads_in(summary)]

    assert len(found) > 20
    assert all(list(spread) == SPREAD_FIELDS for spread in found)


def test_tasks_are_named_by_uid_and_have_all_their_subtasks(killed: Run) -> None:
    """In plan order; the name is there too."""
    tasks = killed.report["checkpoints"]["history"][0]["tasks"]

    assert [task["name"] for task in tasks.values()] == list(killed.report["job"]["parallelism"])
    assert [[one["index"] for one in task["subtasks"]] for task in tasks.values()] == [[0, 1], [0, 1]]


def test_a_latest_row_is_that_of_the_history_without_its_tasks(killed: Run) -> None:
    """As in Flink's answer."""
    table = killed.report["checkpoints"]
    history = {row["id"]: row for row in table["history"]}

    for which in ("completed", "failed"):
        latest = table["latest"][which]
        whole = history[latest["id"]]
        assert latest == {name: whole[name] for name in latest}
        assert whole.keys() - latest.keys() == {"tasks", "summary"}


# --- the numbers ---


def test_counts_add_up(killed: Run) -> None:
    """Every triggered checkpoint completed, failed or is in progress, and the history says the same."""
    table = killed.report["checkpoints"]
    counts, statuses = table["counts"], [row["status"] for row in table["history"]]

    assert counts["total"] == counts["completed"] + counts["failed"] + counts["in_progress"] == len(statuses)
    assert (statuses.count("COMPLETED"), statuses.count("FAILED")) == (counts["completed"], counts["failed"])
    assert counts["restored"] == len(table["restores"]) == 1
    assert table["latest"]["restored"]["id"] == killed.report["restores"][1]["checkpoint_id"]
    assert table["restores"][0]["attempt"] == 2
    assert [row["id"] for row in table["history"]] == [4, 3, 2, 1]


def test_numbers_of_subtasks_add_up(killed: Run) -> None:
    """A task is the sum of its subtasks, a checkpoint that of its tasks; durations run to the latest of them."""
    row = killed.report["checkpoints"]["history"][0]
    tasks = list(row["tasks"].values())

    for name in ("checkpointed_size", "state_size", "processed_data", "persisted_data", "num_acknowledged_subtasks"):
        assert sum(task[name] for task in tasks) == row[name]
    assert row["checkpointed_size"] > 0
    assert row["num_acknowledged_subtasks"] == row["num_subtasks"] == sum(task["num_subtasks"] for task in tasks) == 4
    for task in tasks:
        assert sum(one["checkpointed_size"] for one in task["subtasks"]) == task["checkpointed_size"]
        assert max(one["ack_timestamp"] for one in task["subtasks"]) == task["latest_ack_timestamp"]
    for name in ("latest_ack_timestamp", "end_to_end_duration"):
        assert max(task[name] for task in tasks) == row[name]
    assert row["latest_ack_timestamp"] - row["trigger_timestamp"] == row["end_to_end_duration"] > 0


def test_completed_checkpoints_carry_their_cut(killed: Run) -> None:
    """The oracle's finding stands in the history, and failed checkpoints have none."""
    history = killed.report["checkpoints"]["history"]

    assert all((row["orphans"] == 0) == (row["status"] == "COMPLETED") for row in history)
    assert [cut["checkpoint_id"] for cut in killed.report["cuts"]] == [
        row["id"] for row in reversed(history) if row["status"] == "COMPLETED"
    ]


METRICS = st.builds(
    SubtaskCheckpointMetrics,
    start_delay_ns=st.integers(0, 10**9),
    alignment_ns=st.integers(0, 10**9),
    sync_ns=st.integers(0, 10**9),
    async_ns=st.integers(0, 10**9),
    checkpointed_bytes=st.integers(0, 10**9),
    full_bytes=st.integers(0, 10**9),
    processed_bytes=st.integers(0, 10**9),
    persisted_bytes=st.just(0) | st.integers(0, 10**9),
)
IN_SUBTASK = {
    ("checkpointed_size",): "checkpointed_bytes",
    ("state_size",): "full_bytes",
    ("checkpoint", "sync"): "sync_ns",
    ("checkpoint", "async"): "async_ns",
    ("alignment", "processed"): "processed_bytes",
    ("alignment", "persisted"): "persisted_bytes",
    ("alignment", "duration"): "alignment_ns",
    ("start_delay",): "start_delay_ns",
    ("unaligned_checkpoint",): "is_unaligned",
}


def at(value: Any, *path: str) -> Any:
    """The value under these nested names."""
    for name in path:
        value = value[name]
    return value


@given(st.lists(st.tuples(METRICS, st.integers(0, 100)), min_size=4, max_size=4))
def test_whatever_subtasks_report_is_in_their_rows_and_spreads(
    reports: list[tuple[SubtaskCheckpointMetrics, int]],
) -> None:
    """Each number stands under its own name, and each spread is over the numbers of that name."""
    statistics, now = CheckpointStatistics(), 50
    statistics.on_triggered(1, CHECKPOINT, 50, 4)
    for subtask, (metrics, delay) in enumerate(reports):
        now += delay
        statistics.on_acknowledged(1, (subtask // 2, subtask % 2), metrics, now)
    row = table_of(statistics)["history"][0]

    for number, (vertex, task) in enumerate(row["tasks"].items()):
        own = [metrics for metrics, _ in reports[2 * number : 2 * number + 2]]
        assert vertex == PLAN.vertices[number].operators[0].uid
        for path, name in IN_SUBTASK.items():
            values = [getattr(metrics, name) for metrics in own]
            assert [at(one, *path) for one in task["subtasks"]] == values
            if name != "is_unaligned":
                in_summary = [{"checkpoint": "checkpoint_duration"}.get(part, part) for part in path]
                assert list(at(task["summary"], *in_summary).values()) == as_list(Spread.of(values))
                over_all = [getattr(metrics, name) for metrics, _ in reports]
                assert list(at(row["summary"], *in_summary).values()) == as_list(Spread.of(over_all))
        durations = [one["end_to_end_duration"] for one in task["subtasks"]]
        assert durations == [one["ack_timestamp"] - 50 for one in task["subtasks"]]
        assert list(task["summary"]["end_to_end_duration"].values()) == as_list(Spread.of(durations))
    unaligned = any(metrics.persisted_bytes > 0 for metrics, _ in reports)
    assert row["checkpoint_type"] == ("UNALIGNED_CHECKPOINT" if unaligned else "CHECKPOINT")


def as_list(spread: Spread | None) -> list[float]:
    assert spread is not None
    return [
        spread.minimum, spread.maximum, spread.average, spread.p50, spread.p90, spread.p95, spread.p99, spread.p999,
    ]  # fmt: skip


# --- what only some runs have ---


def test_a_checkpoint_in_progress(statistics: CheckpointStatistics) -> None:
    """-1 stands for times that have not come, null for values that will never be known; its subtasks are pending."""
    statistics.on_triggered(1, CHECKPOINT, 50, 4)
    row = table_of(statistics)["history"][0]

    assert (row["status"], row["latest_ack_timestamp"], row["end_to_end_duration"]) == ("IN_PROGRESS", -1, -1)
    assert [row[f"failure_{what}"] for what in ("timestamp", "reason", "message")] == [None, None, None]
    assert (row["retained"], row["discarded"]) == (False, False)
    task = row["tasks"]["numbers"]
    assert (task["latest_ack_timestamp"], task["end_to_end_duration"], task["num_acknowledged_subtasks"]) == (-1, -1, 0)
    assert list(row["summary"]["start_delay"].values()) == [0, 0, 0, None, None, None, None, None]


def test_a_checkpoint_that_waited_says_when_it_was_requested(statistics: CheckpointStatistics) -> None:
    """Durations count from the trigger."""
    statistics.on_triggered(1, CHECKPOINT, 50, 1, requested_ns=20)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(), 57)
    row = table_of(statistics)["history"][0]

    assert (row["request_timestamp"], row["trigger_timestamp"], row["end_to_end_duration"]) == (20, 50, 7)
    assert row["tasks"]["numbers"]["end_to_end_duration"] == 7


def test_a_failed_checkpoint_says_when_and_why(statistics: CheckpointStatistics) -> None:
    """The reason by its name, and in words with the cause; what an aborted subtask told is marked."""
    statistics.on_triggered(1, CHECKPOINT, 50, 4)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(), 60)
    statistics.on_incomplete(1, (0, 1), SubtaskCheckpointMetrics(alignment_ns=7), 65)
    statistics.on_failed(1, CheckpointFailureReason.CHECKPOINT_DECLINED, 70, "no space left")
    row = table_of(statistics)["history"][0]

    assert (row["failure_timestamp"], row["failure_reason"]) == (70, "CHECKPOINT_DECLINED")
    assert row["failure_message"] == "a task declined the checkpoint: no space left"
    assert (row["end_to_end_duration"], row["latest_ack_timestamp"]) == (20, 65)
    first, second = row["tasks"]["numbers"]["subtasks"]
    assert (first["aborted"], second["aborted"], second["alignment"]["duration"]) == (False, True, 7)


def test_savepoints_and_retained_checkpoints(statistics: CheckpointStatistics) -> None:
    """A savepoint has its type, format and path; a discarded checkpoint is no longer retained."""
    for checkpoint_id in (1, 2):
        statistics.on_triggered(checkpoint_id, CHECKPOINT, 0, 0)
        statistics.on_completed(checkpoint_id, 5)
    statistics.on_discarded(1)
    statistics.on_triggered(3, SAVEPOINT, 0, 0, is_synchronous=True, savepoint_format="CANONICAL")
    statistics.on_completed(3, 5, external_path="/save/savepoint-3")
    table = table_of(statistics)
    savepoint, second, first = table["history"]

    assert [(row["discarded"], row["retained"]) for row in (first, second)] == [(True, False), (False, True)]
    assert (savepoint["is_savepoint"], savepoint["checkpoint_type"], savepoint["kind"]) == (
        True, "SYNC_SAVEPOINT", "savepoint",
    )  # fmt: skip
    assert (savepoint["savepointFormat"], savepoint["external_path"]) == ("CANONICAL", "/save/savepoint-3")
    assert savepoint["failure_timestamp"] is None
    assert (table["latest"]["completed"]["id"], table["latest"]["savepoint"]["id"]) == (2, 3)


def test_finished_subtasks_are_marked(statistics: CheckpointStatistics) -> None:
    """They have acknowledged, without any state."""
    statistics.on_triggered(1, CHECKPOINT, 0, 3, finished=[(0, 1)])
    task = table_of(statistics)["history"][0]["tasks"]["numbers"]

    assert task["num_acknowledged_subtasks"] == 1
    assert (task["subtasks"][1]["finished"], task["subtasks"][1]["status"]) == (True, "completed")


def test_dropped_details_leave_no_tasks(statistics: CheckpointStatistics) -> None:
    """Rather than a list of tasks in which none seems to have acknowledged."""
    statistics = CheckpointStatistics(subtask_rows=1)
    for checkpoint_id in (1, 2):
        statistics.on_triggered(checkpoint_id, CHECKPOINT, 0, 1)
        statistics.on_acknowledged(checkpoint_id, (0, 0), SubtaskCheckpointMetrics(full_bytes=3), 4)
        statistics.on_completed(checkpoint_id, 5)
    second, first = table_of(statistics)["history"]

    assert (list(second["tasks"]), first["tasks"]) == (["numbers", "sum"], {})
    assert (first["state_size"], first["num_acknowledged_subtasks"]) == (3, 1)


def test_the_latest_verdict_on_an_id_counts(statistics: CheckpointStatistics) -> None:
    """A later attempt may have used an id again."""
    statistics.on_triggered(1, CHECKPOINT, 0, 0)
    statistics.on_completed(1, 5)
    row = table_of(statistics, CutVerdict(1, 1, 4, 9, 3, 0), CutVerdict(2, 1, 4, 9, 0, 2))["history"][0]

    assert (row["orphans"], row["in_transit"]) == (0, 2)


def test_a_mode_without_checkpoints_has_an_empty_table() -> None:
    """It has no checkpoint and no summary, but is still a whole table."""
    table = make_run(mode="none").report["checkpoints"]

    assert (table["history"], table["restores"]) == ([], [])
    assert set(table["latest"].values()) == {None}
    assert table["counts"]["completed"] == table["counts"]["in_progress"] == table["counts"]["restored"] == 0
    assert list(table["summary"]["state_size"].values()) == [0, 0, 0, None, None, None, None, None]
    assert table["configuration"]["mode"] is None


def test_the_configuration_is_that_of_the_run(statistics: CheckpointStatistics) -> None:
    """Flink's Configuration tab: the guarantee by Flink's word, intervals in time or in records."""
    by_time = RunConfig(mode="at-least-once", checkpoint_interval=CheckpointInterval(time_ns=7), min_pause_ns=3)
    by_records = RunConfig(checkpoint_interval=CheckpointInterval(records=9))
    first, second = (table_of(statistics, config=config)["configuration"] for config in (by_time, by_records))

    assert (first["mode"], first["interval"], first["interval_records"], first["min_pause"]) == (
        "at_least_once", 7, None, 3,
    )  # fmt: skip
    assert (second["mode"], second["interval"], second["interval_records"]) == ("exactly_once", None, 9)
    assert (first["unaligned_checkpoints"], first["aligned_checkpoint_timeout"]) == (False, None)
