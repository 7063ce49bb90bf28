"""What is outside of the job and goes on while the job is down: its clock, and what chance decides there."""

from __future__ import annotations

from typing import Protocol


class OutsideWorld(Protocol):
    """Outside of the job. A restart changes nothing in it."""

    @property
    def began_ns(self) -> int:
        """Virtual time at which the run began."""

    def number(self, stream: str, index: int) -> int:
        """The ``index``-th number of a named stream, below :data:`engine.elements.laws.DRAW_BOUND`. It is drawn once:
        the next attempt finds the same one, and so does a resumed run with the same seed."""
