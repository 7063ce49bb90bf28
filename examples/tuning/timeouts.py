"""Why a checkpoint times out: four causes, and what the checkpoint table shows of each.

Clicks go from four sources through four parsers to four tasks that keep the latest one per user. The timeout of a
checkpoint is a second. Here it is not set, so that each checkpoint completes and the table has a row of each task. ::

    python -m examples.tuning.timeouts
"""

from __future__ import annotations

from typing import Any

from engine import CountingSink, Job
from engine.report import RunResult
from engine.study import Arrivals, Periodic, StudyTable, sweep
from examples.tuning.lesson import Lesson

NONE, ALIGNMENT, STORAGE, STATE, SKEW = CAUSES = ("none", "alignment", "storage", "state", "skew")
"""Slow alignment, slow storage, a big state in one subtask, one subtask with many records."""
TASKS, USERS, TIMEOUT_S = 4, 97, 1
COLUMNS = ("start_delay_ns", "alignment_ns", "async_ns")


def clicks(cause: str, **settings: Any) -> RunResult:
    """Five seconds of clicks, with a checkpoint after four."""
    job, is_big, is_skewed = Job("clicks", parallelism=TASKS), cause == STATE, cause == SKEW
    source = job.source(Arrivals(Periodic("200/s"), count=1_000, splits=TASKS), name="clicks")
    parsed = source.rebalance().map(lambda n: n, name="parse", chain=False)
    latest = parsed.key_by(
        lambda n: 0 if is_skewed and n % 10 < 4 else n % USERS,
        value=lambda n: "x" * (2_500 if is_big and n % USERS == 13 else 5),
    ).reduce(lambda a, b: b, name="latest")
    latest.sink(CountingSink(), name="end")
    return job.run(
        checkpoint_interval="4s", inline_state_bytes=0, channel_capacity=40, latency=False, **settings,
        cost={
            "source_record": "0s", "record": "12ms", "storage_latency": "50ms", "virtual_state": 1_000,
            "storage_bytes_per_s": 150_000 if cause == STORAGE else 1_000_000,
            "stragglers": {"parse[1]": 4} if cause == ALIGNMENT else {},
        },
    )  # fmt: skip


def study(cause: str) -> dict[str, Any]:
    """The first checkpoint, by the rows of the tasks ``latest``: the greatest of each time, and the cause they tell."""
    first = next(iter(clicks(cause).execution.checkpoints.rows()))
    last = [row for row in first.subtasks if row.task[0] == 2]
    found = {column: max(row.number(column) for row in last) for column in COLUMNS}
    where = max(COLUMNS, key=lambda column: found[column])
    slow = sum(row.number(where) > found[where] / 2 for row in last)
    in_time = sum(row.end_to_end_ns < TIMEOUT_S * 1e9 for row in first.subtasks)
    return {
        "duration_ns": first.end_to_end_ns, **found, "slow_tasks": slow,
        "in_time": f"{in_time}/{first.task_count}", "told": told(where, slow, in_time == first.task_count),
    }  # fmt: skip


def told(where: str, slow: int, is_in_time: bool) -> str:
    """The cause, by the longest time and by the number of tasks in which it is long."""
    if is_in_time:
        return NONE
    if where == "async_ns":
        return STORAGE if slow > 1 else STATE
    return ALIGNMENT if slow > 1 else SKEW


def measure(quick: bool, jobs: int) -> StudyTable:
    """Each cause by itself: short runs, quick or not."""
    return sweep(study, cause=CAUSES, jobs=jobs)


def conclude(table: StudyTable) -> str:
    """Whether the table tells the causes."""
    right = sum(row["cause"] == row["told"] for row in table)
    return (
        f"The table tells {right} of {len(table)} cases by two questions about the tasks 'latest': which time is the"
        " longest, and is it long in one task or in several?\n"
        "Alignment, in several: they wait for the barrier of another task, which is slow. Start delay, in one: too many"
        " records wait in front of it. Asynchronous part, in several: storage is slow; in one: its state is big."
    )


LESSON = Lesson(
    "Timeouts", measure, ("duration_ns", *COLUMNS, "slow_tasks", "in_time"), conclude,
    {"measure": COLUMNS, "x": "cause", "bars": True},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
