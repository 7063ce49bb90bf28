"""Full, incremental, changelog: what the checkpoints of a growing state weigh, and how long they take.

Each second 200 new accounts come, and a checkpoint. An account weighs about 50 KB, and storage takes 200 MB/s. ::

    python -m examples.tuning.snapshots
"""

from __future__ import annotations

from statistics import median
from typing import Any

from engine import CountingSink, Job
from engine.report import ResultTable
from engine.report.units import format_bytes, format_ns
from engine.study import Arrivals, Periodic, StudyTable
from examples.tuning.lesson import Lesson

RATE = 200
STATES: dict[str, dict[str, Any]] = {
    "full": {"state_backend": "heap"},
    "incremental": {"state_backend": "lsm", "snapshot": "incremental"},
    "changelog": {"state_backend": "changelog:lsm", "snapshot": "incremental", "materialization_interval": "4s"},
}


def accounts(seconds: int, **settings: Any) -> ResultTable:
    """The checkpoints of a run."""
    job = Job("accounts")
    opened = job.source(Arrivals(Periodic(f"{RATE}/s"), count=RATE * seconds), name="opened")
    keyed = opened.key_by(lambda n: n, value=lambda n: "x" * 50)
    keyed.reduce(lambda a, b: b, name="account").sink(CountingSink(), name="end")
    return job.run(
        checkpoint_interval="1s", inline_state_bytes=0, latency=False, **settings,
        cost={
            "source_record": "0s", "virtual_state": 1_000, "storage_latency": "10ms",
            "storage_bytes_per_s": 200_000_000,
        },
    ).checkpoints  # fmt: skip


def measure(quick: bool, jobs: int) -> StudyTable:
    """One run with each kind of state, and a row for each checkpoint."""
    rows = [
        {
            "state": state, "checkpoint": row["checkpoint_id"], "status": "ok", "error": None,
            "duration_ns": row["end_to_end_ns"], "written_bytes": row["checkpointed_bytes"],
            "restore_bytes": row["full_bytes"],
        }
        for state, settings in STATES.items()
        for row in accounts(6 if quick else 20, **settings)
        if row["status"] == "COMPLETED"
    ]  # fmt: skip
    return StudyTable("snapshots", ("state", "checkpoint"), rows)


def conclude(table: StudyTable) -> str:
    """How long checkpoints take, the largest one, and what all of them write."""
    lines = []
    for state in STATES:
        rows = [row for row in table if row["state"] == state]
        durations = sorted(row["duration_ns"] for row in rows)
        largest = max(rows, key=lambda row: row["written_bytes"])
        total_bytes = sum(row["written_bytes"] for row in rows)
        lines.append(
            f"{state}: {format_ns(durations[0])} to {format_ns(durations[-1])}, half of them up to"
            f" {format_ns(median(durations))}. The largest writes {format_bytes(largest['written_bytes'])} and takes"
            f" {format_ns(largest['duration_ns'])}. All write {format_bytes(total_bytes)}."
            f" A restore from the last one reads {format_bytes(rows[-1]['restore_bytes'])}."
        )
    return "\n".join(lines)


LESSON = Lesson(
    "Full, incremental, changelog", measure, ("duration_ns", "written_bytes", "restore_bytes"), conclude,
    {"measure": ["duration", "written"], "x": "checkpoint", "by": "state"}, beside="state",
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
