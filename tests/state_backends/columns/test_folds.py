"""Running folds of columns are those of a loop over the records."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from state_backends.columns import (
    ColumnFold,
    CountFold,
    KeyNumbers,
    LongOverflowError,
    MaxFold,
    MinFold,
    SumFold,
    Workspace,
    group_by_key,
)

FOLDS = (SumFold, MinFold, MaxFold, CountFold)
LONGS = st.integers(-(2**53), 2**53)
# Equal values of different bits, values that swallow others, and NaN, which does not compare.
INF = float("inf")
DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 1e16, -1e16, 1e308, INF, -INF, float("nan"), 5e-324]), st.floats())


def bits(values: list[Any]) -> list[Any]:
    """Floats as their bytes, every NaN as the same."""
    return [struct.pack(">d", value) if type(value) is float and value == value else repr(value) for value in values]


def by_loop(fold: ColumnFold, keys: list[int], values: list[Any], state: dict[int, Any]) -> list[Any]:
    """The result of the row path: Python's own operators, record by record. ``state`` goes on."""
    combine = {"sum": lambda a, b: a + b, "count": lambda a, b: a + b, "min": min, "max": max}[fold.name]
    out = []
    for key, value in zip(keys, values, strict=True):
        added = 1 if fold.name == "count" else value
        state[key] = combine(state[key], added) if key in state else added
        out.append(state[key])
    return out


def folded(fold: ColumnFold, keys: list[int], values: list[Any], dtype: Any, state: dict[int, Any]) -> list[Any]:
    """The same by the fold; ``state`` goes on."""
    grouping = group_by_key(np.array(keys, dtype=np.int64), KeyNumbers(), Workspace())
    groups = grouping.keys.tolist()
    kept = np.int64 if isinstance(fold, CountFold) else dtype
    before = np.array([state.get(key, 0) for key in groups], dtype=kept)
    is_new = np.array([key not in state for key in groups])
    running, after = fold.fold(grouping, np.array(values, dtype=dtype), before, is_new)
    state.update(zip(groups, after.tolist(), strict=True))
    return grouping.to_batch_order(running).tolist()


def check_batches(fold: ColumnFold, dtype: Any, batches: list[list[tuple[int, Any]]]) -> None:
    left: dict[int, Any] = {}
    right: dict[int, Any] = {}
    for batch in batches:
        keys, values = [key for key, _ in batch], [value for _, value in batch]
        assert bits(folded(fold, keys, values, dtype, left)) == bits(by_loop(fold, keys, values, right))
    assert sorted(left) == sorted(right)
    assert bits([left[key] for key in sorted(left)]) == bits([right[key] for key in sorted(right)])


@pytest.mark.parametrize("kind", FOLDS)
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("max_steps", [1, 2, 32])
def test_folds_are_those_of_a_loop(
    kind: type[ColumnFold], dtype: Any, max_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit, over several batches, whether groups are folded side by side or along."""
    monkeypatch.setattr("state_backends.columns.folds._MAX_STEPS", max_steps)
    values = LONGS if dtype is np.int64 else DOUBLES
    batch = st.lists(st.tuples(st.integers(0, 4), values), min_size=1, max_size=25)

    @settings(max_examples=40)
    @given(st.lists(batch, min_size=1, max_size=3))
    def check(batches: list[list[tuple[int, Any]]]) -> None:
        check_batches(kind(), dtype, batches)

    check()


@pytest.mark.parametrize("kind", FOLDS)
def test_a_key_with_very_many_records(kind: type[ColumnFold]) -> None:
    """Few keys with thousands of records each beside many with one: sums of floats in the order of the records."""
    generator = np.random.default_rng(7)
    keys = np.where(generator.random(6_000) < 0.8, 1, generator.integers(2, 3_000, 6_000)).tolist()
    values = (generator.standard_normal(6_000) * 10.0 ** generator.integers(-8, 8, 6_000)).tolist()

    check_batches(kind(), np.float64, [list(zip(keys, values, strict=True))] * 2)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=12))
def test_a_sum_never_wraps(batch: list[tuple[int, int]]) -> None:
    """Either every running sum fits 64 bits and is exact, or the first record for which it does not is named."""
    keys, values = [key for key, _ in batch], [value for _, value in batch]
    exact = by_loop(SumFold(), keys, values, {})
    beyond = [position for position, total in enumerate(exact) if not -(2**63) <= total < 2**63]
    if not beyond:
        assert folded(SumFold(), keys, values, np.int64, {}) == exact
        return
    with pytest.raises(LongOverflowError, match=str(exact[beyond[0]])) as refused:
        folded(SumFold(), keys, values, np.int64, {})
    assert refused.value.position == beyond[0]


def test_a_sum_may_reach_the_ends_of_64_bits() -> None:
    """The largest and the smallest long are sums like others; one more is not, also when it comes from the state."""
    assert folded(SumFold(), [1, 1], [2**63 - 2, 1], np.int64, {}) == [2**63 - 2, 2**63 - 1]
    assert folded(SumFold(), [1], [-1], np.int64, {1: -(2**63) + 1}) == [-(2**63)]
    with pytest.raises(LongOverflowError):
        folded(SumFold(), [1], [-1], np.int64, {1: -(2**63)})


def test_sums_of_all_groups_together_may_exceed_64_bits() -> None:
    """An intermediate sum across groups may wrap around; no result does."""
    keys, large = [1, 2, 3, 1, 2, 3], 2**62
    values = [large, large, large, large - 1, -5, 7]

    assert folded(SumFold(), keys, values, np.int64, {}) == by_loop(SumFold(), keys, values, {})


@pytest.mark.parametrize("kind", FOLDS)
def test_the_row_form_of_a_fold(kind: type[ColumnFold]) -> None:
    """``combine`` over single values is what other backends fold with: the same results."""
    fold, values = kind(), [3.5, -1.0, float("nan"), 9.0, -0.0]
    added = [fold.value_of(value) for value in values]
    running = [functools.reduce(fold.combine, added[: end + 1]) for end in range(len(added))]

    assert bits(running) == bits(by_loop(fold, [1] * len(values), values, {}))
