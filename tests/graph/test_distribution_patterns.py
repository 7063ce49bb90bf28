"""Which subtask has a channel to which: all-to-all and pointwise."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.graph.distribution_patterns import connections

parallelisms = st.integers(1, 40)


@pytest.mark.parametrize(
    ("senders", "receivers", "expected"),
    [
        (2, 2, [[0], [1]]),
        (1, 3, [[0, 1, 2]]),
        (3, 1, [[0], [0], [0]]),
        (2, 4, [[0, 1], [2, 3]]),
        (4, 2, [[0], [0], [1], [1]]),
        (5, 8, [[0, 1], [2, 3], [4], [5, 6], [7]]),
        (8, 5, [[0], [1], [1], [2], [3], [3], [4], [4]]),
    ],
)
def test_pointwise_groups_are_flinks(senders: int, receivers: int, expected: list[list[int]]) -> None:
    """The groups worked out by hand from Flink's formula, 5 to 8 being the example of its source."""
    assert [list(targets) for targets in connections(True, senders, receivers)] == expected


@given(parallelisms, parallelisms)
def test_all_to_all(senders: int, receivers: int) -> None:
    """Every sender reaches every receiver."""
    assert [list(targets) for targets in connections(False, senders, receivers)] == [
        list(range(receivers)) for _ in range(senders)
    ]


@given(parallelisms)
def test_pointwise_between_equals_is_one_to_one(parallelism: int) -> None:
    """Sender i reaches receiver i and nobody else."""
    assert [list(targets) for targets in connections(True, parallelism, parallelism)] == [
        [subtask] for subtask in range(parallelism)
    ]


@given(parallelisms, parallelisms)
def test_pointwise_is_balanced(senders: int, receivers: int) -> None:
    """Everyone has a neighbour, the larger side exactly one, and shares differ by at most one channel."""
    targets = [list(group) for group in connections(True, senders, receivers)]
    outputs = [len(group) for group in targets]
    inputs = [sum(receiver in group for group in targets) for receiver in range(receivers)]

    assert sum(outputs) == max(senders, receivers)
    assert set(outputs if senders >= receivers else inputs) == {1}
    assert min(outputs) >= 1
    assert max(outputs) - min(outputs) <= 1
    assert min(inputs) >= 1
    assert max(inputs) - min(inputs) <= 1


@given(parallelisms, parallelisms)
def test_pointwise_neighbours_are_contiguous(senders: int, receivers: int) -> None:
    """Receivers in sender order never go back: neighbours stay neighbours."""
    flat = [receiver for group in connections(True, senders, receivers) for receiver in group]

    assert flat == sorted(flat)
