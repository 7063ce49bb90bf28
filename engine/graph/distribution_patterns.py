"""The receiving subtasks to which one sending subtask has a channel, by the distribution pattern of the edge.

All-to-all: every sender to every receiver. Pointwise: neighbours only, split as evenly as integers allow; each
receiver gets a contiguous range of senders, or each sender a range of receivers (Flink:
``VertexInputInfoComputationUtils``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def connections(pointwise: bool, senders: int, receivers: int) -> Sequence[Sequence[int]]:
    """For every sender the receivers it has a channel to, ascending. Parallelisms are at least 1."""
    assert senders >= 1
    assert receivers >= 1
    return _pointwise(senders, receivers) if pointwise else [range(receivers)] * senders


def _pointwise(senders: int, receivers: int) -> Sequence[Sequence[int]]:
    if senders < receivers:
        bounds = [(sender * receivers + senders - 1) // senders for sender in range(senders + 1)]
        return [range(first, end) for first, end in pairwise(bounds)]
    targets: list[Sequence[int]] = []
    for receiver in range(receivers):
        first, end = receiver * senders // receivers, (receiver + 1) * senders // receivers
        targets.extend([range(receiver, receiver + 1)] * (end - first))
    return targets
