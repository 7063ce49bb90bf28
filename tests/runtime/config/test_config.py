"""Settings of a run: durations, intervals, defaults, and errors that show valid values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.errors import ConfigurationError
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig, parse_duration_ns


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1ns", 1),
        ("20us", 20_000),
        ("20µs", 20_000),
        ("250ms", 250_000_000),
        ("1.5s", 1_500_000_000),
        (" 2 m ", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("0s", 0),
        ("0.001us", 1),
    ],
)
def test_durations_have_a_unit(text: str, expected_ns: int) -> None:
    """A number and a unit make a duration, with or without fraction and space."""
    assert parse_duration_ns(text) == expected_ns


@pytest.mark.parametrize("text", ["", "5", "ms", "- 5ms", "5 days", "1e3ms", "5MS", "1,5s", "5msx", "٥ms x"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    """Text that is not a duration is an error that quotes it, names the setting and shows how to write one."""
    with pytest.raises(ConfigurationError) as raised:
        parse_duration_ns(text, "checkpoint timeout")

    for part in ("checkpoint timeout", repr(text), "ns, us, µs, ms, s, m, h", "e.g. 250ms"):
        assert part in str(raised.value)


def test_a_negative_duration_is_told_as_such() -> None:
    """It has a number and a unit, so a lesson about them would mislead."""
    with pytest.raises(ConfigurationError, match=r"^checkpoint timeout '-5ms' is negative: write a time of 0 or more"):
        parse_duration_ns("-5ms", "checkpoint timeout")


@given(st.integers(0, 10**6), st.sampled_from(("ns", "us", "ms", "s", "m", "h")))
def test_whole_durations_are_exact(number: int, unit: str) -> None:
    """No float error creeps into a whole number of units."""
    one = parse_duration_ns(f"1{unit}")

    assert parse_duration_ns(f"{number}{unit}") == number * one


def test_intervals_are_a_time_or_a_number_of_records() -> None:
    """Both forms of an interval are read from text."""
    assert CheckpointInterval.parse("100ms") == CheckpointInterval(time_ns=100_000_000)
    assert CheckpointInterval.parse("10000rec") == CheckpointInterval(records=10_000)
    assert CheckpointInterval.parse(" 7 rec ") == CheckpointInterval(records=7)


@pytest.mark.parametrize("text", ["0ms", "0rec", "0.1ns"])
def test_an_interval_is_above_zero(text: str) -> None:
    """Checkpoints without end at one instant make no sense."""
    with pytest.raises(ConfigurationError, match="above 0"):
        CheckpointInterval.parse(text)


@pytest.mark.parametrize("text", ["rec", "1.5rec", "-3rec", "10 records", "often"])
def test_a_bad_interval_names_the_setting(text: str) -> None:
    """The error names the checkpoint interval and quotes the text."""
    with pytest.raises(ConfigurationError, match=r"checkpoint interval '.*' is not a time"):
        CheckpointInterval.parse(text)


@pytest.mark.parametrize("setting", [{}, {"time_ns": 1, "records": 1}])
def test_an_interval_is_one_of_both(setting: dict[str, int]) -> None:
    """Neither form, or both at once, is an error."""
    with pytest.raises(ConfigurationError, match="either a time or a number of records"):
        CheckpointInterval(**setting)


@pytest.mark.parametrize("setting", [{"time_ns": 1.5}, {"records": True}])
def test_an_interval_is_a_whole_number(setting: dict[str, Any]) -> None:
    """Virtual time has no fractions, and no instant may become a float."""
    with pytest.raises(ConfigurationError, match="it must be a whole number, or write CheckpointInterval"):
        CheckpointInterval(**setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"mode": "exactly"}, "did you mean 'exactly-once'"),
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"max_concurrent": 0}, "max_concurrent is 0"),
        ({"retained": -1}, "retained is -1"),
        ({"channel_capacity": 0}, "channel_capacity is 0"),
        ({"checkpoint_timeout_ns": 0}, "checkpoint_timeout_ns is 0; it must be at least 1"),
        ({"checkpoint_timeout_ns": -5}, "checkpoint_timeout_ns is -5"),
        ({"checkpoint_timeout_ns": None}, "checkpoint_timeout_ns is None; it must be a whole number"),
        ({"min_pause_ns": -1}, "min_pause_ns is -1; it must be at least 0"),
        ({"min_pause_ns": 1.5}, "min_pause_ns is 1.5; it must be a whole number; times are whole virtual ns"),
        ({"min_pause_ns": "soon"}, "min pause 'soon' is not a time"),
        ({"batch_size": 1.5}, "batch_size is 1.5; it must be a whole number$"),
        ({"retained": True}, "retained is True; it must be a whole number"),
        ({"tolerable_failures": -1}, "tolerable_failures is -1; it must be at least 0"),
        ({"inline_state_bytes": -1}, "inline_state_bytes is -1"),
        ({"inline_state_bytes": 2**20 + 1}, "inline_state_bytes is 1048577; it must be from 0 to 1048576"),
        ({"master_recovery_ns": -1}, "master_recovery_ns is -1"),
        ({"final_checkpoint_attempts": 0}, "final_checkpoint_attempts is 0"),
        ({"failover": "regional"}, "failover is 'regional'; it must be one of full, region"),
        ({"aligned_timeout_ns": 5}, "aligned_timeout_ns is 5, but in mode aligned no .* use mode aligned-timeout"),
        ({"mode": "at-least-once", "aligned_timeout_ns": 5}, "in mode at-least-once no barrier turns unaligned"),
        ({"interval_during_backlog_ns": -1}, "interval_during_backlog_ns is -1"),
        ({"interval_during_backlog_ns": 5}, "shorter than checkpoint_interval .100000000.; set it to at least that"),
        ({"interval_during_backlog_ns": 5, "checkpoint_interval": None}, "checkpoint_interval is no time"),
        ({"mode": None}, "mode is None of type NoneType; write mode='aligned'"),
        ({"seed": 1.5}, "seed is 1.5 of type float"),
        ({"checkpoint_interval": 5}, "is 5 of type int; write checkpoint_interval='100ms', '10000rec' or None"),
        ({"restart": 3}, "restart is 3 of type int; write restart=NoRestart()"),
        ({"restart": NoRestart}, "of type type; write restart=NoRestart()"),
        ({"segment_bytes": 0}, "segment_bytes is 0; it must be at least 1, or None"),
        ({"exclusive_buffers": 4}, "exclusive_buffers is 4, but .* set segment_bytes to the size of a buffer"),
        ({"floating_buffers": 0}, "floating_buffers is 0, but channels are bounded in records"),
        ({"segment_bytes": "32kb", "channel_capacity": 2}, "channel_capacity is 2, which bounds channels in records"),
        ({"segment_bytes": "32kb", "floating_credit": 8}, r"segment_bytes .32768. bounds them in bytes; leave"),
        ({"segment_bytes": "32kb", "output_capacity": 8}, "leave output_capacity or segment_bytes out"),
        ({"segment_bytes": "32kb", "debloat_target_ns": 5}, "leave debloat_target_ns or segment_bytes out"),
        ({"segment_bytes": 9, "cost": CostModel(record_bytes=0)}, "records of 0 bytes .cost.record_bytes. fill no buf"),
        ({"cost": 3}, "cost is 3 of type int; write cost=CostModel"),
        ({"checkpoints_after_tasks_finish": "no"}, "is 'no' of type str; write checkpoints_after_tasks_finish=True or"),
        ({"random_first_delay": 1}, "random_first_delay is 1 of type int"),
        (
            {"interval_during_backlog_ns": 5, "checkpoint_interval": CheckpointInterval(records=5)},
            "checkpoint_interval is no time",
        ),
    ],
)
def test_impossible_settings_are_refused(setting: dict[str, Any], message: str) -> None:
    """A value that cannot work is refused when the configuration is made, by name."""
    with pytest.raises(ConfigurationError, match=message):
        RunConfig(**setting)


def test_capacity_defaults_to_two_batches() -> None:
    """Without a setting a channel holds as many records as two full batches."""
    assert RunConfig(batch_size=7).capacity == 14
    assert RunConfig(batch_size=7, channel_capacity=3).capacity == 3


@pytest.mark.parametrize(("mode", "expected"), [("aligned", FixedDelayRestart(3, 10_000_000)), ("none", NoRestart())])
def test_restarts_default_to_what_the_mode_can_use(mode: str, expected: object) -> None:
    """A job with checkpoints is restarted three times; one without would begin anew, so it fails."""
    assert RunConfig(mode=mode).restart_strategy() == expected


def test_a_restart_strategy_that_was_given_is_used() -> None:
    """The setting wins over the default, in every mode."""
    given_strategy = FixedDelayRestart(None, 5)

    assert RunConfig(mode="none", restart=given_strategy).restart_strategy() is given_strategy
