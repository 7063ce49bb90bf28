"""Copy on write: live shards keep their identity, snapshots never change, and no copy is needless."""

from __future__ import annotations

from typing import Any

import pytest

from state_backends.base import KeyGroupError, KeyGroupRange, Shard, ShardedTable, TableSnapshot
from state_backends.base.sharded_table import values_are_immutable
from state_backends.codec import StateCodec


class PlainFormat:
    """Values are written by a codec."""

    def __init__(self) -> None:
        self.codec = StateCodec()
        self.encoded: list[Any] = []

    def encode_value(self, value: Any) -> bytes:
        self.encoded.append(value)
        return self.codec.pack(value)

    def refusal(self, stored_key: Any, value: Any, problem: Exception) -> Exception:
        return self.codec.refusal(value, f"value of {stored_key}", problem)


def table(groups: int = 4, cache_limit: int = 100) -> ShardedTable:
    """A table whose key k is in group k mod ``groups``."""
    return ShardedTable(lambda key: key % groups, KeyGroupRange(0, groups - 1), PlainFormat(), cache_limit)


def put(into: ShardedTable, key: int, value: Any) -> None:
    shard = into.shard_of[key]
    if into.stale:
        into.touch(shard)
    shard[key] = value


def content(snapshot: TableSnapshot) -> dict[Any, Any]:
    """Everything a snapshot holds, decoded."""
    found: dict[Any, Any] = {}
    for group in snapshot.groups_with_entries():
        shard = snapshot.take(group)
        assert shard is not None
        for key, value in shard.entries.items():
            found[key] = StateCodec().decode(value) if shard.encoded else value
    return found


def test_a_snapshot_does_not_see_later_writes() -> None:
    """Writes, new keys and deletions after the snapshot are not in it; the live table has them."""
    live = table()
    for key in range(8):
        put(live, key, key)
    snapshot = live.snapshot()
    put(live, 0, "changed")
    put(live, 12, "new")
    live.touch(live.shard_of[1])
    del live.shard_of[1][1]

    assert content(snapshot) == {key: key for key in range(8)}
    assert live.shards[0] == {0: "changed", 4: 4, 12: "new"}
    assert live.shards[1] == {5: 5}


def test_a_shard_keeps_its_identity() -> None:
    """Freezing copies for the snapshot and not for the live side, so caches stay right."""
    live = table()
    put(live, 0, 1)
    before = live.shards[0]
    snapshot = live.snapshot()
    put(live, 0, 2)

    assert live.shards[0] is before
    assert snapshot.shards[0] is not before


def test_only_touched_shards_are_copied() -> None:
    """An untouched shard is shared with the snapshot to the end."""
    live = table()
    for key in range(4):
        put(live, key, key)
    snapshot = live.snapshot()
    put(live, 2, "x")

    assert [group for group, shard in snapshot.shards.items() if shard is not live.shards[group]] == [2]


def test_several_snapshots_share_one_copy() -> None:
    """Snapshots of the same moment get the same frozen shard; a later one gets its own."""
    live = table()
    put(live, 0, 1)
    first, second = live.snapshot(), live.snapshot()
    put(live, 0, 2)
    third = live.snapshot()
    put(live, 0, 3)

    assert first.shards[0] is second.shards[0]
    assert third.shards[0] is not first.shards[0]
    assert [content(one) for one in (first, second, third)] == [{0: 1}, {0: 1}, {0: 2}]


def test_the_fast_path_comes_back() -> None:
    """stale falls to 0 when every shared shard was touched, and when every snapshot was released."""
    live = table()
    for key in range(4):
        put(live, key, key)
    assert live.stale == 0
    snapshot = live.snapshot()
    assert live.stale == 4
    put(live, 0, "x")
    assert live.stale == 3
    for key in range(1, 4):
        put(live, key, "x")
    assert live.stale == 0
    snapshot.release()
    another = live.snapshot()
    assert live.stale == 4
    another.release()

    assert live.stale == 0


def test_releasing_the_newer_of_two_snapshots_keeps_the_older_safe() -> None:
    """After the newer one is gone, shards that only the older one holds are still copied at the first write."""
    live = table()
    put(live, 0, 1)
    put(live, 1, 1)
    older = live.snapshot()
    put(live, 0, 2)
    newer = live.snapshot()
    newer.release()
    assert live.stale == 1
    put(live, 0, 3)
    put(live, 1, 3)

    assert content(older) == {0: 1, 1: 1}


