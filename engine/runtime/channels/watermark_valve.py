"""Combines the watermarks of a task's input channels (Flink: ``StatusWatermarkValve``, 1.20).

Rules.
1. The task's watermark is the minimum over the channels that are active and *aligned*; it never goes back.
2. An idle channel does not hold the others back. When it becomes active again, it is not aligned, and so does not
   count, until its own watermark has caught up with the task's.
3. When all channels are idle the task is idle. If the last channel to go idle is the one that held the watermark
   back, the task first advances to the greatest watermark any channel has shown.
4. A channel whose stream has ended shows the maximum watermark and does not hold the others back.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from engine.elements.batch import MIN_TIMESTAMP_MS


class WatermarkValve:
    """Watermarks and status of ``channels`` inputs in, those of the task out."""

    __slots__ = ("_active", "_aligned", "_lowest", "_watermarks", "idle", "watermark_ms")

    def __init__(self, channels: int) -> None:
        self._watermarks = [MIN_TIMESTAMP_MS] * channels
        self._active = bytearray(b"\1") * channels
        self._aligned = bytearray(b"\1") * channels
        # `watermark * channels + channel` of every aligned channel, and outdated entries of some of them: with a
        # thousand channels the valve need not look at all of them for each watermark of one. A pair of numbers would
        # take three times the memory.
        self._lowest = [MIN_TIMESTAMP_MS * channels + channel for channel in range(channels)]
        self.watermark_ms = MIN_TIMESTAMP_MS
        self.idle = False

    def on_watermark(self, channel: int, timestamp_ms: int) -> int | None:
        """The task's new watermark if it advanced."""
        if not self._active[channel] or timestamp_ms <= self._watermarks[channel]:
            return None
        self._watermarks[channel] = timestamp_ms
        if not self._aligned[channel] and timestamp_ms >= self.watermark_ms:
            self._aligned[channel] = True
        if self._aligned[channel]:
            self._count(channel)
        return self._advance_to_minimum()

    def on_status(self, channel: int, idle: bool) -> tuple[int | None, bool | None]:
        """``(new watermark or None, new idle status or None)`` of the task, to be sent in this order."""
        if idle == (not self._active[channel]):
            return None, None
        if idle:
            self._active[channel] = False
            self._aligned[channel] = False
            if not any(self._active):
                advanced = None
                if self._watermarks[channel] == self.watermark_ms:
                    advanced = self._advance(max(self._watermarks))
                self.idle = True
                return advanced, True
            held_back = self._watermarks[channel] == self.watermark_ms
            return (self._advance_to_minimum() if held_back else None), None
        self._active[channel] = True
        self._aligned[channel] = self._watermarks[channel] >= self.watermark_ms
        if self._aligned[channel]:
            self._count(channel)
        if self.idle:
            self.idle = False
            return None, False
        return None, None

    def _count(self, channel: int) -> None:
        lowest = self._lowest
        channels = len(self._watermarks)
        heappush(lowest, self._watermarks[channel] * channels + channel)
        if len(lowest) > 2 * channels + 16:
            # One channel holds the others back: their outdated entries would pile up after its own.
            lowest[:] = [mark * channels + at for at, mark in enumerate(self._watermarks) if self._aligned[at]]
            heapify(lowest)

    def _advance_to_minimum(self) -> int | None:
        lowest, watermarks, aligned = self._lowest, self._watermarks, self._aligned
        while lowest:
            mark, channel = divmod(lowest[0], len(watermarks))
            if aligned[channel] and watermarks[channel] == mark:
                return self._advance(mark)
            heappop(lowest)
        return None

    def _advance(self, timestamp_ms: int) -> int | None:
        if timestamp_ms <= self.watermark_ms:
            return None
        self.watermark_ms = timestamp_ms
        return timestamp_ms

    def fingerprint(self) -> object:
        return (tuple(self._watermarks), bytes(self._active), bytes(self._aligned), self.watermark_ms, self.idle)
