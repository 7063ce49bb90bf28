"""The one place where watermarks are emitted: generators per split, combined, on a grid of virtual time.

``PeriodicWatermarks`` is pure; its driver registers the requested timers and emits the results. Two operators drive it:
``SourceOperator`` (one generator per split) and ``TimestampsAndWatermarksOperator`` (one for its input).

Emission is periodic in *virtual processing time*: on a grid of ``interval_ns`` from the opening of the
operator (Flink: auto watermark interval). Points of the grid without a possible change are skipped: there is a timer
only when records are expected or idleness may begin. That does not change any emission, and a source that waits an hour
does not fire 18 million timers. The timer must exist *before* the records come, because the runtime cuts batches at
timers. Otherwise a large batch would run over a point of the grid that stops a small one.

The place on the grid is part of the driver's snapshot, with the generators and the idle splits. So after a restore the
next watermark comes as many records after the barrier as without the failure. (Flink forgets both and begins again.
Then a late record of the first run may be in time in the second, and the output differs.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from engine.elements.batch import MIN_TIMESTAMP_MS
from operators.time.watermark_generators import Idleness, IdlenessTimer, WatermarkGenerator


class WatermarkEmission(NamedTuple):
    """The output at a point of the grid."""

    watermark_ms: int | None
    became_idle: bool


class _Split:
    __slots__ = ("generator", "idle", "idleness", "watermark_ms")

    def __init__(self, generator: WatermarkGenerator, idleness: IdlenessTimer | None) -> None:
        self.generator = generator
        self.idleness = idleness
        self.idle = False
        self.watermark_ms = MIN_TIMESTAMP_MS
        """The watermark at the last point of the grid at which the split was not idle."""


class PeriodicWatermarks:
    """Generators of several splits, and the grid for emitting the minimum over splits that are not idle.

    (Flink: ``WatermarkOutputMultiplexer``.) The emitted watermark never falls, even when an idle split comes back with
    an older one. While all splits are idle it does not change.

    After any call, ``due_ns`` is the time at which ``on_periodic`` must be called, or ``None``.
    """

    def __init__(
        self,
        create_generator: Callable[[], WatermarkGenerator],
        interval_ns: int,
        idle_timeout_ms: int | None,
        origin_ns: int,
    ) -> None:
        self._create_generator = create_generator
        self._interval_ns = interval_ns
        self._idle_timeout_ms = idle_timeout_ms
        self._origin_ns = origin_ns
        self._splits: dict[str, _Split] = {}
        self.last_emitted_ms = MIN_TIMESTAMP_MS
        self.idle = False
        self.due_ns: int | None = None

    def restore(self, last_emitted_ms: int, until_next_ns: int, now_ns: int) -> None:
        """Continue after ``last_emitted_ms``, with the next point of the grid ``until_next_ns`` from now."""
        self.last_emitted_ms = last_emitted_ms
        self._origin_ns = now_ns + until_next_ns
        if until_next_ns == 0:
            self.due_ns = now_ns

    def until_next_ns(self, now_ns: int) -> int:
        """How long it is to the next point of the grid; 0 when one is due but has not been handled yet."""
        if self.due_ns is not None and self.due_ns <= now_ns:
            return 0
        return self._point_from(now_ns + 1) - now_ns

    def add_split(self, split: str, now_ns: int, restored: int | None = None) -> None:
        """Let ``split`` take part, from the generator snapshot ``restored`` on if there is one."""
        generator, timeout_ms = self._create_generator(), self._idle_timeout_ms
        if restored is not None:
            generator.restore(restored)
        idleness = None if timeout_ms is None else IdlenessTimer(timeout_ms * 1_000_000)
        assert split not in self._splits, split
        self._splits[split] = _Split(generator, idleness)
        if idleness is not None or restored is not None:
            self.expect_records(now_ns)

    def restore_idleness(self, snapshots: Mapping[str, Idleness | None], now_ns: int) -> None:
        """Continue the idleness of splits, after all of them were added. Otherwise an idle split would hold the minimum
        back until its timeout, and late records would be in time."""
        for name, split in self._splits.items():
            saved = snapshots.get(name)
            if saved is not None and split.idleness is not None:
                split.idleness.restore(saved, now_ns)
                # Idleness is part of the snapshot (mutant "idleness forgotten").
                split.idle = saved.idle
        self.idle = bool(self._splits) and all(split.idle for split in self._splits.values())

    def remove_split(self, split: str, now_ns: int) -> None:
        """``split`` has ended and no longer holds the watermark back."""
        del self._splits[split]
        if self._splits:
            self.expect_records(now_ns)

    def expect_records(self, from_ns: int) -> None:
        """Records may come from ``from_ns`` on: request a timer at the next point of the grid."""
        self._want(self._point_from(from_ns + 1))

    def on_records(self, split: str, timestamps: Sequence[int], now_ns: int) -> bool:
        """Register records (at least one). Returns true when the stream was idle and must be declared active before
        they are emitted."""
        one = self._splits[split]
        one.generator.on_batch(timestamps)
        one.idle = False
        if one.idleness is not None:
            one.idleness.activity()
        self.expect_records(now_ns)
        was_idle, self.idle = self.idle, False
        return was_idle

    def on_periodic(self, now_ns: int) -> WatermarkEmission:
        """A point of the grid has come."""
        self.due_ns = None
        for split in self._splits.values():
            self._check(split, now_ns)
        active = [split.watermark_ms for split in self._splits.values() if not split.idle]
        was_idle, self.idle = self.idle, bool(self._splits) and not active
        became_idle = self.idle and not was_idle
        if not active or min(active) <= self.last_emitted_ms:
            return WatermarkEmission(None, became_idle)
        self.last_emitted_ms = min(active)
        return WatermarkEmission(self.last_emitted_ms, became_idle)

    def _check(self, split: _Split, now_ns: int) -> None:
        idleness = split.idleness
        if idleness is not None:
            if split.idle or idleness.check_if_idle(now_ns):
                split.idle = True
                return
            self._want(self._point_from(idleness.next_check_ns(now_ns)))
        split.watermark_ms = max(split.watermark_ms, split.generator.watermark_ms())

    def _want(self, time_ns: int) -> None:
        if self.due_ns is None or time_ns < self.due_ns:
            self.due_ns = time_ns

    def _point_from(self, time_ns: int) -> int:
        """The first point of the grid at or after ``time_ns``."""
        return self._origin_ns - (self._origin_ns - time_ns) // self._interval_ns * self._interval_ns

    def generator_snapshot(self, split: str) -> int:
        """The value that ``add_split(restored=...)`` needs to continue ``split``."""
        return self._splits[split].generator.snapshot()

    def idleness_snapshot(self, split: str, now_ns: int) -> Idleness | None:
        """The value that ``restore_idleness`` needs to continue ``split``; ``None`` when idleness is not watched."""
        one = self._splits[split]
        return None if one.idleness is None else one.idleness.snapshot(one.idle, now_ns)

    def fingerprint(self, now_ns: int) -> object:
        return (
            self.last_emitted_ms,
            self.idle,
            None if self.due_ns is None else self.due_ns - now_ns,
            self.until_next_ns(now_ns),
            tuple(
                (name, split.generator.snapshot(), self.idleness_snapshot(name, now_ns))
                for name, split in self._splits.items()
            ),
        )
