"""A queue that fails: how the time between checkpoints shows in lost work, waiting and makespan, over 20 seeds each.

Calls come at random, eight per second for twenty minutes. Handling one takes 100 ms on average, and a task fails each
six minutes. The study on the page has 100,000 calls, and a failure each six hours. ::

    python -m examples.tuning.failing_queue
"""

from __future__ import annotations

from engine import CountingSink, Job, RunResult
from engine.report.units import format_ns
from engine.study import Arrivals, Exponential, Failures, Poisson, StudyTable, sweep
from examples.tuning.lesson import Lesson, mean

INTERVALS = ["1m", "2m", "5m"]
CALLS = 10_000


def study(checkpoint_interval: str, seed: int, count: int = CALLS, mtbf: str = "6m") -> RunResult:
    job = Job("queue")
    calls = job.source(Arrivals(Poisson("8/s"), count=count, value=lambda i: i % 100), name="calls")
    calls.key_by(lambda v: v).reduce(lambda a, b: a + b, name="sum").sink(CountingSink())
    return job.run(mode="aligned", checkpoint_interval=checkpoint_interval, seed=seed,
                   service={"sum": Exponential("100ms")}, failures=Failures(Exponential(mtbf)))  # fmt: skip


def measure(quick: bool, jobs: int) -> StudyTable:
    """Each interval with the same seeds."""
    if quick:
        return sweep(study, checkpoint_interval=["2s", "20s"], seed=range(2), count=600, mtbf="20s", jobs=jobs)
    return sweep(study, checkpoint_interval=INTERVALS, seed=range(20), jobs=jobs)


def conclude(table: StudyTable) -> str:
    """Lost work of the runs with a failure, by interval; the makespan of all beside the time in which calls come."""
    failed = StudyTable(table.name, table.arguments, [row for row in table if row["attempts"] > 1])
    intervals = dict.fromkeys(row["checkpoint_interval"] for row in failed)
    lost = [f"{format_ns(mean(failed, 'lost_ns', checkpoint_interval=one))} at {one}" for one in intervals]
    come_ns = table[0].get("count", CALLS) / 8 * 1e9
    makespans = [format_ns(mean(table, "makespan_ns", checkpoint_interval=one)) for one in intervals]
    return (
        f"A task failed in {len(failed)} of {len(table)} runs. The work that these lost grows with the interval:"
        f" {', '.join(lost)}.\n"
        f"Calls come for {format_ns(come_ns)}. The makespan is {', '.join(makespans)} on average: beyond that time the"
        " job only catches up."
    )


LESSON = Lesson(
    "A queue that fails", measure, ("makespan_ns", "lost_ns", "latency_p99_ns"), conclude,
    {"measure": ["makespan", "lost", "latency_p99"], "x": "checkpoint_interval"},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
