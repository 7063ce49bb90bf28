"""V19: how likely it is that some task compacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from engine import CountingSink, Job
from engine.observe.trace_events import BackgroundWorkDone
from engine.study import Arrivals, Poisson
from state_backends.base import key_group_for, operator_index_for_key_group
from state_backends.lsm import LsmStateBackend
from tests.validation.targets import Figure, Size, assert_plausible, target

UPDATES, TRIGGER = 0.04, 4
"""Updates of a task in a checkpoint interval of a second; four files start a compaction: in 1 % of the intervals."""


class Compactions:
    """Counts compactions in each second."""

    def __init__(self) -> None:
        self.counts = Counter[int]()

    def __call__(self, event: object) -> None:
        if isinstance(event, BackgroundWorkDone) and event.work == "compaction into level 1":
            self.counts[event.time_ns // 10**9] += 1


def compactions(tasks: int, first: int, seconds: int, seed: int) -> list[int]:
    """Of all tasks, in each second after the first ones. Each task has a key, whose updates are files of their own."""
    groups = 4 * tasks
    keys = {operator_index_for_key_group(groups, tasks, key_group_for(key, groups)): key for key in range(40 * tasks)}
    seen, job = Compactions(), Job("compaction", parallelism=tasks, max_parallelism=groups)
    # Each update is of a task chosen at random, so each task has a Poisson process.
    # Some more of them, so that they do not end too early.
    rate, count = tasks * UPDATES, round(1.2 * tasks * UPDATES * (first + seconds))
    process = Poisson(f"{rate:g}/s")
    updates = job.source(
        Arrivals(process, count, lambda i: keys[scattered(i) % tasks]), name="updates", parallelism=1
    )
    updates.key_by(lambda key: key).reduce(lambda a, b: b, name="latest").sink(CountingSink(), name="end")
    backend = LsmStateBackend(level0_trigger=TRIGGER, memtable_bytes=1)
    result = job.run(mode="none", seed=seed, latency=False, state_backend=backend, instruments=[seen])
    began = result.execution.started_ns // 10**9
    return [seen.counts[began + second] for second in range(first, first + seconds)]


def scattered(number: int) -> int:
    """A number without a pattern (the finaliser of SplitMix64: G. Steele et al., OOPSLA 2014)."""
    mixed = (number * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    return (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64 >> 11


@target("V19", "how likely is it that some task compacts?", study=[Compactions, compactions])
def some_task(size: Size) -> Iterator[Figure]:
    """The first intervals are left out: all tasks begin without files."""
    for tasks, seconds in ((50, 16_000), (100, 10_000), (1_000, 50)) if size.full else ((10, 600),):
        counts = compactions(tasks, 300, seconds, 0)
        share = sum(counts) / len(counts) / tasks
        expected = 1 - (1 - share) ** tasks
        found = sum(1 for count in counts if count) / len(counts)
        spread = (expected * (1 - expected) / len(counts)) ** 0.5
        yield Figure(f"p = {tasks}, q = {share:.2%} measured: P(some task)", expected, found, 0.02, spread)


def test_with_many_tasks_some_task_always_compacts() -> None:
    """P = 1 - (1 - q)^p: for q = 1 % 39.5 % at p = 50, 63.4 % at 100, 99.996 % at 1,000. That some task is always
    compacting is stated in the Flink blog of 2022-05-30 (generic log-based incremental checkpoints).
    """
    assert_plausible(some_task)
