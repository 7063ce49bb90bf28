"""State per task: how parallelism makes checkpoints shorter, and where that ends.

The state of the job has about 64 GB at every parallelism, and a task writes 200 MB/s. In half of the runs all tasks
together write no more than 1 GB/s. ::

    python -m examples.tuning.state_per_task
"""

from __future__ import annotations

from typing import Any

from engine import CountingSink, Job, SequenceSource
from engine.report.units import format_ns
from engine.study import StudyTable, sweep
from examples.tuning.lesson import Lesson, mean

PROFILE_BYTES, STATE_BYTES = 100, 64 * 10**9
TASK, SHARED = 200_000_000, 1_000_000_000
OWN, TOGETHER = "200 MB/s each", "together 1 GB/s"
PARALLELISMS = [1, 2, 4, 8, 16, 32]


def study(storage: str, parallelism: int, users: int) -> dict[str, Any]:
    """The last checkpoint of a job that has put a profile of each user into its state."""
    job = Job("profiles", parallelism=parallelism)
    source = job.source(SequenceSource(0, users), name="users", parallelism=1)
    profiles = source.key_by(lambda n: n, value=lambda n: "x" * PROFILE_BYTES).reduce(lambda a, b: b, name="profile")
    profiles.sink(CountingSink(), name="end")
    shared = {"shared_storage_bytes_per_s": SHARED} if storage == TOGETHER else {}
    result = job.run(
        checkpoint_interval=None, inline_state_bytes=1_000,
        cost={"storage_bytes_per_s": TASK, "virtual_state": STATE_BYTES / users / PROFILE_BYTES, **shared},
    )  # fmt: skip
    (last,) = result.execution.checkpoints.rows()
    sizes = [row.number("checkpointed_bytes") for row in last.subtasks if row.task[0] == 1]
    return {
        "duration_ns": last.end_to_end_ns, "greatest_task_bytes": max(sizes),
        "to_mean": max(sizes) * parallelism / sum(sizes),
    }  # fmt: skip


def measure(quick: bool, jobs: int) -> StudyTable:
    """Each parallelism, without and with the limit for all tasks."""
    users = 2_000 if quick else 20_000
    return sweep(study, storage=[OWN, TOGETHER], parallelism=PARALLELISMS, users=users, jobs=jobs)


def conclude(table: StudyTable) -> str:
    """From one task to the most, and from where the common limit counts."""
    most = PARALLELISMS[-1]
    one, many = (mean(table, "duration_ns", storage=OWN, parallelism=tasks) for tasks in (1, most))
    uneven = mean(table, "to_mean", storage=OWN, parallelism=most)
    together = [mean(table, "duration_ns", storage=TOGETHER, parallelism=tasks) for tasks in PARALLELISMS]
    enough = next(tasks for tasks, ns in zip(PARALLELISMS, together, strict=True) if ns < 1.05 * together[-1])
    return (
        f"{most} tasks make a checkpoint {one / many:.1f} times shorter: {format_ns(many)} instead of {format_ns(one)}."
        f" The largest task decides, and it has {uneven:.2f} times the mean: keys are spread by hash.\n"
        f"With a common limit {enough} tasks are as good as {most}: {format_ns(together[-1])}. {SHARED // TASK} tasks"
        " reach the limit; beyond that only fewer bytes help."
    )


LESSON = Lesson(
    "State per task", measure, ("duration_ns", "greatest_task_bytes", "to_mean"), conclude,
    {"measure": "duration", "x": "parallelism", "by": "storage", "log": True},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
