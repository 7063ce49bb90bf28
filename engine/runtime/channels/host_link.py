"""The bandwidth of a host: records that leave it pass one batch after the other, whichever channels they are on.

A host has all subtasks of one index, as for failures. Channels between them do not leave it. Batches that wait here
have left their channels: a barrier does not overtake them.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.graph.plan import ExecutionPlan
from engine.runtime.config import CostModel


class HostLink:
    """Of one host, and one run: what a dead task has sent still passes."""

    __slots__ = ("_cost", "free_ns")

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self.free_ns = 0
        """When everything has passed that has left a channel."""

    def pass_ns(self, now_ns: int, size_bytes: int) -> int:
        """When records of this size have passed that leave their channel now."""
        self.free_ns = max(now_ns, self.free_ns) + self._cost.host_transfer_ns(size_bytes)
        return self.free_ns


def links_of_hosts(cost: CostModel, plan: ExecutionPlan) -> Sequence[HostLink] | None:
    """Those of a run, by the index of the subtasks on a host; ``None`` when they are not limited."""
    if cost.host_bytes_per_s is None:
        return None
    return [HostLink(cost) for _ in range(max(vertex.parallelism for vertex in plan.vertices))]
