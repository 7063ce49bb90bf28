"""Unaligned under back pressure: duration and bytes in flight, with sinks 1 to 100 times slower, parallelism 2 to 50.

A record stands for a buffer of 32 KiB. As in Flink, each channel holds two, and each sink has eight more for all of its
channels. Sources send one in 100 us, and storage takes 100 ms to begin a file. ::

    python -m examples.tuning.unaligned
"""

from __future__ import annotations

from functools import partial

from engine import CountingSink, Job, SequenceSource
from engine.report.units import format_bytes
from engine.study import StudyTable, sweep
from examples.tuning.lesson import Lesson, mean

MODES = ["aligned", "aligned-timeout", "unaligned"]
SLOWDOWNS = [1, 3, 10, 30, 100]
BUFFER = 32 << 10


def study(mode: str, slowdown: int, parallelism: int) -> dict[str, float]:
    job = Job("slow sinks", parallelism=parallelism)
    source = SequenceSource(0, 300 * parallelism, splits=parallelism)
    job.source(source, name="numbers").rebalance().sink(CountingSink(), name="sink")
    rows = job.run(mode=mode, checkpoint_interval=f"{200 * parallelism}rec", batch_size=parallelism,
                   channel_capacity=2, floating_credit=8, inline_state_bytes=0,
                   cost={"source_record": "100us", "record": "100us", "stragglers": {"sink": slowdown},
                         "record_bytes": 32 << 10, "storage_latency": "100ms"}).checkpoints  # fmt: skip
    return {"duration_ns": rows["end_to_end_ns"][0], "in_flight_bytes": rows["persisted_bytes"][0]}


def measure(quick: bool, jobs: int) -> StudyTable:
    """All combinations."""
    slowdown, parallelism = ([1, 100], [2, 4]) if quick else (SLOWDOWNS, [2, 10, 50])
    return sweep(study, mode=MODES, slowdown=slowdown, parallelism=parallelism, jobs=jobs)


def conclude(table: StudyTable) -> str:
    """Between the corners of the grid."""
    slowest = max(row["slowdown"] for row in table)
    few, many = (choose(row["parallelism"] for row in table) for choose in (min, max))
    lines = []
    for mode in MODES:
        ends = [partial(mean, table, mode=mode, parallelism=tasks) for tasks in (few, many)]
        longer = [one("duration_ns", slowdown=slowest) / one("duration_ns", slowdown=1) for one in ends]
        stored = [format_bytes(one("in_flight_bytes", slowdown=slowest)) for one in ends]
        lines.append(
            f"{mode}: sinks that are {slowest} times slower make it {longer[0]:.2f} times longer at parallelism {few},"
            f" {longer[1]:.2f} times at {many}. It stores {stored[0]} and {stored[1]} of records in flight."
        )
    full = format_bytes(many * (2 * many + 8) * BUFFER)
    return "\n".join([*lines, f"Full buffers hold p (2 p + 8) x 32 KiB: {full} at parallelism {many}."])


LESSON = Lesson(
    "Slow sinks and parallelism", measure, ("duration_ns", "in_flight_bytes"), conclude,
    {"measure": ["duration", "in_flight"], "x": "slowdown", "by": ["mode", "parallelism"], "log": True}, beside="mode",
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
