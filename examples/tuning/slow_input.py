"""One slow input: what exactly-once costs in latency then, and what at-least-once costs after a failure.

A task counts the records of two inputs. The link of the second one is slow, so its barriers come late. With aligned
barriers the first input waits for them at each checkpoint, which is one each second. ::

    python -m examples.tuning.slow_input
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine import CollectedResults, Job, RunResult
from engine.report.units import format_ns
from engine.study import Arrivals, Periodic, StudyTable, sweep
from examples.tuning.lesson import Lesson, mean

MODES = ["aligned", "unaligned", "at-least-once"]
LATE_MS = [0, 100, 200, 400, 800]
RATE, SLOW_RATE = 200, 2
"""Records per second. There are so few of the slow input that percentiles are those of the other one."""


def counting(mode: str, late_ms: int, seconds: int, **settings: Any) -> tuple[RunResult, int]:
    """A run, and the number of records that it has counted."""
    job, counts = Job("counting"), CollectedResults()
    quick = job.source(Arrivals(Periodic(f"{RATE}/s"), count=RATE * seconds), name="quick")
    slow = job.source(Arrivals(Periodic(f"{SLOW_RATE}/s"), count=SLOW_RATE * seconds), name="slow")
    ones = quick.union(slow).key_by(lambda n: 0, value=lambda n: 1)
    ones.reduce(lambda a, b: a + b, name="count").collect(counts, name="end")
    result = job.run(
        mode=mode, checkpoint_interval="1s", **settings,
        cost={"source_record": "0s", "record": "1ms", "slow_links": {"slow": f"{late_ms}ms"}},
    )  # fmt: skip
    return result, max(counts.records)


def study(mode: str, late_ms: int, seconds: int) -> dict[str, Any]:
    """The latency of a run without failures; what a run counts twice that fails after a checkpoint."""
    calm, all_records = counting(mode, late_ms, seconds)
    _, counted = counting(mode, late_ms, seconds, kills=[f"count@{seconds * 500 + 900}ms"])
    latency = next(row for row in calm.latency if row["kind"] == "event")
    return {
        "latency_p50_ns": latency["p50_ns"], "latency_p99_ns": latency["p99_ns"],
        "stored_bytes": max(calm.checkpoints["persisted_bytes"]), "counted_twice": counted - all_records,
    }  # fmt: skip


def measure(quick: bool, jobs: int) -> StudyTable:
    """Each mode, with links that are slower and slower."""
    late_ms, seconds = (LATE_MS[::4], 2) if quick else (LATE_MS, 20)
    return sweep(study, mode=MODES, late_ms=late_ms, seconds=seconds, jobs=jobs)


def conclude(table: StudyTable) -> str:
    """For the slowest link."""
    aligned, unaligned, least = (partial(mean, table, mode=mode, late_ms=LATE_MS[-1]) for mode in MODES)
    return (
        f"When barriers are {LATE_MS[-1]} ms late, the slowest 1 % of the records take longer than"
        f" {format_ns(aligned('latency_p99_ns'))} with aligned barriers, {format_ns(unaligned('latency_p99_ns'))}"
        f" unaligned and {format_ns(least('latency_p99_ns'))} at-least-once.\n"
        f"A failure makes at-least-once count {least('counted_twice'):.0f} records twice: those that came on the quick"
        f" input between the two barriers. Aligned counts {aligned('counted_twice'):.0f} twice, unaligned"
        f" {unaligned('counted_twice'):.0f}: it stores {unaligned('stored_bytes'):.0f} bytes of records in flight."
    )


LESSON = Lesson(
    "One slow input", measure, ("latency_p50_ns", "latency_p99_ns", "stored_bytes", "counted_twice"), conclude,
    {"measure": ["latency_p99", "counted_twice"], "x": "late_ms", "by": "mode"},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
