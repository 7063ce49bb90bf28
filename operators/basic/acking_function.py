"""Functions that anchor, acknowledge and fail records themselves (Storm: ``IRichBolt`` with an ``OutputCollector``).

Rules (Storm: ``BoltOutputCollectorImpl``; the acker's are in :mod:`engine.protocols.acking`).

* A record counts as handled when the function acknowledges it, in the same call or in a later one.
* A record that is emitted is anchored to the record in hand, or to the named ones; with ``anchors=()`` to none: if it
  is lost it does not come again. It leaves at once, before the next line of the function.
* A failed record is sent again by its source. A record that is neither acknowledged nor failed times out.
* A record is settled once. A second acknowledgement, and an anchor that is settled, are errors: the tree may be
  complete by now, and nothing would track the new record.
* In modes with checkpoints the same function runs without acking. Records not yet settled are in the checkpoint and
  come again after a restore. ``fail`` fails the task, so that the job goes back to its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from engine.elements.batch import MIN_TIMESTAMP_MS, Batch
from engine.elements.errors import AcknowledgementError, WeirError, shorten
from engine.elements.operator import Operator
from operators.basic.functions import UserFunction, own_instance
from operators.basic.side_output import SideOutputs
from state_backends.base import anything, optional, row, whole


class RecordFailedError(WeirError):
    """A function has failed a record in a mode in which only going back to a checkpoint brings it again."""


class TrackedRecord:
    """A record given to an :class:`AckingFunction`, to be acknowledged or failed. ``value`` must not be changed."""

    __slots__ = ("claim", "number", "outcome", "timestamp_ms", "value")

    def __init__(self, value: Any, timestamp_ms: int | None, number: int, claim: Any) -> None:
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.number = number
        self.claim = claim
        self.outcome: str | None = None
        """``"acknowledged"`` or ``"failed"``; ``None`` while it is open."""

    def __repr__(self) -> str:
        return f"<record {shorten(self.value)}, {self.outcome or 'open'}>"


class AckingContext:
    """What an :class:`AckingFunction` may do."""

    def __init__(self, operator: AckingOperator) -> None:
        self._operator = operator
        self.side = SideOutputs()
        self.current_watermark_ms = MIN_TIMESTAMP_MS
        """Event time reached by this operator."""
        self.in_hand: TrackedRecord | None = None
        self.open_records: dict[int, TrackedRecord] = {}
        """Those that are not settled, by the order in which they came."""
        self._next = 0

    @property
    def is_tracked(self) -> bool:
        """Whether the run tracks records: mode ``acking``."""
        return self._operator.context.tracking is not None

    def processing_time_ms(self) -> int:
        """The virtual clock. Never the wall clock."""
        return self._operator.context.processing_time_ms()

    def side_output(self, tag: str, value: Any) -> None:
        """Add a record to side output ``tag``, anchored to the record in hand."""
        self.side.add(tag, value, self._in_hand().timestamp_ms)

    def emit(
        self, value: Any, *, anchors: Iterable[TrackedRecord] | None = None, timestamp_ms: int | None = None
    ) -> None:
        """Emit a record, anchored to the record in hand, or to ``anchors``; ``()``: to none. Its timestamp is that of
        the record in hand, if none is given."""
        in_hand = self._in_hand()
        chosen = [in_hand] if anchors is None else self._checked(anchors)
        for one in chosen:
            self._refuse_settled(one, "anchor a record to it", "emit before you settle it, or leave it out of anchors=")
        stamp = in_hand.timestamp_ms if timestamp_ms is None else timestamp_ms
        batch = Batch([value], None if stamp is None else [stamp])
        self.emit_for(chosen, partial(self._operator.output.emit, batch))

    def emit_for(self, anchors: list[TrackedRecord], emit: Any) -> None:
        """Call ``emit``, anchored."""
        tracking = self._operator.context.tracking
        if tracking is None:
            emit()
        else:
            tracking.emit_for([one.claim for one in anchors], emit)

    def ack(self, record: TrackedRecord) -> None:
        """The record is handled."""
        self._settle(record, "acknowledged")
        tracking = self._operator.context.tracking
        if tracking is not None:
            tracking.acknowledge(record.claim)

    def fail(self, record: TrackedRecord) -> None:
        """The record cannot be handled now: it has to come again."""
        self._settle(record, "failed")
        tracking = self._operator.context.tracking
        if tracking is None:
            raise RecordFailedError(
                f"the function failed {record.value!r}\n"
                "  without acking only a restart from a checkpoint brings it again: run the job with mode acking,"
                " or send the record to a side output"
            )
        tracking.fail(record.claim)

    def reset_timeout(self, record: TrackedRecord) -> None:
        """The record takes long: its timeout begins anew."""
        (checked,) = self._checked((record,))
        self._refuse_settled(checked, "restart its timeout", "leave this call out")
        tracking = self._operator.context.tracking
        if tracking is not None:
            tracking.restart_timeout(record.claim)

    # -- records --------------------------------------------------------------------------------------------------

    def take(self, value: Any, timestamp_ms: int | None) -> TrackedRecord:
        """The next record, claimed."""
        tracking = self._operator.context.tracking
        record = TrackedRecord(value, timestamp_ms, self._next, None if tracking is None else tracking.claim())
        self.open_records[record.number] = record
        self._next += 1
        return record

    def _in_hand(self) -> TrackedRecord:
        if self.in_hand is None:
            raise self._wrong("it cannot emit without a record in hand\n  emit in process_element()")
        return self.in_hand

    def _wrong(self, what: str) -> AcknowledgementError:
        return AcknowledgementError(f"the function of operator {self._operator.context.name!r}: {what}")

    def _settle(self, record: TrackedRecord, outcome: str) -> None:
        (checked,) = self._checked((record,))
        self._refuse_settled(checked, f"settle it as {outcome}", "settle each record once")
        checked.outcome = outcome
        del self.open_records[checked.number]

    def _refuse_settled(self, record: TrackedRecord, what: str, fix: str) -> None:
        if record.outcome is not None:
            raise self._wrong(
                f"record {shorten(record.value)} was {record.outcome} before, and its tree may be finished:"
                f" the function cannot {what}\n  {fix}"
            )

    def _checked(self, records: Iterable[TrackedRecord]) -> list[TrackedRecord]:
        # A function may pass anything.
        if not isinstance(records, Iterable):
            raise self._wrong(f"anchors is {shorten(records)}\n  it takes a list of records: write anchors=[record]")
        chosen = list(records)
        for one in chosen:
            if not self._knows(one):
                raise self._wrong(
                    f"{shorten(one)} is no record that this subtask was given\n"
                    "  pass records that process_element() got, not their values, and not those of another subtask"
                )
        return chosen

    def _knows(self, one: object) -> bool:
        if not isinstance(one, TrackedRecord):
            return False
        return one.outcome is not None or self.open_records.get(one.number) is one


class AckingFunction(UserFunction):
    """A function that says itself which records it has handled, and what its output depends on::

        class Pairs(AckingFunction):
            def open(self, ctx):
                self.first = None

            def process_element(self, record, ctx):
                if self.first is None:
                    self.first = record
                    return
                ctx.emit((self.first.value, record.value), anchors=[self.first, record])
                ctx.ack(self.first)
                ctx.ack(record)
                self.first = None
    """

    def open(self, ctx: AckingContext) -> None:
        """Called once before the first record."""

    def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
        """Handle a record; emit, acknowledge and fail through ``ctx``."""
        raise TypeError(f"{type(self).__name__} does not define process_element(record, ctx)")


def is_acking(function: object) -> bool:
    """Whether this is an :class:`AckingFunction`, or the class of one."""
    return isinstance(function, AckingFunction) or (
        isinstance(function, type) and issubclass(function, AckingFunction)
    )


class AckingOperator(Operator):
    """An :class:`AckingFunction` over a stream without keys."""

    def __init__(self, function: AckingFunction | type[AckingFunction]) -> None:
        self.function = own_instance(function)

    def initialize_state(self) -> None:
        shape = row(anything, optional(whole))
        self._state = self.context.operator_backend().list_state("open-records", shape)

    def open(self) -> None:
        self._ctx = AckingContext(self)
        self.function.open(self._ctx)
        for value, timestamp_ms in list(self._state.get()):
            self._process(value, timestamp_ms)

    def process_batch(self, batch: Batch) -> None:
        stamps = batch.timestamps
        for index, value in enumerate(batch.values):
            self._process(value, None if stamps is None else stamps[index])

    def _process(self, value: Any, timestamp_ms: int | None) -> None:
        ctx = self._ctx
        ctx.in_hand = record = ctx.take(value, timestamp_ms)
        try:
            process: Callable[[TrackedRecord, AckingContext], object] = self.function.process_element
            produced = process(record, ctx)
            if produced is not None:
                raise AcknowledgementError(
                    f"process_element() of operator {self.context.name!r} returned {shorten(produced)}\n"
                    "  emit records with ctx.emit(value)"
                )
        except AcknowledgementError as error:
            raise AcknowledgementError(f"{error}\n  record  {shorten(value)}") from error
        except Exception as error:
            raise self.user_error("acking function", value, error) from error
        ctx.side.flush(self.output)
        ctx.in_hand = None

    def process_watermark(self, timestamp_ms: int) -> None:
        self._ctx.current_watermark_ms = timestamp_ms
        self.output.emit_watermark(timestamp_ms)

    def snapshot_state(self, checkpoint_id: int) -> None:
        # Otherwise records that wait in the function are lost with it.
        self._state.update([(one.value, one.timestamp_ms) for one in self._ctx.open_records.values()])

    def close(self) -> None:
        self.function.close()

    def fingerprint(self) -> object:
        waiting = [repr((one.value, one.timestamp_ms)) for one in self._ctx.open_records.values()]
        return self._ctx.current_watermark_ms, tuple(waiting)
