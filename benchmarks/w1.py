"""W1 against the bare loop: at the default batch size, at others, with whole records as state, without checkpoints,
and four subtasks wide."""

from __future__ import annotations

from functools import partial

from benchmarks.keyed_sum import KeyedSum, time_bare_loop
from benchmarks.measure import Goal, Paired, Result, Trial, at_least, interleaved, per_second
from engine.runtime.config import RunConfig

_UNIT = "× bare loop"
_BATCH_SIZES = (256, 1_024, 4_096, 16_384)
_SUBTASKS = 4


def single(quick: bool) -> list[Result]:
    """One subtask per operator."""
    count, rounds = _size(quick)
    default = RunConfig().batch_size
    cases = {"W1 exactly-once": KeyedSum(count)}
    for batch_size in _BATCH_SIZES:
        if batch_size != default:
            cases[f"W1 exactly-once, batches of {batch_size:,}"] = KeyedSum(count, batch_size=batch_size)
    cases["W1 exactly-once, whole records in state"] = KeyedSum(count, tuples=True)
    cases["W1 without checkpoints"] = KeyedSum(count, mode="none")
    return _measure(cases, count, rounds, {"W1 exactly-once": at_least(0.25)})


def parallel(quick: bool) -> list[Result]:
    """Four subtasks per operator, in one process: what routing costs, with no second core to pay for it."""
    count, rounds = _size(quick)
    name = f"W1 exactly-once, parallelism {_SUBTASKS}"
    cases = {
        name: KeyedSum(count, parallelism=_SUBTASKS),
        f"W1 without checkpoints, parallelism {_SUBTASKS}": KeyedSum(count, parallelism=_SUBTASKS, mode="none"),
    }
    return _measure(cases, count, rounds, {name: at_least(0.20)})


def _size(quick: bool) -> tuple[int, int]:
    return (100_000, 3) if quick else (1_000_000, 5)


def _measure(cases: dict[str, KeyedSum], count: int, rounds: int, goals: dict[str, Goal]) -> list[Result]:
    trials: dict[str, Trial] = {name: case.time for name, case in cases.items()}
    measured = interleaved(partial(time_bare_loop, count), trials, rounds)
    return [_result(name, pairs, count, goals.get(name)) for name, pairs in measured.items()]


def _result(name: str, pairs: Paired, count: int, goal: Goal | None) -> Result:
    details = {
        "records_per_s": per_second(count, pairs.seconds),
        "bare_loop_records_per_s": per_second(count, pairs.reference_seconds),
    }
    return Result(name, _UNIT, pairs.speed_ratios, goal, details)
