"""Back to back: what happens when the checkpoint interval is shorter than a checkpoint takes, and what a pause gives back.

A checkpoint of this job takes 900 ms: 100 ms in which a task does nothing else, the rest to write two files. The source
could handle 100 records per second, and 92 come. ::

    python -m examples.tuning.back_to_back
"""

from __future__ import annotations

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
    duration_ns, period_ns = result.checkpoints["end_to_end_ns"][0], second - first
    capacity = CAPACITY * (1 - result.checkpoints["sync_ns"][0] / period_ns)
    latency_ns = next(row["p99_ns"] for row in result.latency if row["kind"] == "event")
    return {"duration_ns": duration_ns, "period_ns": period_ns, "capacity_per_s": capacity, "latency_p99_ns": latency_ns}


def measure(quick: bool, jobs: int) -> StudyTable:
    """Each interval without a pause, and with one."""
    seconds = 20 if quick else 120
    return sweep(orders, checkpoint_interval=INTERVALS, min_pause=["0s", PAUSE], seconds=seconds, jobs=jobs)


def conclude(table: StudyTable) -> str:
    """For the shortest interval."""
    without, paused = ({"checkpoint_interval": INTERVALS[0], "min_pause": pause} for pause in ("0s", PAUSE))
    return (
        f"A checkpoint takes {format_ns(mean(table, 'duration_ns', **paused))}. At an interval of {INTERVALS[0]} the next one"
        f" follows at once, each {format_ns(mean(table, 'period_ns', **without))}. Of {CAPACITY} records per second"
        f" {mean(table, 'capacity_per_s', **without):.1f} are left, and {RATE} come: 1 % of them wait longer than"
        f" {format_ns(mean(table, 'latency_p99_ns', **without))}.\nA pause of {PAUSE} gives back"
        f" {mean(table, 'capacity_per_s', **paused) - mean(table, 'capacity_per_s', **without):.1f} per second:"
        f" {format_ns(mean(table, 'latency_p99_ns', **paused))}. The price is a checkpoint each"
        f" {format_ns(mean(table, 'period_ns', **paused))}, so more work is lost when the job fails."
    )


LESSON = Lesson(
    measure, ("duration_ns", "period_ns", "capacity_per_s", "latency_p99_ns"), conclude,
    {"measure": ["period", "latency_p99"], "x": "checkpoint_interval", "by": "min_pause"},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
