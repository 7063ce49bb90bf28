"""Range tombstones: sets of keys."""

from __future__ import annotations

from hypothesis import given, strategies as st

from state_backends.lsm.range_tombstones import DeletedRanges

points = st.binary(max_size=2)
ranges = st.lists(st.tuples(points, points), max_size=6)


@given(ranges, points)
def test_a_set_covers_what_one_of_its_ranges_holds(given_ranges: list[tuple[bytes, bytes]], point: bytes) -> None:
    """Joining ranges changes no answer, and leaves them ascending and apart."""
    joined = DeletedRanges(given_ranges)
    joined.validate()

    assert joined.covers(point) == any(first <= point < end for first, end in given_ranges)
    assert bool(joined) == any(first < end for first, end in given_ranges)


@given(ranges, ranges, points)
def test_a_union_covers_what_either_covers(
    left: list[tuple[bytes, bytes]], right: list[tuple[bytes, bytes]], point: bytes
) -> None:
    """The union is that of both lists."""
    union = DeletedRanges(left).union(DeletedRanges(right))
    union.validate()

    assert union == DeletedRanges([*left, *right])
    assert hash(union) == hash(DeletedRanges([*left, *right]))
    assert union.covers(point) == (DeletedRanges(left).covers(point) or DeletedRanges(right).covers(point))


@given(ranges, points, st.one_of(st.none(), points), points)
def test_a_clipped_set_covers_what_lies_within(
    given_ranges: list[tuple[bytes, bytes]], first: bytes, end: bytes | None, point: bytes
) -> None:
    """Clipping leaves out what is outside, and nothing else."""
    clipped = DeletedRanges(given_ranges).clipped(first, end)
    clipped.validate()

    inside = first <= point and (end is None or point < end)
    assert clipped.covers(point) == (inside and DeletedRanges(given_ranges).covers(point))


@given(ranges, st.sets(points, max_size=12))
def test_uncovered_entries_are_those_that_no_range_covers(
    given_ranges: list[tuple[bytes, bytes]], keys: set[bytes]
) -> None:
    """Filtering many keys at once agrees with asking for each."""
    joined, ascending = DeletedRanges(given_ranges), sorted(keys)
    left, values = joined.uncovered(ascending, [b"v" + key for key in ascending])

    assert left == [key for key in ascending if not joined.covers(key)]
    assert values == [b"v" + key for key in left]
