"""The timers of one task, without the task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engine.runtime.kernel import Kernel, nothing_around
from engine.runtime.tasks.task_timers import TaskTimers


class FakeTask:
    """The parts of a task that timers use; its clock is ``skew_ns`` ahead of the kernel's."""

    def __init__(self, skew_ns: int = 0) -> None:
        self.kernel = Kernel()
        self.is_running = True
        self.fired: list[tuple[int, int]] = []
        self.asked: list[int] = []
        self.is_mortal = False
        """Whether it dies of the next timer."""
        place = SimpleNamespace(kernel=self.kernel, around=nothing_around, clock=self)
        parts: Any = (place, self, self)
        self.timers = TaskTimers(self, *parts)
        self._skew_ns = skew_ns
        self._start_ns = self.kernel.now_ns

    def clock_ns(self) -> int:
        """What the task's own clock shows."""
        return self.kernel.now_ns + self._skew_ns

    def receive_mail(self, mail: tuple[str, tuple[Any, ...]]) -> None:
        self.asked.append(self.kernel.now_ns - self._start_ns)
        self.timers.fire_timers(*mail[1])

    def timer_fires(self, position: int, time_ns: int) -> None:
        self.fired.append((time_ns - self._start_ns, self.kernel.now_ns - self._start_ns))
        self.is_running = not self.is_mortal

    def register(self, after_ns: int, position: int = 0) -> None:
        """Ask for a timer that is due ``after_ns`` after the beginning, by the kernel's clock."""
        self.timers.register(self._start_ns + after_ns, position)


def test_a_timer_asked_for_twice_fires_once() -> None:
    """The same time for the same operator is one timer and one wake-up; for another operator it is another."""
    task = FakeTask()
    for position in (0, 0, 1):
        task.register(5, position)
    task.kernel.run()

    assert task.fired == [(5, 5), (5, 5)]
    assert task.asked == [5, 5]


def test_a_timer_may_be_asked_for_again_once_it_has_fired() -> None:
    """A timer that has fired is forgotten."""
    task = FakeTask()
    task.register(5)
    task.kernel.run()
    task.register(5)
    task.kernel.run()

    assert task.fired == [(5, 5), (5, 5)]


def test_behind_the_end_no_timer_is_taken() -> None:
    """Timers registered before the end are forgotten, those registered after it are not taken."""
    task = FakeTask()
    task.register(5)
    task.timers.quiesce()
    task.register(7)
    task.kernel.run()

    assert (task.fired, task.asked) == ([], [5])


def test_a_silenced_timer_fires_no_more_and_may_be_taken_again() -> None:
    """The registration is removed, though its wake-up still comes."""
    task = FakeTask()
    task.register(5)
    task.timers.silence()
    task.register(7)
    task.register(5)
    task.kernel.run()

    assert [due for due, _ in task.fired] == [5, 7]

    task.register(9)
    task.timers.silence()
    task.kernel.run()
    assert len(task.fired) == 2


def test_how_long_it_takes_goes_by_the_clock_of_the_task() -> None:
    """A clock that is ahead makes a timer come that much sooner, and never before now."""
    task = FakeTask(skew_ns=3)
    task.register(5)
    task.register(1, position=1)
    task.kernel.run()

    assert task.fired == [(3, 0), (5, 2)]


def test_a_task_that_dies_of_a_timer_fires_no_other() -> None:
    """Timers due at the same time do not fire after the first of them has killed the task."""
    task = FakeTask()
    task.is_mortal = True
    task.register(5, 0)
    task.register(5, 1)
    task.kernel.run()

    assert len(task.fired) == 1


def test_a_clock_that_is_set_back_makes_no_timer_due_early() -> None:
    """A timer fires at its instant by the clock it was set with; otherwise a timer in each call would never end."""
    task = FakeTask()
    task.register(5)
    task._skew_ns = -1_000
    task.register(-990)
    task.kernel.run()

    assert task.fired == [(5, 5), (-990, 10)]
