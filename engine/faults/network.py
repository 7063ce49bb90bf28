"""Faults between tasks, and between a task and the job manager: messages and elements arrive late, twice or never.

Rules.

* A channel is a connection, as over TCP: a delay of an element also delays the elements after it, and none is lost or
  overtaken. ``drop`` and ``reorder`` break this assumption of every protocol; they must be requested as unsound.
* A message between job manager and task may be lost without the sender noticing, if the protocol tolerates that. A
  lost trigger, acknowledgement or refusal ends in the timeout of the checkpoint; the next notification, or the restore,
  replaces a lost one. Permission to finish is a call with an answer and is repeated until it arrives:
  it may be late or come twice, and in a partition it arrives when that ends.
* A message between a task and an acker may be lost, too: its root times out, and its record is sent again.
* A clogged set of channels stops one after the other and resumes in another order (FoundationDB: swizzle-clogging). The
  times of each channel follow from its name and the number of the fault, so the fault alone determines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from engine.elements.errors import ConfigurationError
from engine.faults.fault import FAULT_KINDS, Fault, FaultMix
from engine.faults.opportunities import Names, Opportunities, Struck, Windows, drawn_duration_ns, hits_any, plain_target
from engine.runtime.execution import Execution
from engine.runtime.faulted import DELIVERED, DROPPED, OVERTAKES

REPEATED = ("may_finish", "notify_stop_complete")
"""Messages that their sender repeats until they arrive."""

_MESSAGE_KINDS = ("lose", "duplicate", "late", "partition")
_ELEMENT_KINDS = ("delay", "clog", "drop", "reorder")
_LOSABLE = _MESSAGE_KINDS
_ONLY_LATE = ("duplicate", "late", "partition")


class NetworkFaults:
    """The faults of messages and elements in one case."""

    def __init__(self, faults: Sequence[Fault], mix: FaultMix, struck: Struck, *, unsound: bool = False) -> None:
        """``unsound``: whether channels may lose and reorder. Raises :class:`ConfigurationError` when a fault needs
        that and it is false."""
        if not unsound:
            refuse_unsound(faults, mix)
        self._struck = struck
        self._names = Names()
        self._messages = Opportunities(
            _MESSAGE_KINDS, faults, mix, struck, fits=self._is_message, details=self._details
        )
        self._elements = Opportunities(
            _ELEMENT_KINDS, faults, mix, struck, fits=self._is_element, details=self._details
        )
        self._windows = Windows(("partition", "clog"), faults, struck)

    def started(self, execution: Execution) -> None:
        self._names = Names(execution.plan)

    def _is_message(self, fault: Fault, name: str) -> bool:
        message, _, task = name.partition(" ")
        return hits_any(fault, (f"{message} {one}" for one in self._names.of_task(task)))

    def _is_element(self, fault: Fault, name: str) -> bool:
        channel, _, kind = name.rpartition(" ")
        return hits_any(fault, (f"{one} {kind}" for one in self._names.of_channel(channel)))

    # -- messages -----------------------------------------------------------------------------------------------

    @property
    def disturbs_messages(self) -> bool:
        # What is in force for a while begins as a fault of its family, or exactly.
        return self._messages.is_armed or self._windows.is_armed

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        if self._windows.is_armed:
            cut = self._windows.in_force("partition", self._names.of_task(task), self._struck.now_ns)
            if cut is not None:
                return self._cut(cut, message)
        if not self._messages.is_armed:
            return DELIVERED
        fault = self._messages.strike(f"{message} {task}", _ONLY_LATE if message in REPEATED else _LOSABLE)
        if fault is None:
            return DELIVERED
        if fault.kind == "lose":
            return ()
        if fault.kind == "duplicate":
            return (0, fault.for_ns)
        if fault.kind == "late":
            return (fault.for_ns,)
        assert fault.kind == "partition", fault
        # From the next instant on: of the messages sent at this one some may have been sent already.
        self._windows.begin(fault, plain_target(task), self._struck.now_ns)
        return DELIVERED

    def _cut(self, partition: Fault, message: str) -> tuple[int, ...]:
        if message not in REPEATED:
            return ()
        assert partition.at_ns is not None, partition
        return (partition.at_ns + partition.for_ns - self._struck.now_ns,)

    # -- elements -----------------------------------------------------------------------------------------------

    @property
    def disturbs_elements(self) -> bool:
        return self._elements.is_armed or self._windows.is_armed

    def element_delay_ns(self, channel: str, kind: str) -> int:
        delay_ns = self._clogged_ns(channel) if self._windows.is_armed else 0
        if not self._elements.is_armed:
            return delay_ns
        fault = self._elements.strike(f"{channel} {kind}")
        if fault is None:
            return delay_ns
        if fault.kind == "drop":
            return DROPPED
        if fault.kind == "reorder":
            return OVERTAKES
        if fault.kind == "delay":
            return delay_ns + fault.for_ns
        assert fault.kind == "clog", fault
        self._windows.begin(fault, fault.target.rpartition(" ")[0] or "*", self._struck.now_ns)
        return delay_ns

    def _clogged_ns(self, channel: str) -> int:
        """How long an element that is sent now waits for ``channel`` to carry elements again."""
        delay_ns, now_ns = 0, self._struck.now_ns
        for clog in self._windows.due("clog", now_ns):
            stops_ns, goes_ns = clogged_between_ns(clog, channel)
            # Before it stops, the channel carries what others cannot any more.
            if stops_ns <= now_ns < goes_ns and hits_any(clog, self._names.of_channel(channel)):
                self._windows.strikes(clog)
                delay_ns = max(delay_ns, goes_ns - now_ns)
        return delay_ns

    # -- by chance ----------------------------------------------------------------------------------------------

    def _details(self, fault: Fault) -> Fault:
        struck, kind = self._struck, fault.kind
        if kind in ("late", "delay"):
            return replace(fault, for_ns=drawn_duration_ns(struck))
        if kind == "duplicate":
            return replace(fault, for_ns=struck.draw(2) and drawn_duration_ns(struck))
        begins_ns = self._struck.now_ns + 1
        if kind == "partition":
            task = plain_target(fault.target.partition(" ")[2])
            return Fault(kind, task, at_ns=begins_ns, for_ns=drawn_duration_ns(struck))
        if kind == "clog":
            return Fault(kind, at_ns=begins_ns, for_ns=drawn_duration_ns(struck), amount=1 + struck.draw(8))
        return fault

    @property
    def unused(self) -> tuple[Fault, ...]:
        return (*self._messages.unused, *self._elements.unused, *self._windows.unused)


def refuse_unsound(faults: Sequence[Fault], mix: FaultMix) -> None:
    """Raise :class:`ConfigurationError` when a fault breaks an assumption of every protocol."""
    asked = [fault.kind for fault in faults] + [kind for kind, chance in mix.per_million.items() if chance]
    for kind in asked:
        if FAULT_KINDS[kind].unsound:
            raise ConfigurationError(
                f"fault {kind!r} ({FAULT_KINDS[kind].meaning}) breaks what every protocol builds on: channels keep"
                " their elements and their order\n"
                "  no engine survives it, so it finds no mistakes of one; say that an unsound network is meant, or"
                " leave the fault out"
            )


def clogged_between_ns(clog: Fault, channel: str) -> tuple[int, int]:
    """When a clogged channel stops, and when it carries elements again. Channels stop one after the other within the
    first half of the fault, and resume within the second, in another order."""
    assert clog.at_ns is not None, clog
    digest = blake2b(f"{clog.amount} {channel}".encode(), digest_size=8).digest()
    half_ns = clog.for_ns // 2
    stops_ns = clog.at_ns + int.from_bytes(digest[:4], "big") * half_ns // (1 << 32)
    goes_ns = clog.at_ns + clog.for_ns - int.from_bytes(digest[4:], "big") * half_ns // (1 << 32)
    return stops_ns, goes_ns
