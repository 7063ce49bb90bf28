"""Time-to-live of state: the settings for programs, and the rule when state has expired.

Rules (StateTtlConfig, TtlUtils, AbstractTtlDecorator in Flink):

* Time-to-live is per value, per list element and per map entry. Each is stored with its last access time, as a pair
  ``(last access, content)``: a tuple, so that a snapshot may share it when its content cannot be changed.
* Content has expired if and only if ``last access + ttl <= now``; the sum is capped at the largest 64-bit number.
* Time is always processing time.
* A restore refuses a state whose time-to-live was turned on or off since the snapshot: the stored form differs. Its
  duration and all other settings may change.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from state_backends.base.errors import StateArgumentError

MAX_TIME_MS = (1 << 63) - 1
"""The end of time: no sum of a time and a duration exceeds it (Long.MAX_VALUE)."""

Expiring = tuple[int, Any]
"""The last access time in ms and the content."""


class UpdateType(enum.Enum):
    """What counts as an access, which puts off the end (StateTtlConfig.UpdateType)."""

    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"


class StateVisibility(enum.Enum):
    """Whether a reader may get what has expired and is still there (StateTtlConfig.StateVisibility)."""

    NEVER_RETURN_EXPIRED = "NeverReturnExpired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "ReturnExpiredIfNotCleanedUp"
    """It is returned once: the access that returns it also removes it."""


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """How long state lives (Flink: ``StateTtlConfig``).

    :ivar ttl_ms: how long after its last access it expires
    :ivar update_type: what counts as an access
    :ivar visibility: whether a reader may get what has expired and is still there
    :ivar cleanup_full_snapshot: full snapshots leave out what has expired when they begin; the live state keeps it
    :ivar cleanup_incrementally: how many further entries each access looks at, to remove what has expired; of the heap
        backend only, 0 = none
    :ivar cleanup_in_compaction: compaction removes what has expired; of the log-structured backend only
    :raises StateArgumentError: when the duration is not positive, or the number of entries is negative
    """

    ttl_ms: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    cleanup_full_snapshot: bool = False
    cleanup_incrementally: int = 0
    cleanup_in_compaction: bool = True

    def __post_init__(self) -> None:
        if type(self.ttl_ms) is not int or self.ttl_ms < 1:
            raise StateArgumentError(
                f"time-to-live of state must be a whole number of milliseconds from 1 on, not {self.ttl_ms!r}. "
                "Leave ttl out for state that stays for ever."
            )
        if type(self.cleanup_incrementally) is not int or self.cleanup_incrementally < 0:
            raise StateArgumentError(
                f"cleanup_incrementally is a number of entries per access, not {self.cleanup_incrementally!r}."
            )

    def latest_expired_ms(self, now_ms: int) -> int:
        """The last access time up to which everything has expired now; for loops that compare a number."""
        # The cap: at the end of time everything that could be accessed before it has expired, and nothing earlier can
        # be reached through the sum.
        return MAX_TIME_MS if now_ms >= MAX_TIME_MS else now_ms - self.ttl_ms

    @property
    def refreshed_by_reading(self) -> bool:
        return self.update_type is UpdateType.ON_READ_AND_WRITE

    @property
    def returns_expired(self) -> bool:
        """Whether a reader gets what has expired and is still there."""
        return self.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
