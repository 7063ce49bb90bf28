"""The map whose entries expire by rotation."""

from __future__ import annotations

from hypothesis import given, strategies as st

from engine.protocols.acking.rotating_map import RotatingMap


def test_an_entry_goes_with_the_rotation_whose_number_is_that_of_the_buckets() -> None:
    """With B buckets an entry survives B-1 rotations after its last put, and no more."""
    for buckets in (2, 3, 4):
        entries: RotatingMap[str, int] = RotatingMap(buckets)
        entries.put("a", 1)
        for _ in range(buckets - 1):
            assert entries.rotate() == {}
        assert entries.get("a") == 1
        assert entries.rotate() == {"a": 1}
        assert len(entries) == 0


def test_a_put_begins_the_time_anew_and_leaves_no_second_entry() -> None:
    """A key is in one bucket only: the newest of its puts."""
    entries: RotatingMap[str, int] = RotatingMap(2)
    entries.put("a", 1)
    entries.rotate()
    entries.put("a", 2)
    assert len(entries) == 1
    assert entries.rotate() == {}
    assert entries.items() == [("a", 2)]


def test_values_may_be_false() -> None:
    """Whether there is an entry does not depend on what it holds."""
    entries: RotatingMap[str, bool] = RotatingMap(2)
    entries.put("a", False)
    entries.rotate()
    entries.put("a", False)
    assert len(entries) == 1
    assert "a" in entries


_KEYS = st.sampled_from("abcd")
_OPERATIONS = st.one_of(
    st.tuples(st.just("put"), _KEYS),
    st.tuples(st.just("get"), _KEYS),
    st.tuples(st.just("remove"), _KEYS),
    st.tuples(st.just("rotate"), st.just("")),
)


@given(st.integers(2, 5), st.lists(_OPERATIONS, max_size=60))
def test_expiry_against_a_model_that_counts_rotations(buckets: int, operations: list[tuple[str, str]]) -> None:
    """For any sequence: an entry expires exactly with the B-th rotation after its last put, unless it was removed."""
    entries: RotatingMap[str, int] = RotatingMap(buckets)
    ages: dict[str, int] = {}
    for number, (operation, key) in enumerate(operations):
        if operation == "put":
            entries.put(key, number)
            ages[key] = 0
        elif operation == "remove":
            assert (entries.remove(key) is None) == (ages.pop(key, None) is None)
        elif operation == "get":
            assert (entries.get(key) is None) == (key not in ages)
        else:
            ages = {one: age + 1 for one, age in ages.items()}
            assert set(entries.rotate()) == {one for one, age in ages.items() if age == buckets}
            ages = {one: age for one, age in ages.items() if age < buckets}
        assert len(entries) == len(ages)
        assert {one for one, _ in entries.items()} == set(ages)
