"""What a fault does to the way from one task to another: elements arrive later, never, or before their predecessors.

A channel stays FIFO whatever the delays are; only a network that breaks what channels promise drops and overtakes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.runtime.channels import kind_of
from engine.runtime.faulted.interference import DROPPED, OVERTAKES

if TYPE_CHECKING:
    from engine.runtime.channels import Channel, Numbered
    from engine.runtime.faulted.interference import Interference
    from engine.runtime.kernel import Kernel


class LinkFaults:
    """Implements :class:`engine.runtime.hook.LinkHook` for one channel."""

    __slots__ = ("_channel", "_free_at_ns", "_interference", "_kernel", "_under_way")

    def __init__(self, channel: Channel, kernel: Kernel, interference: Interference) -> None:
        self._channel = channel
        self._kernel = kernel
        self._interference = interference
        self._under_way = 0
        """Elements whose arrival was put off, and those behind them."""
        self._free_at_ns = 0
        """When the last of them arrives."""

    def propagate(self, numbered: Numbered) -> None:
        """See the hook."""
        channel, now = self._channel, self._kernel.now_ns
        extra_ns = self._interference.element_delay_ns(channel.name, kind_of(numbered[1]))
        if extra_ns == DROPPED:
            if isinstance(numbered[1], Batch):
                count = len(numbered[1])
                channel.incoming_records -= count
                channel.lose(count)
            return
        arrives_ns = now + channel.latency_ns
        if extra_ns == OVERTAKES:
            self._kernel.schedule(arrives_ns, "happens", channel, ("arrive_ahead", numbered))
            return
        if self._under_way:
            # What is in front of it arrives first, whatever held that up.
            arrives_ns = max(arrives_ns + extra_ns, self._free_at_ns)
        else:
            arrives_ns += extra_ns
            if arrives_ns == now:
                channel.arrive(numbered)
                return
        self._under_way += 1
        self._free_at_ns = arrives_ns
        self._kernel.schedule(arrives_ns, "happens", channel, ("arrive_late", numbered))

    def happens(self, event: tuple[str, Any]) -> None:
        """See the hook: an element has arrived."""
        (operation, numbered), channel = event, self._channel
        if operation == "arrive_late":
            self._under_way -= 1
            channel.arrive(numbered)
        else:
            channel.arrive(numbered)
            queue = channel.queue
            if len(queue) - channel.priority_events >= 2 and queue[-1] is numbered:
                queue[-2], queue[-1] = queue[-1], queue[-2]

    def cut(self) -> None:
        """See the hook."""
        self._under_way = self._free_at_ns = 0

    def fingerprint(self) -> object:
        """See the hook."""
        return self._under_way and self._free_at_ns - self._kernel.now_ns
