"""Key groups: the unit in which keyed state is owned, snapshotted and redistributed.

A key belongs to one of ``max_parallelism`` groups for ever; a subtask owns a contiguous range of
groups. The arithmetic is Flink's, bit for bit (KeyGroupRangeAssignment, MathUtils.murmurHash), over a
hash that equals Java's ``hashCode``, so that a plan or a trace can be laid beside one of Flink's and
so that no group ever depends on Python's seeded ``hash``.

Rules:

* all arithmetic is that of Java's 32-bit ``int``;
* key group = murmur(hashCode(key)) mod max_parallelism;
* owner of group g = floor(g * parallelism / max_parallelism);
* 1 <= parallelism <= max_parallelism <= 32768.

What a key may be, and which Java type it stands for, is in :mod:`state_backends.base.key_types`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from state_backends.base.errors import KeyGroupError
from state_backends.base.key_types import KeyType, check_keys, infer_key_type, java_hash_function

DEFAULT_LOWER_BOUND_MAX_PARALLELISM = 128
"""The smallest max parallelism that is derived when the user sets none."""

UPPER_BOUND_MAX_PARALLELISM = 1 << 15
"""The largest max parallelism: a key group must fit into two bytes of a file."""

_UINT32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, order=True)
class KeyGroupRange:
    """The key groups ``first`` to ``last``, both included. It is never empty.

    :raises KeyGroupError: when the bounds are negative or out of order
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last < UPPER_BOUND_MAX_PARALLELISM:
            raise KeyGroupError(
                f"key-group range [{self.first}, {self.last}] is not within 0 <= first <= last "
                f"< {UPPER_BOUND_MAX_PARALLELISM}."
            )

    def __contains__(self, key_group: int) -> bool:
        return self.first <= key_group <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return f"[{self.first}, {self.last}]"

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange | None:
        """The groups in both ranges, or ``None`` when there is none."""
        first = max(self.first, other.first)
        last = min(self.last, other.last)
        return KeyGroupRange(first, last) if first <= last else None


def foreign_key(key: Any, group: int, own: KeyGroupRange) -> KeyGroupError:
    """The error for a key that belongs to another subtask."""
    return KeyGroupError(
        f"key {key!r} belongs to key group {group}, but this backend owns {own}. The record was sent to the wrong "
        "subtask, or the declared key type differs between the two sides."
    )


@dataclass(frozen=True, slots=True)
class MaxParallelism:
    """A vertex's max parallelism and whether the user chose it.

    :ivar value: the number of key groups
    :ivar derived: true when it was computed from the parallelism, so that restored state may replace it
    """

    value: int
    derived: bool

    def can_rescale_to(self, other: int) -> bool:
        """Whether the value may still become ``other`` (only a derived one may; Flink's rule)."""
        return other == self.value or self.derived


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Refuse a combination outside 1 <= parallelism <= max_parallelism <= 32768.

    :raises KeyGroupError: naming the offending value
    """
    if not 1 <= max_parallelism <= UPPER_BOUND_MAX_PARALLELISM:
        raise KeyGroupError(
            f"max parallelism {max_parallelism} is not within 1 to {UPPER_BOUND_MAX_PARALLELISM}. "
            "It is the number of key groups: set one that the job will never outgrow."
        )
    if not 1 <= parallelism <= max_parallelism:
        raise KeyGroupError(
            f"parallelism {parallelism} is not within 1 to the max parallelism {max_parallelism}. "
            "Lower the parallelism, or raise the max parallelism if no state was written with it yet."
        )


def round_up_to_power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``; 0 stays 0 (MathUtils.roundUpToPowerOfTwo)."""
    return 0 if value <= 0 else 1 << (value - 1).bit_length()


