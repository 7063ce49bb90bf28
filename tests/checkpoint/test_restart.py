"""Restart strategies."""

from __future__ import annotations

import pytest

from engine.checkpoint.restart import FixedDelayRestart, NoRestart
from engine.elements.errors import ConfigurationError


def test_no_restart_gives_up_at_once() -> None:
    """The first failure is final."""
    assert NoRestart().restart_delay_ns([5]) is None


def test_fixed_delay_allows_so_many_attempts() -> None:
    """Two attempts mean two restarts; the third failure is final."""
    strategy = FixedDelayRestart(2, 10)

    assert [strategy.restart_delay_ns(list(range(count))) for count in (1, 2, 3)] == [10, 10, None]


def test_fixed_delay_without_limit_never_gives_up() -> None:
    """``None`` attempts are any number."""
    assert FixedDelayRestart(None, 0).restart_delay_ns([0] * 1000) == 0


@pytest.mark.parametrize(
    ("attempts", "delay_ns", "name"), [(-1, 0, "attempts is -1"), (1, -5, "delay_ns is -5")]
)
def test_senseless_settings_are_refused(attempts: int, delay_ns: int, name: str) -> None:
    """A negative setting is refused by name."""
    with pytest.raises(ConfigurationError, match=name):
        FixedDelayRestart(attempts, delay_ns)


def test_descriptions_say_what_is_allowed() -> None:
    """A failed job can tell how often it would have been restarted."""
    assert NoRestart().description == "no restart"
    assert FixedDelayRestart(3, 10_500_000).description == "at most 3 restarts, 10.5 ms after each failure"
    assert FixedDelayRestart(None, 10).description.startswith("any number of restarts")
