"""Background work, such as compaction, and the executors that decide when it is done.

A backend never starts a thread. It gives its work to an executor. :class:`InlineExecutor` does the work at once, which
is right when a backend is used alone. The engine's executor does it step by step, each step at a simulated time and
cost, so that records processed meanwhile meet a half-done compaction, as in a real system.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol


class BackgroundWork(ABC):
    """Work in bounded steps. What it changes becomes visible in its last step, at once.

    :ivar name: its description in traces
    """

    name: str

    @abstractmethod
    def step(self) -> int | None:
        """Do one bounded piece; returns the bytes read and written, or ``None`` when no work was left.

        :raises OSError: when the disk fails; no state has changed, and the work is over
        """

    @abstractmethod
    def cancel(self) -> None:
        """Give up: delete the files written. After the end, or a second time, it does nothing."""


class Executor(Protocol):
    """Does background work."""

    def submit(self, work: BackgroundWork) -> None:
        """Do it, now or later; work of one backend is done in the order of submission, one at a time."""


class InlineExecutor:
    """Does all work at once."""

    def submit(self, work: BackgroundWork) -> None:
        while work.step() is not None:
            pass
