"""Finds expired rows of an ordered store from their bytes alone: no value is decoded.

A pair of last access and content is encoded as a tuple, so it begins with a fixed mark and the time. Compactions of a
store use the filter to drop expired state, and so do its full snapshots. Its answer depends only on the rows and on the
virtual time of the call. Rows of states without time-to-live, and of states that the running program has not declared
yet, pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from state_backends.base import StateKind, StateTtlConfig
from state_backends.rows import COUNT_BYTES, GROUP_BYTES, PART_BYTES, encoded_length

RowFilter = Callable[[bytes, bytes], bytes | None]
"""From key and value of a row to the value that it keeps; ``None`` = the row is dropped."""

_PAIR_MARK = b"\x93\xc7\x00\x00"
"""How a tuple of two is encoded: an array of three, its first element the empty extension 0."""

_INT_SIZES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIRST_SIGNED = 0xD0
_MAX_POSITIVE_FIXINT = 0x7F
_MIN_NEGATIVE_FIXINT = 0xE0


class TtlRowFilter:
    """The filter of one backend, which knows ids, kinds and settings of the states that are to be filtered."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._states: dict[int, tuple[StateKind, StateTtlConfig]] = {}
        self._in_compaction: dict[bytes, tuple[bool, StateTtlConfig]] = {}

    def register(self, state_id: int, kind: StateKind, config: StateTtlConfig) -> None:
        """From now on, filter the rows under this id; a further call replaces the settings."""
        self._states[state_id] = (kind, config)
        key = _id_bytes(state_id)
        self._in_compaction.pop(key, None)
        if config.cleanup_in_compaction:
            self._in_compaction[key] = (kind is StateKind.LIST, config)

    def __bool__(self) -> bool:
        """For compaction: whether any row may be dropped."""
        return bool(self._in_compaction)

    def __call__(self, key: bytes, value: bytes) -> bytes | None:
        """For compaction: the part of a row that is kept now."""
        known = self._in_compaction.get(key[GROUP_BYTES:PART_BYTES])
        if known is None:
            return value
        is_list, config = known
        return _kept(value, is_list, config.latest_expired_ms(self._now_ms()))

    def for_full_snapshot(self) -> RowFilter | None:
        """The part that a full snapshot keeps now; ``None`` when no state has ``cleanup_full_snapshot``."""
        now = self._now_ms()
        limits = {
            _id_bytes(state_id): (kind is StateKind.LIST, config.latest_expired_ms(now))
            for state_id, (kind, config) in self._states.items()
            if config.cleanup_full_snapshot
        }
        if not limits:
            return None

        def kept(key: bytes, value: bytes) -> bytes | None:
            known = limits.get(key[GROUP_BYTES:PART_BYTES])
            return value if known is None else _kept(value, *known)

        return kept


def _id_bytes(state_id: int) -> bytes:
    return state_id.to_bytes(PART_BYTES - GROUP_BYTES, "big")


def _kept(value: bytes, is_list: bool, limit_ms: int) -> bytes | None:
    if is_list:
        return _kept_elements(value, limit_ms)
    return None if last_access_ms(value) <= limit_ms else value


def _kept_elements(value: bytes, limit_ms: int) -> bytes | None:
    living = []
    start, end = COUNT_BYTES, len(value)
    count = 0
    while start < end:
        length = encoded_length(value, start)
        if last_access_ms(value, start) > limit_ms:
            living.append(value[start : start + length])
        start += length
        count += 1
    if len(living) == count:
        return value
    return len(living).to_bytes(COUNT_BYTES, "big") + b"".join(living) if living else None


def last_access_ms(data: bytes, start: int = 0) -> int:
    """The last access of the encoded pair that begins at ``start``."""
    assert data.startswith(_PAIR_MARK, start), "state with time-to-live holds something that is no pair"
    at = start + len(_PAIR_MARK)
    first = data[at]
    if first <= _MAX_POSITIVE_FIXINT:
        return first
    if first >= _MIN_NEGATIVE_FIXINT:
        return first - 0x100
    size = _INT_SIZES[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "big", signed=first >= _FIRST_SIGNED)
