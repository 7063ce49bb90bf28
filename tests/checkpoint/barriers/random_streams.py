"""Random streams of records, barriers, cancel markers and ends, and their records before a barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.conformance.barrier.input_side import InputReplay

Operations = list[list[Any]]

TIMEOUT_MS = 5
_WHAT = 5 * ["rec"] + 4 * ["barrier"] + ["cancel"]


@st.composite
def streams(
    draw: st.DrawFn, kinds_of_barriers: Sequence[str], channels: int, longest: int, one_ends_in: int
) -> list[Operations]:
    """The elements sent on each channel: ids grow, and no element follows the end of its channel."""
    kinds = st.sampled_from(kinds_of_barriers)
    kind_of: dict[int, dict[str, Any]] = {}
    per_channel: list[Operations] = []
    for channel in range(channels):
        operations: Operations = []
        checkpoint_id = -1
        for index in range(draw(st.integers(0, longest))):
            what = draw(st.sampled_from(_WHAT))
            if what == "rec":
                operations.append(["rec", channel, f"{channel}.{index}", {"bytes": 1}])
                continue
            checkpoint_id += draw(st.sampled_from([1, 1, 1, 2]))
            if what == "cancel":
                operations.append(["cancel", channel, checkpoint_id])
                continue
            # Mostly one kind per checkpoint; but a barrier may have been converted on its way.
            if checkpoint_id not in kind_of or draw(st.integers(0, 4)) == 0:
                kind_of[checkpoint_id] = {"kind": draw(kinds), "timeout_ms": TIMEOUT_MS}
            operations.append(["barrier", channel, checkpoint_id, kind_of[checkpoint_id]])
        if draw(st.integers(1, one_ends_in)) == 1:
            operations.append(["eop", channel])
        per_channel.append(operations)
    return per_channel


def drain(driver: InputReplay) -> None:
    """Consume every element that can be consumed."""
    before = -1
    while before != driver.waiting:
        before = driver.waiting
        driver.apply(["poll_announcements"])
        driver.apply(["poll_all"])


def names(order: list[Any], channel: int) -> list[str]:
    return [one for one in order if isinstance(one, str) and one.startswith(f"{channel}.")]


def ahead_of(operations: Operations, channel: int, checkpoint_id: int) -> list[str]:
    """The records on ``channel`` before its barrier of that id, or before its end if there is none."""
    ahead = []
    for operation in operations:
        if operation[:3] == ["barrier", channel, checkpoint_id]:
            break
        if operation[0] == "rec" and operation[1] == channel:
            ahead.append(operation[2])
    return ahead
