"""No false alarms: under every mode, schedule, state backend and fault, no invariant is violated."""

from __future__ import annotations

from random import Random

import pytest

from engine.explore.cases import Case, Setting
from engine.explore.invariants import invariants_for, skipped, sometimes
from engine.explore.run import run_case
from engine.faults.fault import FaultMix, parse_fault
from tests.explore.invariants.support import JOBS, subject

MODES = ("aligned", "unaligned", "aligned-timeout", "at-least-once", "none")
MIXES = (
    {"crash": 8_000},
    {"crash": 4_000, "rescale": 4_000, "raise": 4_000},
    {"crash": 4_000, "lose-unsynced": 500_000, "write-error": 4_000},
    {"crash": 4_000, "delay": 20_000, "duplicate": 20_000, "late": 20_000},
)


def drawn(mode: str, seed: int) -> tuple[str, Case]:
    random = Random(f"{mode}/{seed}")
    job = random.choice(JOBS)
    config: dict[str, Setting] = {
        "mode": mode,
        "checkpoint_interval": random.choice(["5us", "9us", "17us", "8rec"]),
        "batch_size": random.choice([1, 2, 5]),
        "cost.storage_latency_ns": random.choice([0, 900, 3_000]),
        "cost.link_latency_ns": random.choice([0, 300, 2_000]),
        "cost.record_ns": random.choice([0, 500]),
        "state_backend": random.choice(["heap", "heap", "lsm", "changelog"]),
        "inline_state_bytes": random.choice([0, 20_480]),
        "failover": random.choice(["full", "full", "region"]),
        "tolerable_failures": 1_000_000,
        "checkpoint_timeout_ns": 1_000_000,
    }
    if mode == "aligned-timeout":
        config["aligned_timeout_ns"] = random.choice([1, 500, 2_000])
    if mode == "aligned":
        config["max_concurrent"] = random.choice([1, 3])
    mix = FaultMix(random.choice(MIXES), random.choice([1, 2, 4]))
    faults = (parse_fault(f"crash:numbers[1]@after:notify.send#{seed % 4}"),) if seed % 4 else ()
    return job, Case(str(seed), config, faults, mix)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_violated_in_healthy_runs(mode: str) -> None:
    """An engine without mistakes violates nothing, under any faults that it must survive."""
    seen: dict[str, bool] = {}
    for seed in range(12):
        name, case = drawn(mode, seed)
        invariants = invariants_for()
        finished = run_case(subject(name), case, invariants)
        assert finished.violations == [], (mode, seed, name, [str(one) for one in finished.faults])
        for happening, has in sometimes(invariants).items():
            seen[happening] = seen.get(happening, False) or has
    if mode != "none":
        assert {name for name, has in seen.items() if has} >= {"completed", "restored", "aborted", "committed early"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_violated_in_many_healthy_runs(mode: str) -> None:
    """The same, a hundred times per mode."""
    for seed in range(100, 200):
        name, case = drawn(mode, seed)
        finished = run_case(subject(name), case, invariants_for())
        assert finished.violations == [], (mode, seed, name, [str(one) for one in finished.faults])


def test_a_run_is_the_same_with_and_without_invariants() -> None:
    """Watching changes nothing: same choices, same number of events, same output."""
    name, case = drawn("aligned", 3)
    watched, alone = run_case(subject(name), case, invariants_for()), run_case(subject(name), case)
    assert (watched.choices, watched.events, watched.committed) == (alone.choices, alone.events, alone.committed)


def test_what_is_not_judged_says_why() -> None:
    """Mode none makes no promise and does not align."""
    invariants = invariants_for()
    run_case(subject("counting"), Case(config={"mode": "none"}), invariants)
    assert set(skipped(invariants)) == {"V1", "V17", "V18", "V19", "V2", "V20", "V4", "V7", "V9"}


def test_only_the_assertions_look_in_between_events() -> None:
    """No other invariant is asked there, because that costs time."""
    assert [one.name for one in invariants_for() if one.every_events] == ["assertion"]
