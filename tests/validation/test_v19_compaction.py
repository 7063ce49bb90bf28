"""V19: how likely it is that some task compacts."""

from __future__ import annotations

from collections.abc import Iterator
from math import log1p

from engine import CountingSink, Job
from engine.observe.trace_events import BackgroundWorkDone, CheckpointTriggered
from engine.study import Arrivals, Poisson
from state_backends.base import key_group_for, operator_index_for_key_group
from state_backends.lsm import LsmStateBackend
from tests.validation.targets import Figure, Size, assert_plausible, target

UPDATED, TRIGGER = 0.04, 4
"""How likely it is that a task writes a file for a checkpoint; a task compacts four of them: 1 % of the checkpoints."""


class Compactions:
    """Counts compactions for each checkpoint."""

    def __init__(self) -> None:
        self.counts = [0]

    def __call__(self, event: object) -> None:
        if isinstance(event, CheckpointTriggered):
            self.counts.append(0)
        elif isinstance(event, BackgroundWorkDone) and event.work.startswith("compaction"):
            self.counts[-1] += 1


def compactions(tasks: int, checkpoints: int, seed: int) -> list[int]:
    """Of all tasks, for each checkpoint. Each task has a key, whose updates come at random."""
    keys = {operator_index_for_key_group(128, tasks, key_group_for(key, 128)): key for key in range(100 * tasks)}
    seen, job = Compactions(), Job("compaction", parallelism=tasks, max_parallelism=128)
    # An update of a task chosen at random: each has a Poisson process of its own.
    rate = -tasks * log1p(-UPDATED)
    count = round(rate * checkpoints)
    updates = Arrivals(Poisson(f"{rate:.6f}/s"), count=count, value=lambda i: keys[scattered(i) % tasks])
    keyed = job.source(updates, name="updates", parallelism=1).key_by(lambda key: key)
    keyed.reduce(lambda a, b: b, name="latest").sink(CountingSink(), name="end")
    backend = LsmStateBackend(incremental=True, level0_trigger=TRIGGER)
    job.run(checkpoint_interval="1s", seed=seed, latency=False, state_backend=backend, instruments=[seen])
    return seen.counts


def scattered(number: int) -> int:
    """A number without a pattern (the finaliser of SplitMix64: G. Steele et al., OOPSLA 2014)."""
    mixed = (number * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    return (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64 >> 11


@target("V19", "how likely is it that some task compacts?", study=[Compactions, compactions], seeds=2)
def some_task(size: Size) -> Iterator[Figure]:
    """The first checkpoints are left out: all tasks begin without files."""
    for tasks, checkpoints in ((50, 2_000), (100, 1_000)) if size.full else ((10, 250),):
        first = size.of(100, 300)
        counts = [one for seed in size.seeds for one in compactions(tasks, first + checkpoints, seed)[first:]]
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
