"""When the next periodic checkpoint is due.

There is one planned time. When it comes, it moves on by one interval: no drift, no coupling to completions. While any
source works off a backlog the interval is another one, perhaps none. When that changes, the plan becomes earlier if
the new interval asks for it, never later (Flink: ``rescheduleTrigger``).
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.checkpoint.coordinator.coordinator_messages import ArmPeriodicTimer, DisarmPeriodicTimer, Out, TaskId


class PeriodicSchedule:
    """The periodic timer; see the rules at the top of the module.

    ``interval_ns``          time between two periodic triggers, ``None`` = there are none;
    ``backlog_interval_ns``  the same while a source works off a backlog.
    """

    def __init__(self, interval_ns: int | None, backlog_interval_ns: int | None) -> None:
        self._usual_ns = interval_ns
        self._backlog_ns = backlog_interval_ns
        self._in_backlog: dict[TaskId, None] = {}
        self._planned_ns: int | None = None
        self.is_running = False
        """Whether periodic checkpoints are being taken."""

    @property
    def _interval_ns(self) -> int | None:
        return self._backlog_ns if self._in_backlog else self._usual_ns

    def start(self, now_ns: int, first_delay_ns: int | None, out: Out) -> None:
        """All tasks run: fire after ``first_delay_ns``, by default after one interval."""
        self.is_running = True
        interval_ns = self._interval_ns
        if interval_ns is not None:
            self._arm(now_ns + (interval_ns if first_delay_ns is None else first_delay_ns), out)

    def stop(self, out: Out) -> None:
        """No periodic checkpoint is taken any more."""
        self.is_running = False
        if self._planned_ns is not None:
            self._planned_ns = None
            out.append(DisarmPeriodicTimer())

    def fire(self, now_ns: int, out: Out) -> bool:
        """The timer has fired; whether a checkpoint is due. The driver may be late with a timer that was moved."""
        if self._planned_ns is None or now_ns < self._planned_ns:
            return False
        interval_ns = self._interval_ns
        if interval_ns is None:
            self._planned_ns = None
        else:
            # From the planned time, not from now: a late timer must not shift all later ones
            # (test_first_firing_comes_after_one_interval_and_firings_do_not_drift).
            self._arm(self._planned_ns + interval_ns, out)
        return True

    def postpone(self, at_ns: int, out: Out) -> None:
        """A request came too early after a completion: fire at ``at_ns`` instead."""
        # With an interval in records there is no timer to be moved (test_pause_without_a_timer_arms_none).
        if self.is_running and self._usual_ns is not None:
            self._arm(at_ns, out)

    def on_backlog(self, source: TaskId, is_backlog: bool, now_ns: int, out: Out) -> None:
        """A source has begun, or ended, to work off a backlog."""
        if is_backlog:
            self._in_backlog[source] = None
        else:
            self._in_backlog.pop(source, None)
        interval_ns = self._interval_ns
        if interval_ns is not None and self.is_running:
            at_ns = now_ns + interval_ns
            # Never later: sources that change often would put off checkpoints for ever
            # (test_a_backlog_slows_the_schedule_down).
            if self._planned_ns is None or at_ns < self._planned_ns:
                self._arm(at_ns, out)

    def forget_backlog(self, tasks: Iterable[TaskId]) -> None:
        """These tasks are deployed anew; each source among them reports its backlog again."""
        for task in tasks:
            self._in_backlog.pop(task, None)

    def _arm(self, at_ns: int, out: Out) -> None:
        self._planned_ns = at_ns
        out.append(ArmPeriodicTimer(at_ns))

    def validate(self) -> None:
        """Assert the invariants."""
        assert self._planned_ns is None or self.is_running, self._planned_ns

    def undisturbed_fingerprint(self) -> tuple[object, ...]:
        """Without the planned time."""
        return (self.is_running, tuple(sorted(self._in_backlog)))

    def fingerprint(self, now_ns: int) -> tuple[object, ...]:
        """All state that decides what happens next; times relative to ``now_ns``."""
        return (*self.undisturbed_fingerprint(), self._planned_ns and self._planned_ns - now_ns)
