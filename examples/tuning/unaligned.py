"""Unaligned under back pressure: duration and bytes in flight, with sinks 1 to 100 times slower, parallelism 2 to 50.

A record stands for a buffer of 32 KiB. As in Flink, each channel holds two, and each sink has eight more for all of its
channels. Sources send one in 100 us, and storage takes 100 ms to begin a file. ::

    python -m examples.tuning.unaligned
"""

from __future__ import annotations

from typing import Any

from engine import CountingSink, Job, SequenceSource
from engine.report.units import format_bytes, format_ns
from engine.study import StudyTable, sweep
from examples.tuning.lesson import Lesson, mean

MODES = ["aligned", "aligned-timeout", "unaligned"]
SLOWDOWNS = [1, 3, 10, 30, 100]


def study(mode: str, slowdown: int, parallelism: int) -> dict[str, Any]:
    job = Job("slow sinks", parallelism=parallelism)
    source = SequenceSource(0, 300 * parallelism, splits=parallelism)
    job.source(source, name="numbers").rebalance().sink(CountingSink(), name="sink")
    checkpoints = job.run(
        mode=mode, checkpoint_interval=f"{200 * parallelism}rec", batch_size=parallelism, channel_capacity=2, floating_credit=8,
        inline_state_bytes=0, cost={"source_record": "100us", "record": "100us", "record_bytes": 32 << 10,
                                    "stragglers": {"sink": slowdown}, "storage_latency": "100ms"},
    ).checkpoints  # fmt: skip
    return {"duration_ns": checkpoints["end_to_end_ns"][0], "in_flight_bytes": checkpoints["persisted_bytes"][0]}


def measure(quick: bool, jobs: int) -> StudyTable:
    """All combinations."""
    slowdown, parallelism = ([1, 100], [2, 4]) if quick else (SLOWDOWNS, [2, 10, 50])
    return sweep(study, mode=MODES, slowdown=slowdown, parallelism=parallelism, jobs=jobs)


def conclude(table: StudyTable) -> str:
    """Between the corners of the grid."""
    slow, few, most = max(row["slowdown"] for row in table), *(
        chosen(row["parallelism"] for row in table) for chosen in (min, max)
    )
    lines = []
    for mode in MODES:
        ns = {(s, p): mean(table, "duration_ns", mode=mode, slowdown=s, parallelism=p) for s in (1, slow) for p in (few, most)}
        stored = {p: mean(table, "in_flight_bytes", mode=mode, slowdown=slow, parallelism=p) for p in (few, most)}
        lines.append(
            f"{mode}: with sinks {slow} times slower a checkpoint takes {ns[slow, few] / ns[1, few]:.1f} times as long at parallelism"
            f" {few}, {ns[slow, most] / ns[1, most]:.1f} times at {most} ({format_ns(ns[slow, most])}), and stores {format_bytes(stored[few])} and"
            f" {format_bytes(stored[most])} of records in flight"
        )
    bound = most * (2 * most + 8) * (32 << 10)
    lines.append(f"Full buffers hold p (2 p + 8) records of 32 KiB: {format_bytes(bound)} at parallelism {most}.")
    return "\n".join(lines)


LESSON = Lesson(
    measure, ("duration_ns", "in_flight_bytes"), conclude,
    {"measure": ["duration", "in_flight"], "x": "slowdown", "by": ["mode", "parallelism"], "log": True}, beside="mode",
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
