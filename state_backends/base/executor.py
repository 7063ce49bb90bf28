"""Background work, such as compaction: what it is, and who says when it is done.

A backend never starts a thread. It hands its work to an executor: :class:`InlineExecutor` does it on the spot, which
is right when a backend is used alone; the engine has one that does it step by step, each step at a simulated time and
cost, so that what is processed meanwhile meets a half-done compaction as it would in earnest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol


class BackgroundWork(ABC):
    """Work in bounded steps. What it changes becomes visible in its last step, at once.

    :ivar name: for traces: what it is about
    """

    name: str

    @abstractmethod
    def step(self) -> int | None:
        """Do one bounded piece: the bytes it has read and written, or ``None`` when nothing was left to do.

        :raises OSError: when the disk refuses; nothing has changed, and the work is over
        """

    @abstractmethod
    def cancel(self) -> None:
        """Give up: what was written is deleted. After the end, or a second time, it does nothing."""


class Executor(Protocol):
    """Who does background work."""

    def submit(self, work: BackgroundWork) -> None:
        """Do it, now or later; work of one backend is done in the order of submission, one at a time."""


class InlineExecutor:
    """Does all work on the spot."""

    def submit(self, work: BackgroundWork) -> None:
        while work.step() is not None:
            pass
