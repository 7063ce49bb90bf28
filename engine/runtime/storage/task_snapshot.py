"""What one task has written of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state_backends.snapshots import SubtaskSnapshot


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task's part of a checkpoint.

    ``operators``  uid -> handles of its state;
    ``sent``       channel index -> records sent on it before the barrier, without those in ``operators``;
    ``received``   channel index -> records received from it before the snapshot, with those in ``operators``;
    ``read``       records that a source has read in this attempt; for statistics only.

    Records in flight that were captured count as received on the input side and as not sent on the output side.
    """

    operators: dict[str, SubtaskSnapshot]
    sent: dict[int, int]
    received: dict[int, int]
    read: int = field(default=0, compare=False, repr=False)
