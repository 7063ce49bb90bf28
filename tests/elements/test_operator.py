"""The operator base: what an operator that overrides nothing does, so that subclasses state only differences."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.elements.batch import Batch
from engine.elements.errors import KeyTypeMismatchError, UserFunctionError
from engine.elements.operator import Operator
from state_backends.base import KeyTypeError


class Recorded:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def emit(self, batch: Batch) -> None:
        self.calls.append(("emit", batch))

    def emit_watermark(self, timestamp_ms: int) -> None:
        self.calls.append(("watermark", timestamp_ms))

    def emit_watermark_status(self, idle: bool) -> None:
        self.calls.append(("status", idle))

    def emit_side(self, tag: str, batch: Batch) -> None:
        self.calls.append((tag, batch))


def set_up(operator: Operator) -> Recorded:
    """Give the operator an output and a context with nothing but names."""
    output = Recorded()
    operator.setup(SimpleNamespace(name="parse", attempt=2), output)
    return output


def test_watermarks_and_idleness_pass_through() -> None:
    """An operator that does not care about time forwards it."""
    operator = Operator()
    output = set_up(operator)

    operator.process_watermark(5)
    operator.process_watermark_status(True)

    assert output.calls == [("watermark", 5), ("status", True)]


def test_records_are_not_swallowed_by_the_base() -> None:
    """An operator without ``process_batch`` refuses records instead of losing them."""
    operator = Operator()
    set_up(operator)

    with pytest.raises(TypeError, match="Operator takes no records"):
        operator.process_batch(Batch([1]))


def test_timers_come_in_milliseconds_unless_asked_for_finer() -> None:
    """``on_processing_time_ns`` falls back on the form in ms, rounded down."""
    fired: list[int] = []

    class Timed(Operator):
        def on_processing_time(self, time_ms: int) -> None:
            fired.append(time_ms)

    Timed().on_processing_time_ns(7_999_999)

    assert fired == [7]


def test_the_life_cycle_has_harmless_defaults() -> None:
    """All other steps may be called on the base and do nothing."""
    operator = Operator()
    output = set_up(operator)

    operator.initialize_state()
    operator.open()
    operator.prepare_snapshot_pre_barrier(1)
    operator.snapshot_state(1)
    operator.notify_checkpoint_complete(1)
    operator.notify_checkpoint_aborted(1)
    operator.finish()
    operator.close()

    assert operator.fingerprint() is None
    assert output.calls == []


def test_user_error_names_operator_and_attempt() -> None:
    """``user_error`` fills in what the context knows."""
    operator = Operator()
    set_up(operator)

    error = operator.user_error("map function", 5, KeyError("k"))

    assert isinstance(error, UserFunctionError)
    assert (error.operator, error.attempt, error.record) == ("parse", 2, 5)


def test_a_key_that_state_refuses_is_no_fault_of_the_function() -> None:
    """With one receiver a key too wide for its type is found by the state, below the user's function."""
    operator = Operator()
    set_up(operator)

    error = operator.user_error("reduce function", 2**40, KeyTypeError("key 1099511627776 does not fit"))

    assert isinstance(error, KeyTypeMismatchError)
    assert str(error).startswith("operator 'parse' got a key of the wrong type: key 1099511627776 does not fit\n")
