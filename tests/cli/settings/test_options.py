"""Options and parameters: the engine's defaults, the typed values, and the values kept."""

from __future__ import annotations

import json

import pytest

from engine.checkpoint.restore import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from engine.cli.settings import RunOptions, parse_params
from engine.elements.errors import ConfigurationError
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.config.restart_strategies import FORMS, parse_restart


def test_options_left_out_are_the_engines_defaults() -> None:
    """The command line has no defaults of its own beside seed and mode."""
    assert RunOptions().to_config() == RunConfig()


def test_options_become_configuration() -> None:
    """Each in its unit."""
    options = RunOptions.of(
        seed="s", mode="at-least-once", batch_size=7, checkpoint_interval="10rec", checkpoint_timeout="2s",
        min_pause="3ms", retain=2, tolerable_failures=1, restart="fixed:2:5ms",
    )  # fmt: skip
    config = options.to_config(allow_non_restored_state=True)

    assert config == RunConfig(
        seed="s", mode="at-least-once", batch_size=7, checkpoint_interval=CheckpointInterval(records=10),
        checkpoint_timeout_ns=2_000_000_000, min_pause_ns=3_000_000, retained=2, tolerable_failures=1,
        restart=FixedDelayRestart(2, 5_000_000), allow_non_restored_state=True,
    )  # fmt: skip
    assert RunOptions.of(checkpoint_interval="none").to_config().checkpoint_interval is None


def test_options_survive_the_descriptor_and_can_be_typed_again() -> None:
    """As plain data and as arguments; only what is not the default is typed."""
    options = RunOptions.of(seed="7", retain=3, checkpoint_interval="10rec")

    assert RunOptions.from_dict(json.loads(json.dumps(options.as_dict())), "x") == options
    assert options.as_arguments() == ["--seed", "7", "--checkpoint-interval", "10rec", "--retain", "3"]
    assert RunOptions().as_arguments() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fixed", "attempts must be a whole number; write fixed:ATTEMPTS:DELAY, for instance fixed:3:10ms"),
        ("fixed:3", "the delay is missing; write fixed:ATTEMPTS:DELAY"),
        ("fixed::1ms", "attempts is empty; write fixed:"),
        ("fixed:x:1ms", "attempts must be a whole number, not 'x'"),
        ("fixed:-1:1ms", "not '-1'"),
        ("fixed:1:1ms:2", "fixed takes at most 2 settings, and these are 3"),
        ("fixed:3:soon", "the delay of restart 'fixed:3:soon', 'soon' is not a time"),
        ("none:1", "none takes at most 0 settings"),
        ("exponential:3:1ms", "the initial delay of restart 'exponential:3:1ms', '3' is not a time"),
        ("exponential:1s:1ms", "restart max_ns is 1000000; it must be at least initial_ns"),
        ("exponential:1ms:1s:1", "restart multiplier is 1.0; it must be above 1"),
        ("exponential:1ms:1s:two", "multiplier must be a number, not 'two'; write exponential:INITIAL:MAX:"),
        ("exponential:1ms:1s:2:1m:3", "restart jitter is 3.0; it must be from 0 to 1"),
        ("rate:0", "restart max_failures is 0; it must be 1 or more"),
        ("rate:1:1m:1s:1", "rate takes at most 3 settings, and these are 4"),
        ("exponental:1ms", "no restart strategy: write exponential:INITIAL:MAX"),
        ("often", "no restart strategy: write none; or fixed:ATTEMPTS:DELAY, .*; or exponential:.*; or rate:"),
        ("", "no restart strategy"),
    ],
)
def test_a_wrong_restart_strategy_says_how_it_is_written(text: str, message: str) -> None:
    """The error names the mistake, and the form that was probably meant, with an example."""
    with pytest.raises(ConfigurationError, match=message):
        parse_restart(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", NoRestart()),
        ("fixed:0:1ms", FixedDelayRestart(0, 1_000_000)),
        ("exponential", ExponentialDelayRestart()),
        ("exponential:2m", ExponentialDelayRestart(120_000_000_000, 120_000_000_000)),
        ("exponential:10ms:1s:2:1m:0.5", ExponentialDelayRestart(10_000_000, 1_000_000_000, 2.0, 60_000_000_000, 0.5)),
        ("rate", FailureRateRestart()),
        (" rate:2:1m:10ms ", FailureRateRestart(2, 60_000_000_000, 10_000_000)),
    ],
)
def test_restart_strategies(text: str, expected: object) -> None:
    """All four, with the defaults of their parts."""
    assert parse_restart(text) == expected


@pytest.mark.parametrize("form", FORMS.values())
def test_the_examples_of_restart_strategies_can_be_typed(form: str) -> None:
    """An error never shows an example that is an error itself."""
    assert parse_restart(form.rpartition("for instance ")[2])


def test_parameters_are_names_with_values() -> None:
    """A value may be empty and may hold an equals sign; a name is given once."""
    assert parse_params(("a=1", "b=", "c=x=y")) == {"a": "1", "b": "", "c": "x=y"}
    for wrong in (("a",), ("=1",), ("a b=1",), ("a=1", "a=2")):
        with pytest.raises(ConfigurationError):
            parse_params(wrong)
