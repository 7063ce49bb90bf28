"""The cost model: how long work takes in virtual time, and which costs make no sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.runtime.config import CostModel

NAMES = ("count[1]", "count", "reduce -> count[1]", "reduce -> count")


def test_by_default_only_source_records_cost() -> None:
    """A million source records take one virtual second, and all other work happens at once."""
    cost = CostModel()

    assert cost.record_cost_ns(NAMES, is_source=True) == 1_000
    assert cost.record_cost_ns(NAMES, is_source=False) == 0
    assert cost.latency_ns(NAMES) == 0
    assert cost.transfer_ns(10**9) == 0
    assert cost.storage_ns(3, 10**9) == 0


@pytest.mark.parametrize("name", NAMES)
def test_stragglers_go_by_any_of_their_names(name: str) -> None:
    """A factor on a subtask, its operator or its vertex multiplies the cost of its records."""
    cost = CostModel(record_ns=300, stragglers={name: 2.5})

    assert cost.record_cost_ns(NAMES, is_source=False) == 750
    assert cost.record_cost_ns(NAMES, is_source=True) == 2_500
    assert cost.record_cost_ns(("other[0]", "other"), is_source=False) == 300


@pytest.mark.parametrize("name", NAMES)
def test_slow_links_go_by_any_name_of_their_sender(name: str) -> None:
    """A latency given for a sender replaces that of all links."""
    cost = CostModel(link_latency_ns=5, slow_links={name: 70})

    assert cost.latency_ns(NAMES) == 70
    assert cost.latency_ns(("other[0]", "other")) == 5


def test_transfer_counts_bytes() -> None:
    """Records occupy a link for their bytes over its bandwidth."""
    cost = CostModel(record_bytes=200, link_bytes_per_s=1_000_000)
    records = Batch(["a", "bb", "", "cccc"])

    assert cost.transfer_ns(cost.bytes_of(records)) == 800_000
    assert cost.transfer_ns(0) == 0
    assert [cost.transferred_records(records, us * 1_000) for us in (199, 200, 799, 800, 9_999)] == [0, 1, 3, 4, 4]


def test_a_function_says_how_many_bytes_a_record_has() -> None:
    """Each record occupies a link for its own bytes."""
    cost = CostModel(record_bytes=lambda text: 10 + len(text), link_bytes_per_s=1_000_000)
    records = Batch(["a", "bb", "", "cccc"])

    assert cost.bytes_of(records) == 11 + 12 + 10 + 14
    assert [cost.transferred_records(records, us * 1_000) for us in (10, 11, 32, 33, 46, 47)] == [0, 1, 2, 3, 3, 4]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (lambda text: 0, "record_bytes gave 0 for the record 'abc'; the function must give a whole number of bytes"),
        (lambda text: 1.5, "record_bytes gave 1.5"),
        (lambda text: text.size, "record_bytes raised AttributeError: .* for the record 'abc'; fix the function"),
    ],
)
def test_a_function_of_sizes_that_makes_no_sense_is_refused(size: Callable[[str], Any], message: str) -> None:
    """The error has the record."""
    with pytest.raises(ConfigurationError, match=message):
        CostModel(record_bytes=size).bytes_of(Batch(["abc"]))


def test_storage_takes_latency_and_bandwidth() -> None:
    """Each file takes the latency, and the bytes written their size over the bandwidth."""
    assert CostModel(storage_latency_ns=7).storage_ns(3, 10**6) == 21
    assert CostModel(storage_latency_ns=7, storage_bytes_per_s=1_000).storage_ns(1, 2) == 2_000_007
    assert CostModel(storage_latency_ns=7, storage_bytes_per_s=1_000).storage_ns(0, 2) == 2_000_000


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"source_record_ns": -1}, "source_record_ns is -1"),
        ({"record_ns": -1}, "record_ns is -1"),
        ({"record_bytes": -1}, "record_bytes is -1"),
        ({"record_bytes": int}, "write record_bytes=100, or a function of the record"),
        ({"link_latency_ns": -5}, "link_latency_ns is -5"),
        ({"storage_latency_ns": -1}, "storage_latency_ns is -1"),
        ({"link_bytes_per_s": 0}, "link_bytes_per_s is 0; it must be at least 1, or None"),
        ({"storage_bytes_per_s": -3}, "storage_bytes_per_s is -3"),
        ({"stragglers": {"count": -0.5}}, "'count' is -0.5"),
        ({"stragglers": {"count": float("nan")}}, "'count' is nan"),
        ({"stragglers": {"count": float("inf")}}, "'count' is inf"),
        ({"slow_links": {"map[0]": -1}}, r"'map\[0\]' is -1 ns"),
    ],
)
def test_impossible_costs_are_refused(setting: dict[str, Any], message: str) -> None:
    """A cost that would turn time back or divide by zero is an error that names it."""
    with pytest.raises(ConfigurationError, match=message):
        CostModel(**setting)
