"""Restart strategies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.restore import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from engine.elements.errors import ConfigurationError

STEADY = ExponentialDelayRestart(10, 100, 2.0, reset_after_ns=1_000, jitter=0)


def delays(strategy: RestartStrategy, times_ns: list[int]) -> list[int | None]:
    """The strategy's answer after each of the failures."""
    return [strategy.restart_delay_ns(times_ns[: count + 1]) for count in range(len(times_ns))]


def test_no_restart_gives_up_at_once() -> None:
    """The first failure is final."""
    assert NoRestart().restart_delay_ns([5]) is None


def test_fixed_delay_allows_so_many_attempts() -> None:
    """Two attempts mean two restarts; the third failure is final."""
    assert delays(FixedDelayRestart(2, 10), [0, 1, 2]) == [10, 10, None]


def test_fixed_delay_without_limit_never_gives_up() -> None:
    """With ``None`` the number of attempts is unlimited."""
    assert FixedDelayRestart(None, 0).restart_delay_ns([0] * 1000) == 0


def test_exponential_delays_grow_to_the_maximum() -> None:
    """Each consecutive failure doubles the delay, until it stays at the maximum."""
    assert delays(STEADY, [0, 100, 300, 500, 800, 1_200]) == [10, 20, 40, 80, 100, 100]


def test_exponential_delays_begin_again_after_a_quiet_time() -> None:
    """A job that ran for the reset threshold since its restart begins anew; one instant less is not enough."""
    assert delays(STEADY, [0, 100, 100 + 20 + 1_000]) == [10, 20, 10]
    assert delays(STEADY, [0, 100, 100 + 20 + 999]) == [10, 20, 40]


def test_a_failure_before_the_restart_is_part_of_the_one_before() -> None:
    """It changes neither the planned restart nor the back-off."""
    assert delays(STEADY, [0, 3, 10, 60]) == [10, 7, 0, 20]


def test_exponential_attempts_count_failures_in_a_row() -> None:
    """Two attempts: the third consecutive failure is final, unless a quiet time came before."""
    strategy = ExponentialDelayRestart(10, 100, 2.0, reset_after_ns=1_000, jitter=0, attempts=2)

    assert delays(strategy, [0, 100, 300]) == [10, 20, None]
    assert delays(strategy, [0, 100, 2_000, 2_100]) == [10, 20, 10, 20]


@pytest.mark.parametrize(("value", "delay_ns"), [(0, 30), (10, 40), (20, 50)])
def test_jitter_is_drawn_around_the_delay(value: int, delay_ns: int) -> None:
    """A quarter of 40 is 10: the draw has 21 values, from 30 to 50."""
    strategy = ExponentialDelayRestart(10, 100, 2.0, reset_after_ns=10_000, jitter=0.25)
    bounds: list[int] = []

    def draw(bound: int) -> int:
        bounds.append(bound)
        return value

    assert strategy.restart_delay_ns([0, 100, 300], draw) == delay_ns
    assert bounds == [21]


@given(
    st.lists(st.integers(0, 5_000), min_size=1, max_size=12).map(sorted),
    st.floats(0, 1),
    st.floats(1.001, 10),
    st.integers(1, 40),
    st.integers(0, 10**6),
)
def test_jitter_stays_within_its_bounds(
    times_ns: list[int], jitter: float, multiplier: float, initial_ns: int, chance: int
) -> None:
    """Whatever is drawn, a delay that is no rest of an earlier one lies between the initial and the maximal one."""
    strategy = ExponentialDelayRestart(initial_ns, 50, multiplier, 500, jitter)
    delay_ns = strategy.restart_delay_ns(times_ns, lambda bound: chance % bound)

    assert delay_ns is not None
    assert 0 <= delay_ns <= 50
    without = ExponentialDelayRestart(initial_ns, 50, multiplier, 500, 0)
    assert without.restart_delay_ns(times_ns, lambda bound: 1 // 0) == without.restart_delay_ns(times_ns)


def test_failure_rate_gives_up_when_failures_crowd() -> None:
    """Two failures within 100 are allowed; the third is final at a distance of 100, and not at one of 101."""
    strategy = FailureRateRestart(2, 100, 7)

    assert delays(strategy, [0, 50, 100]) == [7, 7, None]
    assert delays(strategy, [0, 50, 101, 149]) == [7, 7, 7, None]


def test_failure_rate_looks_at_the_newest_failures_only() -> None:
    """However many failures there were before, only the last ``max_failures + 1`` matter."""
    assert delays(FailureRateRestart(1, 10, 0), list(range(0, 220, 11))) == [0] * 20


@given(st.lists(st.integers(0, 300), min_size=1, max_size=15).map(sorted), st.integers(1, 5), st.integers(1, 100))
def test_failure_rate_is_a_sliding_window(times_ns: list[int], most: int, interval_ns: int) -> None:
    """Given up exactly when the interval that ends with the last failure holds more failures than allowed."""
    answer = FailureRateRestart(most, interval_ns, 3).restart_delay_ns(times_ns)
    within = sum(times_ns[-1] - time_ns <= interval_ns for time_ns in times_ns)

    assert answer == (None if within > most else 3)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (FixedDelayRestart, {"attempts": -1, "delay_ns": 0}, "attempts is -1"),
        (FixedDelayRestart, {"attempts": 1, "delay_ns": -5}, "delay_ns is -5"),
        (ExponentialDelayRestart, {"initial_ns": 0}, "initial_ns is 0; it must be 1 or more"),
        (ExponentialDelayRestart, {"initial_ns": 9, "max_ns": 8}, "max_ns is 8; it must be at least initial_ns"),
        (ExponentialDelayRestart, {"multiplier": 1.0}, "multiplier is 1.0; it must be above 1"),
        (ExponentialDelayRestart, {"multiplier": float("nan")}, "multiplier is nan"),
        (ExponentialDelayRestart, {"multiplier": float("inf")}, "multiplier is inf"),
        (ExponentialDelayRestart, {"reset_after_ns": 0}, "reset_after_ns is 0"),
        (ExponentialDelayRestart, {"jitter": -0.1}, "jitter is -0.1; it must be from 0 to 1"),
        (ExponentialDelayRestart, {"jitter": 1.1}, "jitter is 1.1"),
        (ExponentialDelayRestart, {"jitter": float("nan")}, "jitter is nan"),
        (ExponentialDelayRestart, {"attempts": 0}, "attempts is 0"),
        (FailureRateRestart, {"max_failures": 0}, "max_failures is 0"),
        (FailureRateRestart, {"interval_ns": 0}, "interval_ns is 0"),
        (FailureRateRestart, {"delay_ns": -1}, "delay_ns is -1; it must be 0 or more"),
    ],
)
def test_senseless_settings_are_refused(make: Any, settings: dict[str, Any], message: str) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigurationError, match=message):
        make(**settings)


def test_descriptions_say_what_is_allowed() -> None:
    """A failed job can tell how often it would have been restarted."""
    assert NoRestart().description == "no restart"
    assert FixedDelayRestart(3, 10_500_000).description == "at most 3 restarts, 10.5 ms after each failure"
    assert FixedDelayRestart(None, 10).description.startswith("any number of restarts")
    assert ExponentialDelayRestart().description == (
        "any number of restarts in a row, 1 s to 60 s after each failure, growing by 1.5"
    )
    assert FailureRateRestart().description == "at most 1 failure within 60 s, restarts 1 s after each"
