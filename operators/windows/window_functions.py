"""Functions over the contents of a window with access to state, side outputs and the clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from operators.basic import Clocks, NamedStates, UserFunction

if TYPE_CHECKING:
    from operators.windows.assigners import Window


class WindowContext(Clocks, Protocol):
    """The context of a window function (Flink: ``ProcessWindowFunction.Context``)."""

    @property
    def window(self) -> Window:
        """The window."""

    @property
    def window_state(self) -> NamedStates:
        """State of the key and window. Get it again in each call, and remove it in ``clear``.

        Raises ``TypeError`` for sessions: after a merge it would be unclear which window it belongs to.
        """

    @property
    def global_state(self) -> NamedStates:
        """State of the key, the same in all windows; only the function clears it."""

    def side_output(self, tag: str, value: Any) -> None:
        """Send ``value`` to side output ``tag``, with the timestamp of the window."""


class ProcessWindowFunction(UserFunction):
    """A function over the contents of a key's window (Flink: ``ProcessWindowFunction``).

    After ``reduce`` or ``aggregate`` the contents are one element, the result.
    """

    def open(self, ctx: WindowContext) -> None:
        """Called once before the first record; there is no key and no window yet."""

    def process(self, key: Any, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[Any] | None:
        """The records to emit for a window that fires; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process(key, ctx, elements)")

    def clear(self, ctx: WindowContext) -> None:
        """The window is cleaned up: remove what ``window_state`` holds."""


class ProcessAllWindowFunction(UserFunction):
    """The same for windows over all records, which have no key (Flink: ``ProcessAllWindowFunction``)."""

    def open(self, ctx: WindowContext) -> None:
        """Called once before the first record; there is no window yet."""

    def process(self, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[Any] | None:
        """The records to emit for a window that fires; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process(ctx, elements)")

    def clear(self, ctx: WindowContext) -> None:
        """The window is cleaned up: remove what ``window_state`` holds."""
