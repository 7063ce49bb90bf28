"""The world outside of a job, as the choices of a run decide it.

A number is drawn when it is first asked for, and kept. So a source that goes back to a checkpoint finds the same times
of arrival, and nothing is drawn twice. Numbers are drawn in blocks from streams of their own. So a run that is resumed
in another process draws the same ones, without those of all records before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from engine.elements.laws import DRAW_BOUND

_BLOCK = 1_024


class DrawnWorld:
    """Implements :class:`engine.elements.outside_world.OutsideWorld` for one run. ``draw``: of its choices."""

    def __init__(self, draw: Callable[[str, int], int], began_ns: Callable[[], int]) -> None:
        self._draw = draw
        self._began_ns = began_ns
        self._drawn: dict[tuple[str, int], array[int]] = {}

    @property
    def began_ns(self) -> int:
        return self._began_ns()

    def number(self, stream: str, index: int) -> int:
        """See the contract."""
        block, at = divmod(index, _BLOCK)
        drawn = self._drawn.get((stream, block))
        if drawn is None:
            drawn = self._drawn[stream, block] = array("Q")
        while len(drawn) <= at:
            drawn.append(self._draw(f"{stream} from {block * _BLOCK}", DRAW_BOUND))
        return drawn[at]
