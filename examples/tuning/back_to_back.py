"""Back to back: an interval that is shorter than a checkpoint takes, and what a minimum pause gives back.

A checkpoint of this job takes 900 ms: 100 ms in which a task does nothing else, the rest to write two files. The source
could handle 100 records per second, and 92 come. ::

    python -m examples.tuning.back_to_back
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine import CountingSink, Job
from engine.report.units import format_ns
from engine.study import Arrivals, Periodic, StudyTable, sweep
from examples.tuning.lesson import Lesson, mean

INTERVALS = ["100ms", "500ms", "1s", "2s", "5s"]
RATE, CAPACITY, PAUSE = 92, 100, "1s"


def orders(checkpoint_interval: str, min_pause: str, seconds: int) -> dict[str, Any]:
    """Latency counts from when a record is due."""
    job = Job("orders")
    orders = job.source(Arrivals(Periodic(f"{RATE}/s"), count=RATE * seconds), name="orders")
    orders.key_by(lambda n: n % 100).reduce(lambda a, b: a + b, name="total").sink(CountingSink())
    result = job.run(
        checkpoint_interval=checkpoint_interval, min_pause=min_pause, inline_state_bytes=0,
        cost={"source_record": f"{1_000 // CAPACITY}ms", "sync": "100ms", "storage_latency": "400ms"},
    )  # fmt: skip
    first, second = result.checkpoints["triggered_at_ns"][:2]
    return {
        "duration_ns": result.checkpoints["end_to_end_ns"][0],
        "period_ns": second - first,
        "capacity_per_s": CAPACITY * (1 - result.checkpoints["sync_ns"][0] / (second - first)),
        "latency_p99_ns": next(row["p99_ns"] for row in result.latency if row["kind"] == "event"),
    }


def measure(quick: bool, jobs: int) -> StudyTable:
    """Each interval without a pause, and with one."""
    intervals, seconds = (INTERVALS[::3], 15) if quick else (INTERVALS, 120)
    return sweep(orders, checkpoint_interval=intervals, min_pause=["0s", PAUSE], seconds=seconds, jobs=jobs)


def conclude(table: StudyTable) -> str:
    """For the shortest interval, without the pause and with it."""
    without, paused = (partial(mean, table, checkpoint_interval=INTERVALS[0], min_pause=one) for one in ("0s", PAUSE))
    return (
        f"A checkpoint takes {format_ns(paused('duration_ns'))}. At an interval of {INTERVALS[0]} the next one begins"
        f" when one has ended, each {format_ns(without('period_ns'))}. That leaves a capacity of"
        f" {without('capacity_per_s'):.1f} records per second, and {RATE} come: the slowest 1 % wait longer than"
        f" {format_ns(without('latency_p99_ns'))}.\n"
        f"With a pause of {PAUSE} there is a checkpoint each {format_ns(paused('period_ns'))}. The capacity is"
        f" {paused('capacity_per_s'):.1f} per second, and the slowest 1 % wait longer than"
        f" {format_ns(paused('latency_p99_ns'))}. The price: a failure undoes more work."
    )


LESSON = Lesson(
    "Back to back", measure, ("duration_ns", "period_ns", "capacity_per_s", "latency_p99_ns"), conclude,
    {"measure": ["period", "latency_p99"], "x": "checkpoint_interval", "by": "min_pause"},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
