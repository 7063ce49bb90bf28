"""The world outside of a job, as the choices of a run decide it.

A number is drawn when it is first asked for, and kept. So a source that goes back to a checkpoint finds the same times
of arrival, and nothing is drawn twice. Numbers are drawn in blocks from streams of their own. So a run that is resumed
in another process draws the same ones, without those of all records before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from engine.elements.laws import DRAW_BOUND
from engine.runtime.kernel import ChoiceRecorder

_BLOCK = 1_024
_FIRST_AHEAD = 8


class DrawnWorld:
    """Implements :class:`engine.elements.outside_world.OutsideWorld` for one run."""

    def __init__(self, choices: ChoiceRecorder, began_ns: Callable[[], int]) -> None:
        self._choices = choices
        self._began_ns = began_ns
        self._drawn: dict[tuple[str, int], _Block] = {}

    @property
    def began_ns(self) -> int:
        return self._began_ns()

    def number(self, stream: str, index: int) -> int:
        """See the contract."""
        block, at = divmod(index, _BLOCK)
        drawn = self._drawn.get((stream, block))
        if drawn is None:
            drawn = self._drawn[stream, block] = _Block(self._choices, f"{stream} from {block * _BLOCK}")
        while len(drawn.numbers) <= at:
            drawn.draw()
        return drawn.numbers[at]


class _Block:
    """Numbers of one stream. Some are made ahead of the draws, which make choices of them."""

    __slots__ = ("_ahead", "_choices", "_stream", "numbers")

    def __init__(self, choices: ChoiceRecorder, stream: str) -> None:
        self._choices = choices
        self._stream = stream
        self._ahead: list[int] = []
        self.numbers = array("Q")

    def draw(self) -> None:
        """One more number."""
        if not self._ahead:
            made = self._choices.words_ahead(self._stream, max(_FIRST_AHEAD, len(self.numbers)))
            if made is None:
                self.numbers.append(self._choices.draw(self._stream, DRAW_BOUND))
                return
            made.reverse()
            self._ahead = made
        number = self._ahead.pop()
        self._choices.log.add(self._stream, number, DRAW_BOUND)
        self.numbers.append(number)
