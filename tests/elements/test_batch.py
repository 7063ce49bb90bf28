"""A batch is a view on parallel lists: cutting and picking keep the lists parallel and the original whole."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Batch


@st.composite
def batches(draw: st.DrawFn, min_size: int = 2) -> Batch:
    """Batches with and without timestamps and keys."""
    values = draw(st.lists(st.integers(), min_size=min_size, max_size=20))
    size = len(values)
    stamps = st.none() | st.lists(st.integers(), min_size=size, max_size=size)
    keys = st.none() | st.lists(st.text(max_size=3), min_size=size, max_size=size)
    return Batch(values, draw(stamps), draw(keys))


@given(batches(), st.data())
def test_split_loses_and_repeats_nothing(batch: Batch, data: st.DataObject) -> None:
    """Both halves of a split put together are the batch, in values, timestamps and keys."""
    at = data.draw(st.integers(1, len(batch) - 1))
    before = Batch(list(batch.values), batch.timestamps, batch.keys)

    left, right = batch.split(at)

    assert len(left) == at
    assert left.values + right.values == batch.values
    for column in ("timestamps", "keys"):
        whole = getattr(batch, column)
        halves = getattr(left, column), getattr(right, column)
        assert halves == ((None, None) if whole is None else (whole[:at], whole[at:]))
    assert batch == before


@given(batches(min_size=1), st.data())
def test_take_keeps_the_columns_parallel(batch: Batch, data: st.DataObject) -> None:
    """``take`` picks the same positions from every column, in the order asked for."""
    positions = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=10))

    taken = batch.take(positions)

    assert taken.values == [batch.values[at] for at in positions]
    assert taken.timestamps == (batch.timestamps and [batch.timestamps[at] for at in positions])
    assert taken.keys == (batch.keys and [batch.keys[at] for at in positions])


@pytest.mark.parametrize("at", [-1, 0, 2, 3])
def test_split_outside_the_batch_is_a_bug(at: int) -> None:
    """A split that would leave an empty half is refused: an empty batch goes nowhere."""
    with pytest.raises(AssertionError):
        Batch(["a", "b"]).split(at)


def test_batches_are_equal_by_all_columns() -> None:
    """Two batches are equal when values, timestamps and keys are, and no batch equals its list."""
    assert Batch([1], [5], ["k"]) == Batch([1], [5], ["k"])
    assert Batch([1], [5], ["k"]) != Batch([1], [6], ["k"])
    assert Batch([1], [5], ["k"]) != Batch([1], [5], None)
    assert Batch([1]) != [1]


def test_batches_are_not_hashable() -> None:
    """A batch is mutable, so it cannot be a key by accident."""
    with pytest.raises(TypeError):
        hash(Batch([1]))


def test_event_time_has_flinks_ends() -> None:
    """The first and the last event time are those of a signed 64-bit integer."""
    assert (MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS) == (-(2**63), 2**63 - 1)


def test_repr_shows_all_columns() -> None:
    """What a debugger shows of a batch is what it holds."""
    assert repr(Batch([1], None, ["k"])) == "Batch(values=[1], timestamps=None, keys=['k'])"
