"""The time of checkpoint storage beyond the plain cost model: random delays, a bandwidth that all tasks share, reading.

Tasks that share a bandwidth are served one after the other, in the order in which their files come. So the last one of
several is ready when it would be if they were served side by side, and the others are ready earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.elements.laws import sample_ns
from engine.runtime.config import CostModel

_NS_PER_S = 1_000_000_000


class StorageTimes:
    """Of one run. ``draw``: of its choices, by stream and bound."""

    def __init__(self, cost: CostModel, draw: Callable[[str, int], int]) -> None:
        self._cost = cost
        self._draw = partial(draw, "storage delay")
        self._shared_until_ns = 0

    def write_ns(self, now_ns: int, files: int, size_bytes: int) -> int:
        """Virtual ns to begin ``files`` files and write ``size_bytes`` to them."""
        size_bytes = self._cost.virtual_bytes(size_bytes)
        own_ns = self._cost.storage_ns(files, size_bytes) + self._delay_ns(files)
        return max(own_ns, self._shared_ns(now_ns, size_bytes))

    def read_ns(self, now_ns: int, remote_bytes: int, local_bytes: int) -> int:
        """Virtual ns to read state at a restore, from storage and from local copies."""
        cost = self._cost
        remote_bytes, local_bytes = cost.virtual_bytes(remote_bytes), cost.virtual_bytes(local_bytes)
        own_ns = _at_speed(remote_bytes, cost.restore_bytes_per_s)
        # Without a speed to read at, reading is free, also over a shared bandwidth.
        shared_ns = 0 if cost.restore_bytes_per_s is None else self._shared_ns(now_ns, remote_bytes)
        return max(own_ns, shared_ns) + _at_speed(local_bytes, cost.local_restore_bytes_per_s)

    def _delay_ns(self, files: int) -> int:
        law = self._cost.storage_delay
        return 0 if law is None else sum([sample_ns(law, self._draw) for _ in range(files)])

    def _shared_ns(self, now_ns: int, size_bytes: int) -> int:
        speed = self._cost.shared_storage_bytes_per_s
        if speed is None or not size_bytes:
            return 0
        self._shared_until_ns = max(now_ns, self._shared_until_ns) + _at_speed(size_bytes, speed)
        return self._shared_until_ns - now_ns


def _at_speed(size_bytes: int, bytes_per_s: int | None) -> int:
    return 0 if bytes_per_s is None else size_bytes * _NS_PER_S // bytes_per_s