def default_max_parallelism(parallelism: int) -> int:
    """The max parallelism of a vertex whose user set none: half as much again, rounded up, at least 128.

    :raises KeyGroupError: when the parallelism itself is out of range
    """
    check_parallelism(parallelism, UPPER_BOUND_MAX_PARALLELISM)
    wanted = round_up_to_power_of_two(parallelism + parallelism // 2)
    return min(max(wanted, DEFAULT_LOWER_BOUND_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def resolve_max_parallelism(parallelism: int, configured: int | None) -> MaxParallelism:
    """The effective max parallelism of a vertex (VertexParallelismInformation).

    :raises KeyGroupError: when ``configured`` is out of range or below the parallelism
    """
    if configured is None:
        return MaxParallelism(default_max_parallelism(parallelism), derived=True)
    check_parallelism(parallelism, configured)
    return MaxParallelism(configured, derived=False)


def operator_index_for_key_group(max_parallelism: int, parallelism: int, key_group: int) -> int:
    """The subtask that owns a key group. Arguments out of range are refused."""
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= key_group < max_parallelism:
        raise KeyGroupError(f"key group {key_group} is not within 0 to {max_parallelism - 1}.")
    return key_group * parallelism // max_parallelism


@lru_cache(1024)  # Every attempt of a task asks for its own.
def key_group_range_for_index(max_parallelism: int, parallelism: int, index: int) -> KeyGroupRange:
    """The key groups that subtask ``index`` owns. Arguments out of range are refused."""
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= index < parallelism:
        raise KeyGroupError(f"subtask index {index} is not within 0 to {parallelism - 1}.")
    first = (index * max_parallelism + parallelism - 1) // parallelism
    last = ((index + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(first, last)


def key_group_ranges(max_parallelism: int, parallelism: int) -> tuple[KeyGroupRange, ...]:
    """The ranges of all subtasks, in order: disjoint, and together all key groups."""
    check_parallelism(parallelism, max_parallelism)
    return tuple(key_group_range_for_index(max_parallelism, parallelism, i) for i in range(parallelism))


def murmur_hash(code: int) -> int:
    """Flink's murmur mix of the low 32 bits of a hash code: 0 to 2**31 - 1 (MathUtils.murmurHash)."""
    code = (code * 0xCC9E2D51) & _UINT32
    code = ((code << 15) | (code >> 17)) & _UINT32
    code = (code * 0x1B873593) & _UINT32
    code = ((code << 13) | (code >> 19)) & _UINT32
    code = (code * 5 + 0xE6546B64) & _UINT32
    code ^= 4
    code ^= code >> 16
    code = (code * 0x85EBCA6B) & _UINT32
    code ^= code >> 13
    code = (code * 0xC2B2AE35) & _UINT32
    code ^= code >> 16
    if code < 0x80000000:
        return code
    # A negative int is negated; the smallest int has no negation in 32 bits and becomes 0.
    return (0x100000000 - code) & 0x7FFFFFFF


def key_group_function(key_type: KeyType, max_parallelism: int) -> Callable[[Any], int]:
    """A function from a key of ``key_type`` to its key group, for callers that ask for many keys.

    The function trusts the type of its argument (see :func:`check_keys`) and raises
    :class:`KeyTypeError` only for an integer that does not fit the declared width.

    :raises KeyGroupError: when ``max_parallelism`` is out of range
    """
    check_parallelism(1, max_parallelism)
    # Not hash(): a restore in another process must find the key's group (mutant "keys routed by hash").
    hash_code = java_hash_function(key_type)

    def key_group(key: Any) -> int:
        return murmur_hash(hash_code(key)) % max_parallelism

    return key_group


def key_group_for(key: Any, max_parallelism: int, key_type: KeyType | None = None) -> int:
    """The key group of one key.

    :param key_type: its declared type; inferred from the key when left out (an ``int`` is a LONG)
    :raises KeyTypeError: when the key is not of that type or of no type that can be a key
    :raises KeyGroupError: when ``max_parallelism`` is out of range
    """
    declared = infer_key_type(key) if key_type is None else key_type
    check_keys([key], declared)
    return key_group_function(declared, max_parallelism)(key)
