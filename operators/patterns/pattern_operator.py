"""Patterns over the records of each key, in the order of event time (Flink: ``CepOperator``).

Rules.

* A record waits until the watermark has reached its time. Then the records of each time are handled in order: by
  ``order_by``, then by arrival.
* If the watermark has already reached a record's time, the record is late: it goes to the side output for late records,
  or is dropped and counted (``numLateRecordsDropped``).
* Partial matches that end at some time are timed out before the records of that time. Each has a timer, in case no
  record follows. A match carries the time of its last record, a timed-out partial match the time of its end.
* By processing time (``event_time=False``) records are handled as they come, and time is the virtual clock.
* A restore with another pattern under the same uid is refused: partial matches refer to stages by number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial as bind
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobChangedError, shorten
from engine.elements.operator import Operator
from operators.basic import KeyedProcessContext, KeyedProcessFunction, KeyedProcessOperator
from operators.patterns.nfa import Match, Nfa, State
from operators.patterns.sequence import Pattern
from operators.time import missing_timestamps

_SPEC = "pattern-spec"


class PatternFunction(KeyedProcessFunction):
    """The automaton of each key in its state."""

    def __init__(
        self,
        pattern: Pattern,
        event_time: bool,
        order_by: Callable[[Any], Any] | None,
        late_tag: str | None,
        timeout_tag: str | None,
    ) -> None:
        self._nfa = Nfa(pattern)
        self._within_ms = pattern.within_ms
        self.event_time = event_time
        self._order_by = order_by
        self._late_tag = late_tag
        self._timeout_tag = timeout_tag
        self.operator: Operator

    def open(self, ctx: KeyedProcessContext) -> None:
        """Declare state: the waiting records, by time, and the automaton."""
        self._waiting = ctx.map_state("waiting")
        self._state = ctx.value_state("automaton")

    def process_element(self, value: Any, ctx: KeyedProcessContext) -> list[Match] | None:
        """By event time a record waits."""
        if not self.event_time:
            return self._handle([value], ctx.processing_time_ms(), ctx)
        time_ms = ctx.timestamp_ms
        assert time_ms is not None, "the operator refuses records without event times"
        if time_ms <= ctx.current_watermark_ms:
            if self._late_tag is not None:
                ctx.side_output(self._late_tag, value)
            else:
                self.operator.context.metrics.count("numLateRecordsDropped")
            return None
        self._waiting.put(time_ms, [*(self._waiting.get(time_ms) or ()), value])
        ctx.register_event_time_timer(time_ms)
        return None

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> list[Match]:
        """Event time has reached waiting records, or the end of a partial match."""
        values = self._waiting.get(timestamp_ms) or []
        if values:
            self._waiting.remove(timestamp_ms)
        if self._order_by is not None:
            values = sorted(values, key=self._order_by)
        return self._handle(values, timestamp_ms, ctx)

    def _handle(self, values: list[Any], time_ms: int, ctx: KeyedProcessContext) -> list[Match]:
        before = State.of(self._state.get())
        state, timed_out = self._nfa.on_time(before, time_ms)
        matches: list[Match] = []
        for value in values:
            state, found, late = self._nfa.on_record(state, value, time_ms)
            assert not late, "time does not pass between records of the same time"
            matches += found
        if state.partials or before.partials:
            # Without partial matches the numbers have no meaning, so such a key needs no state.
            self._state.update(state.plain() if state.partials else None)
        if self._within_ms is not None and any(one.start_ms == time_ms for one in state.partials):
            register = ctx.register_event_time_timer if self.event_time else ctx.register_processing_time_timer
            register(time_ms + self._within_ms)
        if self._timeout_tag is not None:
            for _, match in timed_out:
                ctx.side_output(self._timeout_tag, match)
        return matches


class PatternOperator(KeyedProcessOperator):
    """A ``PatternFunction``, and the pattern that its state belongs to."""

    def __init__(self, pattern: Pattern, function: PatternFunction) -> None:
        super().__init__(function)
        self._text = pattern.text()
        assert isinstance(self.function, PatternFunction)
        self.function.operator = self
        self._needs_timestamps = self.function.event_time

    def initialize_state(self) -> None:
        super().initialize_state()
        self._spec_state = self.context.operator_backend().union_list_state(_SPEC)
        for text in self._spec_state.get():
            if text != self._text:
                raise JobChangedError(
                    f"operator {self.context.name!r} has the pattern\n    {self._text}\n"
                    f"  its checkpoint has\n    {text}\n"
                    "  restore with the pattern as it was, or give the operator another uid to begin anew"
                )

    def process_batch(self, batch: Batch) -> None:
        if batch and batch.timestamps is None and self._needs_timestamps:
            raise missing_timestamps(self)
        super().process_batch(batch)

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._spec_state.update([self._text])


def pattern_operator(
    pattern: Pattern,
    event_time: bool,
    order_by: Callable[[Any], Any] | None,
    late_tag: str | None,
    timeout_tag: str | None,
) -> Callable[[], PatternOperator]:
    """The factory of operators of ``KeyedStream.pattern``. Raises :class:`ConfigurationError` for invalid options and
    options without effect."""
    if timeout_tag is not None and pattern.within_ms is None:
        raise ConfigurationError(
            f"pattern: nothing would ever go to timeout_tag={timeout_tag!r}, for nothing runs out of time\n"
            "  fix: give the pattern a within(ms), or leave the tag out"
        )
    if order_by is not None and not callable(order_by):
        raise ConfigurationError(f"pattern: order_by takes a function of the record, got {shorten(order_by)}")
    for name, value in (("late_tag", late_tag), ("order_by", order_by)):
        if value is not None and not event_time:
            raise ConfigurationError(
                f"pattern: {name}= is for event time; with event_time=False records are taken as they come\n"
                f"  fix: leave {name}= out, or event_time=False"
            )
    return bind(PatternOperator, pattern, PatternFunction(pattern, event_time, order_by, late_tag, timeout_tag))
