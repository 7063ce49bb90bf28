"""Where the ids of roots and edges come from: a stream of distinct 64-bit numbers per spout and task.

Storm draws them at random. A collision means a tree that seems complete and is not, so that what matters is that they
are spread evenly; whether they are drawn or computed does not. Here they are computed, from names that are never used
twice, and are no choices of a run: nothing else may come of another id.
"""

from __future__ import annotations

from hashlib import blake2b

_MASK = (1 << 64) - 1


class IdStream:
    """The ids of whoever goes by ``name``: SplitMix64 (Steele, Lea, Flood 2014) over a counter. It maps numbers to
    numbers one to one, so that no id of a stream ever comes again; 0, which would leave no mark, is left out."""

    __slots__ = ("_state",)

    def __init__(self, name: str) -> None:
        self._state = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")

    def __call__(self) -> int:
        while True:
            self._state = mixed = (self._state + 0x9E3779B97F4A7C15) & _MASK
            mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
            mixed ^= mixed >> 31
            if mixed:
                return mixed

    def fingerprint(self) -> int:
        """What decides which ids come."""
        return self._state
