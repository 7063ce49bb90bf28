"""Local recovery: what a copy of the state beside each task is worth, when tasks fail and when hosts fail.

Eight hosts with one task each have 8 GB of state. They read it from storage at 500 MB/s each and 1 GB/s together, or
from their disk at 2 GB/s. Each half a minute a task dies, or a host with its disk. ::

    python -m examples.tuning.local_recovery
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine import CountingSink, Job
from engine.report.units import format_ns
from engine.study import Arrivals, Failures, Periodic, StudyTable, Uniform, sweep
from examples.tuning.lesson import Lesson, mean

HOSTS, SESSIONS, SESSION_BYTES, STATE_BYTES = 8, 1_000, 1_000, 8 * 10**9


def study(fails: str, local_recovery: bool, seconds: int, seed: int) -> dict[str, Any]:
    """The mean of a run's recoveries. A seed has the same failures with and without copies."""
    job = Job("sessions", parallelism=HOSTS)
    clicks = job.source(Arrivals(Periodic("50/s"), count=50 * seconds), name="clicks", parallelism=1)
    sessions = clicks.key_by(lambda n: n % SESSIONS, value=lambda n: "x" * SESSION_BYTES)
    sessions.reduce(lambda a, b: b, name="session").sink(CountingSink(), name="end")
    result = job.run(
        checkpoint_interval="10s", inline_state_bytes=1_000, local_recovery=local_recovery, seed=seed,
        failures=Failures(Uniform("25s", "35s"), fails),
        cost={
            "source_record": "0s", "virtual_state": STATE_BYTES / SESSIONS / SESSION_BYTES, "detection": "2s",
            "storage_bytes_per_s": 5 * 10**8, "restore_bytes_per_s": 5 * 10**8,
            "shared_storage_bytes_per_s": 10**9, "local_restore_bytes_per_s": 2 * 10**9,
        },
    )  # fmt: skip
    recoveries = list(result.recoveries)
    return {
        "recovery_ns": sum(row["recovery_ns"] for row in recoveries) / len(recoveries),
        "fetched_bytes": sum(row["remote_bytes"] for row in recoveries) / len(recoveries),
    }


def measure(quick: bool, jobs: int) -> StudyTable:
    """Both kinds of failures, with and without copies."""
    seconds, seeds = (36, 1) if quick else (200, 10)
    return sweep(
        study, fails=["task", "host"], local_recovery=[False, True], seconds=seconds, seed=range(seeds), jobs=jobs
    )


def conclude(table: StudyTable) -> str:
    """How much shorter a recovery is, and what is still fetched."""
    lines = []
    for fails in ("task", "host"):
        remote, local = (partial(mean, table, fails=fails, local_recovery=copies) for copies in (False, True))
        lines.append(
            f"A {fails} fails: copies make a recovery {remote('recovery_ns') / local('recovery_ns'):.1f} times shorter:"
            f" {format_ns(local('recovery_ns'))} instead of {format_ns(remote('recovery_ns'))}. Tasks fetch"
            f" {local('fetched_bytes') / remote('fetched_bytes'):.0%} of the state from storage."
        )
    return "\n".join(lines)


LESSON = Lesson(
    "Local recovery", measure, ("recovery_ns", "fetched_bytes"), conclude,
    {"measure": ["recovery", "fetched"], "x": "fails", "by": "local_recovery", "bars": True},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