def test_releasing_the_older_of_two_snapshots_keeps_the_newer_safe() -> None:
    """After the older one is gone, the newer one is still isolated."""
    live = table()
    put(live, 0, 1)
    older = live.snapshot()
    newer = live.snapshot()
    older.release()
    put(live, 0, 2)

    assert content(newer) == {0: 1}


def test_a_group_that_was_taken_is_not_copied_any_more() -> None:
    """Once the writer has taken a group, a write to it costs no copy."""
    live = table()
    put(live, 0, [1])
    snapshot = live.snapshot()
    snapshot.take(0)
    put(live, 0, [2])

    assert 0 not in snapshot.shards
    assert live.stale == 0
    assert live._format.encoded == []  # type: ignore[attr-defined]


def test_a_mutable_value_is_frozen_encoded() -> None:
    """A list in a frozen shard cannot be changed through the live side: the snapshot holds its bytes."""
    live = table()
    put(live, 0, [1])
    snapshot = live.snapshot()
    shard = live.shard_of[0]
    live.touch(shard)
    shard[0].append(2)

    assert content(snapshot) == {0: [1]}


def test_a_value_that_cannot_be_encoded_fails_the_snapshot_and_not_the_writer() -> None:
    """Freezing notes the problem; the write goes on; taking the group raises it, naming the key."""
    live = table()
    put(live, 0, [{1, 2}])
    snapshot = live.snapshot()
    put(live, 0, [3])
    assert snapshot.groups_with_entries() == [0]
    with pytest.raises(Exception, match=r"value of 0\[0\] cannot be written to state: a set"):
        snapshot.take(0)

    assert live.shards[0] == {0: [3]}


def test_releasing_twice_is_harmless_and_a_released_snapshot_holds_nothing() -> None:
    """A second release does nothing; the table forgets the snapshot."""
    live = table()
    put(live, 0, 1)
    snapshot = live.snapshot()
    snapshot.release()
    snapshot.release()

    assert snapshot.groups_with_entries() == []
    assert live._open_snapshots == []


def test_the_cache_is_bounded_and_right_after_it_was_emptied() -> None:
    """Under any number of keys the cache keeps to its limit, and every key still finds its shard."""
    live = table(cache_limit=10)
    for key in range(1000):
        put(live, key, key)
        assert len(live.shard_of) <= 10

    assert all(live.shard_of[key] is live.shards[key % 4] for key in range(1000))
    assert len(live) == 1000


def test_a_key_of_a_foreign_group_is_refused() -> None:
    """A key outside the range is a routing mistake and must not create state that no restore would find."""
    live = ShardedTable(int, KeyGroupRange(2, 3), PlainFormat(), 10)
    with pytest.raises(KeyGroupError, match=r"key 4 belongs to key group 4, but this backend owns \[2, 3\]"):
        live.shard_of[4]

    assert 4 not in live.shard_of
    assert live.shards == {}


@pytest.mark.parametrize(
    ("values", "immutable"),
    [
        ([1, "a", None, 2.0, b"", True], True),
        ([(1, "a"), (2, "b")], True),
        ([], True),
        ([1, [2]], False),
        ([(1, [2])], False),
        ([(1, (2,))], False),
        ([{}], False),
        ([bytearray(b"x")], False),
        ([1, (1,)], False),
    ],
)
def test_what_may_be_shared_with_a_snapshot(values: list[Any], immutable: bool) -> None:
    """Only scalars and tuples of scalars are shared; everything else is encoded when frozen."""
    assert immutable == values_are_immutable(dict(enumerate(values)).values())


def test_pinning_does_not_look_at_entries() -> None:
    """The synchronous part touches shards only: entries are neither counted, hashed nor copied."""

    class Untouchable(Shard):
        __slots__ = ()

        def __iter__(self) -> Any:
            raise AssertionError("iterated")

        def __len__(self) -> int:
            raise AssertionError("counted")

        def copy(self) -> Any:
            raise AssertionError("copied")

    live = table()
    shard = Untouchable()
    shard.group, shard.stamp = 0, 0
    live.shards[0] = shard

    assert live.snapshot().shards[0] is shard
