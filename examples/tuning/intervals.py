"""Recovery and lost work against the interval between checkpoints, 100 seeds each.

Calls come at random, five per second, and a server could handle ten. It dies once, at a random time between two
checkpoints, and is missed after five seconds. *Lost* is the work between the trigger of the restored checkpoint and the
failure, *recovery* the time from the failure until no call waits any more. ::

    python -m examples.tuning.intervals
"""

from __future__ import annotations

from engine import Job
from engine.report.units import format_ns
from engine.study import Arrivals, Constant, Poisson, StudyTable, sweep
from examples.tuning.lesson import Lesson, mean

INTERVALS = ["10s", "20s", "40s", "80s", "160s"]
DOWN_S, LOAD = 5.01, 0.5
"""Until the server runs again; part of the capacity that the calls need."""


def study(interval: str, seed: int, failure_s: int = 400) -> dict[str, float]:
    job, seen = Job("calls"), list[tuple[int, int]]()
    calls = job.source(Arrivals(Poisson("5/s"), count=8 * failure_s), name="calls")
    served = calls.map(lambda n: n, name="server", chain=False)
    served.process(lambda n, ctx: [(ctx.processing_time_ms(), ctx.timestamp_ms)]).collect(seen)
    result = job.run(checkpoint_interval=interval, random_first_delay=True, kills=[f"server@{failure_s}s"], seed=seed,
                     latency=False, service={"server": Constant("100ms")},
                     cost={"source_record": "0s", "detection": "5s"})  # fmt: skip
    failed_ms, recovery = result.execution.started_ns // 10**6 + failure_s * 1_000, next(iter(result.recoveries))
    caught_up_ms = next(now for now, due in seen if now > failed_ms and now - due < 500)
    return {"lost_ns": recovery["lost_ns"] - recovery["down_ns"], "recovery_ns": (caught_up_ms - failed_ms) * 10**6}


def measure(quick: bool, jobs: int) -> StudyTable:
    """Each interval with the same seeds."""
    if quick:
        return sweep(study, interval=["5s", "10s"], seed=range(4), failure_s=60, jobs=jobs)
    return sweep(study, interval=INTERVALS, seed=range(100), jobs=jobs)


def law_s(interval_s: float) -> tuple[float, float]:
    """Lost work on average, and recovery: the calls of the lost time and of the recovery are worked off by the capacity
    that is left."""
    lost_s = interval_s / 2
    return lost_s, DOWN_S + (DOWN_S + lost_s) * LOAD / (1 - LOAD)


def conclude(table: StudyTable) -> str:
    """The means beside the law."""
    lines = []
    for interval in dict.fromkeys(row["interval"] for row in table):
        lost, recovery = (format_ns(mean(table, measure, interval=interval)) for measure in LESSON.shown)
        laws = [format_ns(seconds * 1e9) for seconds in law_s(float(interval.removesuffix("s")))]
        lines.append(f"{interval}: lost {lost}, law {laws[0]}; recovery {recovery}, law {laws[1]}")
    return "\n".join(lines)


LESSON = Lesson(
    "Interval and recovery", measure, ("lost_ns", "recovery_ns"), conclude,
    {"measure": ["lost", "recovery"], "x": "interval"},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
