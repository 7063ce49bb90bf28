"""V35: the DS2 rule finds the parallelism in a few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil

from engine import CountingSink, Job, SequenceSource
from engine.study import Constant, rescaling
from tests.validation.targets import Figure, Size, assert_plausible, target

RATE, FAN_OUT = 900, 3
COSTS_US = {"parse": 4_200, "split": 1_500, "store": 900}
"""Microseconds for a record, of one task."""
LOADS = {"parse": 1, "split": 1, "store": FAN_OUT}
"""Records of each operator for one of the source."""
Costs = Callable[[str, int], float]
"""Microseconds for a record, by operator and parallelism."""


def proposed(parallelism: Mapping[str, int], costs: Costs, records: int) -> dict[str, int]:
    """Tasks of each operator, after a run with these."""
    job = Job("scaled")
    stream = job.source(SequenceSource(0, records), name="source").rebalance()
    stream = stream.map(lambda n: n, name="parse", parallelism=parallelism["parse"]).rebalance()
    stream = stream.flat_map(lambda n: [n] * FAN_OUT, name="split", parallelism=parallelism["split"]).rebalance()
    stream.sink(CountingSink(), name="store", parallelism=parallelism["store"])
    service = {name: Constant(round(1_000 * costs(name, count))) for name, count in parallelism.items()}
    table = rescaling(job.run(mode="none", service=service, latency=False), f"{RATE}/s")
    return {row["vertex"]: row["proposed"] for row in table if row["vertex"] in parallelism}


def steps_until_stable(costs: Costs, records: int) -> tuple[int, dict[str, int]]:
    """Run with what the rule proposes, until nothing changes."""
    parallelism, steps = dict.fromkeys(COSTS_US, 1), 0
    while (following := proposed(parallelism, costs, records)) != parallelism:
        parallelism, steps = following, steps + 1
    return steps, parallelism


@target("V35", "how many steps does the DS2 rule take?", study=[proposed, steps_until_stable])
def steps(size: Size) -> Iterator[Figure]:
    """Costs that do not depend on the parallelism, and costs that grow with it."""
    records = size.of(200, 2_000)
    found, parallelism = steps_until_stable(lambda name, count: COSTS_US[name], records)
    yield Figure("linear: steps", 1, found, 0)
    for name, cost_us in COSTS_US.items():
        yield Figure(f"linear: tasks of {name}", ceil(RATE * LOADS[name] * cost_us / 1e6), parallelism[name], 0)
    found, parallelism = steps_until_stable(lambda name, count: COSTS_US[name] * (1 + 0.02 * count), records)
    yield Figure("costs that grow by 2 % a task: steps above 3", 0, max(0, found - 3), 0)
    enough = all(
        RATE * LOADS[name] * cost_us * (1 + 0.02 * parallelism[name]) / 1e6 <= parallelism[name]
        for name, cost_us in COSTS_US.items()
    )
    yield Figure("costs that grow by 2 % a task: the load is handled", 1, int(enough), 0)


def test_the_rule_takes_three_steps_at_most() -> None:
    """p = ceil(target rate / true rate per task), from the source on, the true rate being that of the time in which a
    task works; one step if the job scales linearly, at most three (V. Kalavri et al.: Three steps is all you need,
    OSDI 2018).
    """
    assert_plausible(steps)
