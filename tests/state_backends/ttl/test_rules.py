"""When something has expired, and what a program may ask for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.base import (
    MAX_TIME_MS,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateArgumentError,
    StateTtlConfig,
    ValueStateDescriptor,
)

times = st.integers(-(1 << 63), MAX_TIME_MS)


@settings(max_examples=50)
@given(times, st.integers(1, MAX_TIME_MS), times)
def test_state_lives_from_its_last_access_for_its_time_to_live(last_access_ms: int, ttl_ms: int, now_ms: int) -> None:
    """Comparing the last access with a limit is comparing the end with now; the end is never past that of time."""
    end_ms = min(last_access_ms + ttl_ms, MAX_TIME_MS)

    assert (last_access_ms <= StateTtlConfig(ttl_ms).latest_expired_ms(now_ms)) == (end_ms <= now_ms)


@pytest.mark.parametrize(
    ("last_access_ms", "ttl_ms", "end_ms"),
    [(0, 100, 100), (-50, 100, 50), (MAX_TIME_MS - 10, 100, MAX_TIME_MS), (5, MAX_TIME_MS, MAX_TIME_MS)],
)
def test_the_sum_is_capped(last_access_ms: int, ttl_ms: int, end_ms: int) -> None:
    """State expires at its end and not a millisecond before, which is the end of time at the latest."""
    limit_of = StateTtlConfig(ttl_ms).latest_expired_ms
    assert limit_of(end_ms - 1) < last_access_ms <= limit_of(end_ms)


@pytest.mark.parametrize("ttl_ms", [0, -1, 1.5, "100", None, True])
def test_a_duration_is_a_positive_whole_number(ttl_ms: Any) -> None:
    """Anything else is refused with what to do."""
    with pytest.raises(StateArgumentError, match="whole number of milliseconds from 1 on"):
        StateTtlConfig(ttl_ms)


@pytest.mark.parametrize("entries", [-1, 0.5, True])
def test_a_cleanup_looks_at_a_number_of_entries(entries: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(StateArgumentError, match="number of entries per access"):
        StateTtlConfig(1, cleanup_incrementally=entries)


def test_time_to_live_is_an_option_of_every_descriptor() -> None:
    """It is given by name, beside whatever else a descriptor has, and is off unless given."""
    ttl = StateTtlConfig(5)

    assert ValueStateDescriptor("v", 7, ttl=ttl).ttl == ttl
    assert ReducingStateDescriptor("r", max, ttl=ttl).ttl == ttl
    assert ListStateDescriptor("l").ttl is None
