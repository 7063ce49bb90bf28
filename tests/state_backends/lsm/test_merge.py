"""Merging sorted sources: the newest entry of each key, hidden by newer ranges."""

from __future__ import annotations

from hypothesis import given, strategies as st

from state_backends.lsm.merge import MergeSource, merged
from state_backends.lsm.range_tombstones import DeletedRanges

keys = st.integers(0, 25).map(lambda number: b"%02d" % number)
sources = st.lists(
    st.tuples(
        st.dictionaries(keys, st.one_of(st.none(), st.binary(max_size=2)), max_size=20),
        st.lists(st.tuples(keys, keys), max_size=2),
        st.integers(1, 6),
    ),
    max_size=5,
)


@given(sources)
def test_a_merge_is_what_a_dict_would_hold(given_sources: list[tuple[dict, list, int]]) -> None:
    """However the sources are cut into pieces, the result is that of writing them one after the other."""
    model: dict[bytes, bytes | None] = {}
    to_merge = []
    for entries, ranges, _ in reversed(given_sources):
        model = {key: value for key, value in model.items() if not DeletedRanges(ranges).covers(key)}
        model.update(entries)
    for entries, ranges, piece in given_sources:
        ascending = sorted(entries)
        pieces = [ascending[start : start + piece] for start in range(0, len(ascending), piece)]
        columns = [(part, [entries[key] for key in part]) for part in pieces]
        to_merge.append(MergeSource(iter(columns), DeletedRanges(ranges)))
    rows: list[tuple[bytes, bytes | None]] = []
    for part, values in merged(to_merge):
        assert part
        rows += zip(part, values, strict=True)

    assert rows == sorted(model.items())
