"""Functions over the contents of a window that want more than the contents: state, side outputs, the clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from operators.windows.assigners import Window
    from state_backends.api import ListState, MapState, ReducingState, ValueState


class States(Protocol):
    """Keyed states by name; those of a user never meet those of the operator."""

    def value_state(self, name: str, default: Any = None) -> ValueState:
        """The value state ``name``."""

    def list_state(self, name: str) -> ListState:
        """The list state ``name``."""

    def reducing_state(self, name: str, reduce: Callable[[Any, Any], Any]) -> ReducingState:
        """The reducing state ``name``."""

    def map_state(self, name: str) -> MapState:
        """The map state ``name``."""


class WindowContext(Protocol):
    """What a window function may read about the present window (Flink: ``ProcessWindowFunction.Context``)."""

    @property
    def window(self) -> Window:
        """The window."""

    @property
    def current_watermark_ms(self) -> int:
        """Event time reached by the operator."""

    def processing_time_ms(self) -> int:
        """The virtual clock. Never the wall clock."""

    @property
    def window_state(self) -> States:
        """State of the key and window. Ask again in each call, and remove it in ``clear``.

        Raises ``TypeError`` for sessions: which window would it belong to once two have become one?
        """

    @property
    def global_state(self) -> States:
        """State of the key, the same in all windows; only the function clears it."""

    def side_output(self, tag: str, value: Any) -> None:
        """Send ``value`` to side output ``tag``, with the timestamp of the window."""


class ProcessWindowFunction:
    """A function over the contents of a key's window (Flink: ``ProcessWindowFunction``).

    After ``reduce`` or ``aggregate`` the contents are one element, the result. Every subtask and attempt works on its
    own shallow copy of the function, so attributes set in ``open`` are private to it; they are not state.
    """

    def open(self, ctx: WindowContext) -> None:
        """Called once before the first record; there is no key and no window yet."""

    def process(self, key: Any, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[Any] | None:
        """The records to emit for a window that fires; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process(key, ctx, elements)")

    def clear(self, ctx: WindowContext) -> None:
        """The window is cleaned up: remove what ``window_state`` holds."""

    def close(self) -> None:
        """Called once at the end, also after a failure."""


class ProcessAllWindowFunction:
    """The same for windows over all records, which have no key (Flink: ``ProcessAllWindowFunction``)."""

    def open(self, ctx: WindowContext) -> None:
        """Called once before the first record; there is no window yet."""

    def process(self, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[Any] | None:
        """The records to emit for a window that fires; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process(ctx, elements)")

    def clear(self, ctx: WindowContext) -> None:
        """The window is cleaned up: remove what ``window_state`` holds."""

    def close(self) -> None:
        """Called once at the end, also after a failure."""


class WithoutKey(ProcessWindowFunction):
    """A ``ProcessAllWindowFunction`` in the clothes of one with a key."""

    def __init__(self, function: ProcessAllWindowFunction) -> None:
        self._function = function

    def open(self, ctx: WindowContext) -> None:
        self._function.open(ctx)

    def process(self, key: Any, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[Any] | None:
        """Passed on without the key, which is the same for all records."""
        return self._function.process(ctx, elements)

    def clear(self, ctx: WindowContext) -> None:
        self._function.clear(ctx)

    def close(self) -> None:
        self._function.close()
