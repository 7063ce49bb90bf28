"""Buffer debloating: a task asks for no more records in flight than it can handle in a given time.

Records queued in front of a task are time that a barrier has to wait (aligned), or data that a checkpoint has to store
(unaligned). So every period each task measures its throughput and sets the credit of its inputs accordingly (Flink:
``BufferDebloater``, ``BufferSizeEMA`` and ``ThroughputCalculator``, FLIP-183).

Rules.
1. Throughput is the number of records taken, divided by the time in which the inputs held any. Time in which the task
   waited for its own outputs counts: a task that is held back is slow, whatever the reason. A period without any such
   time gives no measurement, and changes nothing (Flink goes on with the last throughput, which may have been that of
   a few records).
2. Desired is throughput x target, divided by the number of channels that hold records now. It does not look at the
   rate of each single channel: inputs of very different rates mislead it, as in Flink.
3. The desired credit is smoothed (exponential moving average over ``samples`` periods; one step aims at no more than
   twice the present value, so that it grows no faster than it shrinks) and kept between ``min_records`` and the
   configured credit. It is computed in thousandths of a record, because small whole numbers would never grow.
4. The inputs are told only when the change is at least ``threshold_percent`` of the credit they have, or reaches one of
   the two bounds. So the credit settles near the desired value: with 25 %, up to a third above it when it has shrunk,
   and up to a fifth below it when it has grown (Flink's rule does the same, period by period).
5. Credit is never taken back: a channel that holds more than it should gets nothing new until it holds less.
6. A task that has nothing to read for a whole period has no further periods until there is something again. They then
   go on at the instants at which they would have ended anyway. A job in which nothing moves has nothing left to do, so
   a stall can be told from work (Flink's timer goes on for ever).

Flink counts in bytes and resizes buffers; here credit is counted in records.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.runtime.channels.channel import Channel
from engine.runtime.config import DebloatSettings
from engine.runtime.kernel import Kernel

_THOUSANDTHS = 1_000


class ThroughputMeter:
    """How fast a task takes records while there are any (Flink: ``ThroughputCalculator``).

    It is told when the inputs run empty and when they are not empty any more; see rule 1.
    """

    __slots__ = ("_busy_ns", "_busy_since_ns")

    def __init__(self) -> None:
        self._busy_since_ns: int | None = None
        self._busy_ns = 0

    def input_idle(self, now_ns: int) -> None:
        """The inputs are empty; may be said repeatedly."""
        if self._busy_since_ns is not None:
            self._busy_ns += now_ns - self._busy_since_ns
            self._busy_since_ns = None

    def input_available(self, now_ns: int) -> None:
        """The inputs hold something; may be said repeatedly."""
        if self._busy_since_ns is None:
            self._busy_since_ns = now_ns

    @property
    def is_idle(self) -> bool:
        """Whether the inputs are empty."""
        return self._busy_since_ns is None

    def records_within(self, time_ns: int, records: int, now_ns: int) -> int | None:
        """A period in which the task took ``records`` is over: how many it would take in ``time_ns`` of work.
        ``None`` when there was no work."""
        if self._busy_since_ns is not None:
            self._busy_ns += now_ns - self._busy_since_ns
            self._busy_since_ns = now_ns
        busy_ns, self._busy_ns = self._busy_ns, 0
        return records * time_ns // busy_ns if busy_ns else None

    def fingerprint(self, now_ns: int) -> object:
        """The measurements, relative to now."""
        since = self._busy_since_ns
        return (None if since is None else now_ns - since, self._busy_ns)


class CreditCalculator:
    """The credit of each input channel of one task (Flink: ``BufferDebloater`` with its ``BufferSizeEMA``)."""

    __slots__ = ("_average", "_most", "_settings", "credit")

    def __init__(self, settings: DebloatSettings, configured: int) -> None:
        """``configured``: the credit to begin with, which is also the most there ever is."""
        assert settings.min_records <= configured, (settings, configured)
        self._settings = settings
        self._most = configured
        self._average = configured * _THOUSANDTHS
        self.credit = configured

    def recalculate(self, desired_records: int, channels_in_use: int) -> int | None:
        """The new credit per channel when ``desired_records`` are to be in flight on ``channels_in_use`` channels
        together; ``None`` when it should stay as it is. See rules 3 and 4."""
        assert desired_records >= 0, desired_records
        assert channels_in_use >= 1, channels_in_use
        settings, least, most = self._settings, self._settings.min_records, self._most
        aim = min(desired_records * _THOUSANDTHS // channels_in_use, 2 * self._average)
        average = (self._average * (settings.samples - 1) + 2 * aim) // (settings.samples + 1)
        self._average = min(max(average, least * _THOUSANDTHS), most * _THOUSANDTHS)
        credit = self._average // _THOUSANDTHS
        if credit == self.credit:
            return None
        changed_percent = abs(credit - self.credit) * 100
        if least < credit < most and changed_percent < self.credit * settings.threshold_percent:
            return None
        self.credit = credit
        return credit

    def validate(self) -> None:
        assert self._settings.min_records <= self.credit <= self._most, self.credit

    def fingerprint(self) -> object:
        return (self.credit, self._average)


class TaskDebloater:
    """Sets the credit of the input channels of one task, period by period."""

    __slots__ = ("_calculator", "_channels", "_due_ns", "_kernel", "_meter", "_received", "_task", "rests", "settings")

    def __init__(self, settings: DebloatSettings, kernel: Kernel, channels: Sequence[Channel], task: object) -> None:
        """``channels``: those whose credit may change, at least one; they have the same credit now. ``task`` hears by
        mail that a period is over."""
        assert channels, "there is no input to keep short"
        self.settings = settings
        self._kernel = kernel
        self._task = task
        self._channels = tuple(channels)
        self._calculator = CreditCalculator(settings, channels[0].input_credit)
        self._meter = ThroughputMeter()
        self._received = 0
        self._due_ns = kernel.now_ns
        self.rests = False
        """Whether no period runs, so that the task waits for no end of one; see rule 6."""

    def input_idle(self) -> None:
        """The task found nothing to read."""
        self._meter.input_idle(self._kernel.now_ns)

    def input_available(self) -> None:
        """There is something to read again."""
        self._meter.input_available(self._kernel.now_ns)
        if self.rests:
            self.begin_period()

    def begin_period(self) -> None:
        """A period begins; the task hears of its end."""
        self._kernel.schedule(self.next_period(), "receive_mail", self._task, ("debloat", ()))

    def debloat(self) -> None:
        """A period is over (mail)."""
        self.period_over()
        if not self.rests:
            self.begin_period()

    def next_period(self) -> int:
        """Begin a period that the task waits for; returns when it ends."""
        self.rests = False
        period_ns, now = self.settings.period_ns, self._kernel.now_ns
        self._due_ns += ((now - self._due_ns) // period_ns + 1) * period_ns
        return self._due_ns

    def period_over(self) -> None:
        """Measure, and change the credit of the inputs if that is worth it."""
        received = sum(channel.received_records for channel in self._channels)
        taken, self._received = received - self._received, received
        desired = self._meter.records_within(self.settings.target_ns, taken, self._kernel.now_ns)
        if desired is None:
            self.rests = self._meter.is_idle
            return
        in_use = sum(1 for channel in self._channels if channel.occupied)
        credit = self._calculator.recalculate(desired, max(1, in_use))
        if credit is not None:
            for channel in self._channels:
                channel.set_credit(credit)

    def validate(self) -> None:
        """Assert that the channels have the credit that was computed."""
        self._calculator.validate()
        for channel in self._channels:
            assert channel.input_credit == self._calculator.credit, (channel.name, channel.input_credit)

    def fingerprint(self) -> object:
        received = sum(channel.received_records for channel in self._channels) - self._received
        now = self._kernel.now_ns
        phase_ns = (now - self._due_ns) % self.settings.period_ns
        return (self._calculator.fingerprint(), self._meter.fingerprint(now), received, self.rests, phase_ns)
