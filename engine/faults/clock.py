"""Faults of time: task clocks that are off or jump, slow tasks, sources without input, late watermarks.

Only the *processing-time clock* of a task is ever wrong: the clock that its operators read and set timers by. Virtual
time itself, the job manager's timeouts and the costs of work are not affected. A clock belongs to the machine: a task
that is deployed anew reads the same one.

A jump affects timers as in Flink's ``SystemProcessingTimeService``: a timer is set for an instant of the clock, and
waits for the distance to that instant *at the time it is set*. So no jump makes it fire twice or never. After a jump
forward it fires late by the clock; after a jump backward the clock shows less than the timer's instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.faults.fault import Fault, FaultMix
from engine.faults.opportunities import Names, Opportunities, Struck, Windows, drawn_duration_ns, hits_any, plain_target
from engine.runtime.execution import Execution

_TURN_KINDS = ("slow", "idle", "clock-jump", "watermark-stall")
_PACES_NS = (1_000, 5_000, 20_000)
_OFFSETS_NS = (1_000_000, 50_000_000, 3_600_000_000_000)


class ClockFaults:
    """The faults of the clocks and the pace of tasks in one case."""

    def __init__(self, faults: Sequence[Fault], mix: FaultMix, struck: Struck) -> None:
        self._struck = struck
        self._names = Names()
        self._turns = Opportunities(_TURN_KINDS, faults, mix, struck, fits=self._is_task, details=self._details)
        self._starts = Opportunities(("skew",), faults, mix, struck, fits=self._is_task, details=self._details)
        self._windows = Windows(_TURN_KINDS, faults, struck)
        self._skews_ns: dict[str, int] = {}
        self._next_turn_ns: dict[str, int] = {}

    def started(self, execution: Execution) -> None:
        self._names = Names(execution.plan)
        self._next_turn_ns.clear()

    def _is_task(self, fault: Fault, name: str) -> bool:
        return hits_any(fault, self._names.of_task(name))

    @property
    def is_armed(self) -> bool:
        return self._turns.is_armed or self._starts.is_armed or self._windows.is_armed

    def clock_skew_ns(self, task: str) -> int:
        skew_ns = 0
        if self._starts.is_armed:
            known = self._skews_ns.get(task)
            if known is None:
                fault = self._starts.strike(task)
                known = self._skews_ns[task] = 0 if fault is None else signed_ns(fault)
            skew_ns = known
        if self._windows.is_armed:
            skew_ns += sum(
                map(signed_ns, self._windows.begun("clock-jump", self._names.of_task(task), self._struck.now_ns))
            )
        return skew_ns

    def hold_ns(self, task: str, is_source: bool) -> int:
        if self._turns.is_armed:
            fault = self._turns.strike(task, _TURN_KINDS if is_source else _WITHOUT_IDLE)
            if fault is not None:
                self._windows.begin(fault, plain_target(task), self._struck.now_ns)
        if not self._windows.is_armed:
            return 0
        now_ns, names = self._struck.now_ns, self._names.of_task(task)
        if is_source:
            idle = self._windows.in_force("idle", names, now_ns)
            if idle is not None:
                return _end_ns(idle) - now_ns
        slow = self._windows.in_force("slow", names, now_ns)
        if slow is None:
            return 0
        wait_ns = self._next_turn_ns.get(task, 0) - now_ns
        if wait_ns > 0:
            return wait_ns
        self._next_turn_ns[task] = now_ns + max(1, slow.amount)
        return 0

    def watermark_delay_ns(self, task: str) -> int:
        if not self._windows.is_armed:
            return 0
        stall = self._windows.in_force("watermark-stall", self._names.of_task(task), self._struck.now_ns)
        return 0 if stall is None else _end_ns(stall) - self._struck.now_ns

    def _details(self, fault: Fault) -> Fault:
        struck, kind = self._struck, fault.kind
        if kind == "skew":
            return replace(fault, for_ns=_OFFSETS_NS[struck.draw(len(_OFFSETS_NS))], amount=-struck.draw(2))
        begins = replace(fault, at_ns=self._struck.now_ns + 1, number=1)
        if kind == "clock-jump":
            return replace(begins, for_ns=_OFFSETS_NS[struck.draw(len(_OFFSETS_NS))], amount=-struck.draw(2))
        begins = replace(begins, for_ns=drawn_duration_ns(struck))
        if kind == "slow":
            return replace(begins, amount=_PACES_NS[struck.draw(len(_PACES_NS))])
        return begins

    @property
    def unused(self) -> tuple[Fault, ...]:
        return (*self._starts.unused, *self._turns.unused, *self._windows.unused)


_WITHOUT_IDLE = tuple(kind for kind in _TURN_KINDS if kind != "idle")


def signed_ns(fault: Fault) -> int:
    """How far a clock jumps: ``for_ns`` ahead, or back when the amount is negative."""
    return -fault.for_ns if fault.amount < 0 else fault.for_ns


def _end_ns(window: Fault) -> int:
    assert window.at_ns is not None, window
    return window.at_ns + window.for_ns
