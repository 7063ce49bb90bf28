"""The contexts that triggers, evictors and window functions get. The operator points them at a window before each
call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from operators.basic import KeyedStates, NamespacedStates, SideOutputs
from state_backends.api import KeyedStateBackend

if TYPE_CHECKING:
    from operators.windows.assigners import Window
    from operators.windows.triggered_windows import TriggeredWindowOperator

TRIGGER_PREFIX = "trigger."
FUNCTION_PREFIX = "function."
"""Prefixes of user-given names, so that these cannot collide with those of the operator or with each other."""


class TriggerCallContext(NamespacedStates):
    """The ``TriggerContext``, ``MergeContext`` and ``EvictorContext`` of one operator.

    ``namespace`` is the window in hand, ``merged`` are those that have just become part of it.
    """

    __slots__ = ("_operator", "merged")

    def __init__(self, operator: TriggeredWindowOperator, backend: KeyedStateBackend) -> None:
        super().__init__(backend, TRIGGER_PREFIX)
        self._operator = operator
        self.merged: Sequence[Any] = ()

    @property
    def current_watermark_ms(self) -> int:
        return self._operator.clock.watermark_ms

    def processing_time_ms(self) -> int:
        return self._operator.context.processing_time_ms()

    def register_event_time_timer(self, time_ms: int) -> None:
        self._operator.timers.event_time.add(self._backend.current_key, self.namespace, time_ms)

    def delete_event_time_timer(self, time_ms: int) -> None:
        self._operator.timers.event_time.delete(self._backend.current_key, self.namespace, time_ms)

    def register_processing_time_timer(self, time_ms: int) -> None:
        self._operator.timers.processing_time.add(self._backend.current_key, self.namespace, time_ms)

    def delete_processing_time_timer(self, time_ms: int) -> None:
        self._operator.timers.processing_time.delete(self._backend.current_key, self.namespace, time_ms)

    def merge_state(self, state: Any) -> None:
        merge: Callable[[Any, Sequence[Any]], None] | None = getattr(state, "merge_namespaces", None)
        if merge is None:
            raise TypeError("merge_state takes a list or reducing state: nothing says how values or maps become one")
        merge(self.namespace, self.merged)


class WindowCallContext:
    """The ``WindowContext`` of one operator."""

    __slots__ = ("_operator", "_states", "global_state", "side", "window")

    def __init__(self, operator: TriggeredWindowOperator, backend: KeyedStateBackend, *, merges: bool) -> None:
        self._operator = operator
        self._states = None if merges else NamespacedStates(backend, FUNCTION_PREFIX)
        self.global_state = KeyedStates(backend, FUNCTION_PREFIX)
        self.side = SideOutputs()
        self.window: Window

    def point_at(self, window: Window, namespace: Any) -> None:
        """The window in hand."""
        self.window = window
        if self._states is not None:
            self._states.namespace = namespace

    @property
    def current_watermark_ms(self) -> int:
        return self._operator.clock.watermark_ms

    def processing_time_ms(self) -> int:
        return self._operator.context.processing_time_ms()

    @property
    def window_state(self) -> NamespacedStates:
        if self._states is None:
            raise TypeError("sessions have no state per window, for windows become one; use global_state instead")
        return self._states

    def side_output(self, tag: str, value: Any) -> None:
        self.side.add(tag, value, self.window.max_timestamp)
