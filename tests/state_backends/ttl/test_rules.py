"""When something has expired, and what a program may ask for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_backends.base import (
    MAX_TIME_MS,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateArgumentError,
    StateTtlConfig,
    ValueStateDescriptor,
)
from state_backends.base.ttl_settings import expires_at_ms

times = st.integers(-(1 << 63), MAX_TIME_MS)


@settings(max_examples=50)
@given(times, st.integers(1, MAX_TIME_MS), times)
def test_the_two_forms_of_the_rule_agree(last_access_ms: int, ttl_ms: int, now_ms: int) -> None:
    """Comparing the end with now, and the last access with a limit, is the same, at the end of time too."""
    config = StateTtlConfig(ttl_ms)

    assert config.expired(last_access_ms, now_ms) == (last_access_ms <= config.latest_expired_ms(now_ms))


@pytest.mark.parametrize(
    ("last_access_ms", "ttl_ms", "end_ms"),
    [(0, 100, 100), (-50, 100, 50), (MAX_TIME_MS - 10, 100, MAX_TIME_MS), (5, MAX_TIME_MS, MAX_TIME_MS)],
)
def test_the_sum_is_capped(last_access_ms: int, ttl_ms: int, end_ms: int) -> None:
    """State lives from its last access for its time-to-live, never past the end of time."""
    assert expires_at_ms(last_access_ms, ttl_ms) == end_ms
    assert not StateTtlConfig(ttl_ms).expired(last_access_ms, end_ms - 1)
    assert StateTtlConfig(ttl_ms).expired(last_access_ms, end_ms)


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

    assert ValueStateDescriptor("v", 7, ttl=ttl).needs_ttl
    assert ReducingStateDescriptor("r", max, ttl=ttl).ttl == ttl
    assert not ListStateDescriptor("l").needs_ttl
    assert not ListStateDescriptor("l", ttl=ttl, ttl_wrapped=True).needs_ttl
