"""The table of settings: every name of a setting, its values as text, and the refused values."""

from __future__ import annotations

import itertools
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
from engine.elements.failure_laws import TARGETS, Failures
from engine.elements.laws import Exponential, Pareto
from engine.elements.setting_fields import DURATION, SIZE, SWITCH, WHOLE, Setting
from engine.runtime.config import (
    OPTIONS,
    SETTINGS,
    CheckpointInterval,
    CostModel,
    RunConfig,
    config_of,
    find_setting,
    read_setting,
)

NAMES = st.text("abc[]0", min_size=1)
SHORT_NS = st.integers(1, 10**12)
RESTARTS: st.SearchStrategy[RestartStrategy] = st.one_of(
    st.just(NoRestart()),
    st.builds(FixedDelayRestart, st.none() | st.integers(0, 99), SHORT_NS),
    st.builds(FailureRateRestart, st.integers(1, 99), SHORT_NS, SHORT_NS),
    st.builds(
        ExponentialDelayRestart, st.just(5), SHORT_NS.map(lambda ns: ns + 5), st.floats(1.1, 9), SHORT_NS,
        st.floats(0, 1), st.none() | st.integers(1, 99),
    ),
)  # fmt: skip
LAWS = st.builds(Exponential, SHORT_NS) | st.builds(Pareto, SHORT_NS, st.floats(1.1, 9))
OF_THEIR_OWN: dict[str, st.SearchStrategy[Any]] = {
    "mode": st.sampled_from(["aligned", "unaligned", "at-least-once"]),
    "checkpoint_interval": st.one_of(
        st.builds(CheckpointInterval, time_ns=SHORT_NS), st.builds(CheckpointInterval, records=SHORT_NS)
    ),
    "restart": RESTARTS,
    "cost.stragglers": st.dictionaries(NAMES, st.integers(0, 99) | st.floats(0, 99)),
    "cost.slow_links": st.dictionaries(NAMES, SHORT_NS),
    "service": st.dictionaries(NAMES, LAWS),
    "failures": st.lists(st.builds(Failures, LAWS, st.sampled_from(TARGETS), st.booleans())).map(tuple),
    "cost.storage_delay": LAWS,
    "cost.link_delay": LAWS,
    "cost.record_bytes": st.integers(0, 1 << 62),
    "cost.virtual_state": st.integers(0, 99) | st.floats(0, 99),
}


def values_of(one: Setting) -> st.SearchStrategy[Any]:
    """Every value that the table allows."""
    about = one.about
    if about.choices:
        found: st.SearchStrategy[Any] = st.sampled_from(about.choices)
    elif one.kind in (WHOLE, DURATION, SIZE):
        found = st.integers(about.least or 0, about.most or 1 << 62)
    else:
        found = OF_THEIR_OWN.get(one.name, st.booleans() if one.kind is SWITCH else st.text("ab:.-", min_size=1))
    return found | st.none() if one.optional else found


@given(st.sampled_from(list(SETTINGS.values())).flatmap(lambda one: st.tuples(st.just(one), values_of(one))))
def test_a_setting_is_read_from_the_text_that_shows_it(chosen: tuple[Setting, Any]) -> None:
    """Any value of any setting."""
    one, value = chosen
    assert one.parse(one.show(value)) == value


@pytest.mark.parametrize("name", SETTINGS)
def test_every_name_of_a_setting_is_understood(name: str) -> None:
    """The public one, that of the field and that of the option, which belong to no other setting."""
    one = SETTINGS[name]
    assert one.about.text, "a setting without a meaning"
    for known in (name, one.field_name, one.about.option):
        assert known is None or find_setting(known) == (one, None)
    assert not name.endswith("_ns")
    assert one.parse(one.show(one.default)) == one.default


def test_a_setting_stands_in_the_table_once() -> None:
    """No two settings share a name, an option or a key of Flink."""
    names = [{one.name, one.field_name} | {one.about.option} - {None} for one in SETTINGS.values()]
    assert all(first.isdisjoint(second) for first, second in itertools.combinations(names, 2))
    keys = [key for one in SETTINGS.values() for key in one.about.flink]
    assert len(keys) == len(set(keys))
    assert {one.about.option for one in OPTIONS.values()} == set(OPTIONS)


def test_a_configuration_is_made_of_any_names() -> None:
    """Of the engine, the cost model and record acking; values or texts."""
    made = config_of(
        {"checkpoint_timeout": "10s", "min_pause_ns": 3, "retain": 4, "cost.link_latency": "2ms",
         "cost.slow_links.map[0]": 7, "acking.timeout": None, "acker_timeout": 5, "parallelism": 2}
    )  # fmt: skip

    assert made == RunConfig(
        checkpoint_timeout_ns=10_000_000_000, min_pause_ns=3, retained=4,
        cost=CostModel(link_latency_ns=2_000_000, slow_links={"map[0]": 7}), acking=made.acking,
    )  # fmt: skip
    assert made.acking.timeout_ns == 5


def test_python_may_write_times_as_texts() -> None:
    """In the configuration itself; the attribute is the value."""
    texts: dict[str, Any] = {"checkpoint_interval": "5ms", "min_pause_ns": "3ms", "restart": "none"}
    made = RunConfig(**texts, inline_state_bytes="1kb")  # type: ignore[arg-type]

    assert made.checkpoint_interval == CheckpointInterval(time_ns=5_000_000)
    assert (made.min_pause_ns, made.restart, made.inline_state_bytes) == (3_000_000, NoRestart(), 1_024)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("batch_sise", "1", "there is no setting 'batch_sise'; did you mean 'batch_size'"),
        ("xyzzy", "1", "there is no setting 'xyzzy'; all of them: docs/configuration.md"),
        ("batch_size", "many", "batch size 'many' is not a whole number"),
        ("batch_size", "0", "batch_size is 0; it must be at least 1"),
        ("min_pause", "3000", "min pause '3000' is not a time"),
        ("min_pause_ns", "soon", "min pause 'soon' is not a time"),
        ("local_recovery", "maybe", "local recovery 'maybe' is neither true nor false"),
        ("inline_state_bytes", "20 pb", "inline state bytes '20 pb' is not a size"),
        ("failover", "regional", "it must be one of full, region; did you mean 'region'"),
        ("cost.stragglers", "3", "'3' is not of the form NAME=FACTOR,NAME=FACTOR"),
        ("cost.stragglers.map", "x", "cost stragglers 'x' is not a number"),
        ("cost.link_bytes_per_s", "0", "link_bytes_per_s is 0; it must be at least 1, or None"),
    ],
)
def test_a_wrong_name_or_text_says_what_may_be_written(name: str, text: str, message: str) -> None:
    """With the nearest name, or the form of the value."""
    with pytest.raises(ConfigurationError, match=message):
        read_setting(name, text)


def test_the_name_of_a_field_says_the_unit() -> None:
    """``min_pause_ns=3000`` needs no unit, as in the cases of a search; a text with a unit is understood, too."""
    assert read_setting("min_pause_ns", "3000") == read_setting("min_pause_ns", "3us") == 3_000
    assert read_setting("cost.slow_links.a[0]", "3000") == read_setting("cost.slow_links.a[0]", "3us") == 3_000
