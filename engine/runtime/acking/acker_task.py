"""An acker as a live object: the kernel delivers its messages, it ticks, dies and comes back with empty memory.

It ticks at whole multiples of the timeout since the start of the run, and only while it holds entries. Rotating an
empty map changes nothing, and the run finds out by the missing ticks that nothing is left to happen in a job.

Its network may deliver a message twice. A second INIT is thrown away: it could make the value of a root 0 while tuples
are still on their way, and a record would be lost. (In Storm messages come over TCP, once.) A second ACK does no such
harm: each edge is in two messages, so a sum in which INIT is counted once is 0 only if every message was counted an odd
number of times. A second ACK keeps the root from completing, and the root times out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.observe.trace_events import TaskState
from engine.protocols.acking.acker import Acker
from engine.protocols.acking.anchoring import AckerMessage, Init
from engine.runtime.kernel import WORKER, around_of

if TYPE_CHECKING:
    from engine.runtime.acking.acking_run import AckingRun

ACKER = "acker"


class AckerTask:
    """One acker of a run."""

    def __init__(self, run: AckingRun, index: int, latency_ns: int) -> None:
        self.name = f"{ACKER}[{index}]"
        self.is_up = True
        self._run = run
        self._around = around_of(run.hook, self.name)
        self._latency_ns = latency_ns
        self._machine = Acker()
        self._life = 0
        self._ticks = False
        self._paused_until_ns = 0
        self.names = (self.name, ACKER)
        """The names it is known by."""
        self.worker = f"{WORKER}[{index}]"
        """The worker that holds it."""

    def receive(self, message: AckerMessage) -> None:
        """A message has arrived (kernel event)."""
        run = self._run
        if not self.is_up:
            run.statistics.lost_messages += 1
            return
        if run.kernel.now_ns < self._paused_until_ns:
            run.kernel.schedule(self._paused_until_ns, "receive", self, message)
            return
        with self._around("acker.receive"):
            self._take(message)

    def _take(self, message: AckerMessage) -> None:
        run, statistics = self._run, self._run.statistics
        if isinstance(message, Init) and self._machine.knows_spout_of(message.root):
            return
        reply = self._machine.receive(message)
        entries = len(self._machine)
        statistics.max_acker_entries = max(statistics.max_acker_entries, entries + (reply is not None))
        if reply is not None:
            run.answer(self.name, self._latency_ns, reply)
        if entries and not self._ticks:
            self._tick_later()

    def _tick_later(self) -> None:
        due_ns = self._run.next_tick_ns()
        if due_ns is not None:
            self._ticks = True
            self._run.kernel.schedule(due_ns, "tick", self, self._life)

    def tick(self, life: int) -> None:
        """A timeout is over (kernel event)."""
        if life == self._life:
            self._ticks = False
            self._run.statistics.expired_entries += len(self._machine.tick())
            if len(self._machine):
                self._tick_later()

    def pause(self, for_ns: int) -> None:
        """Take nothing for a while; messages that come meanwhile wait."""
        if self.is_up:
            self._paused_until_ns = max(self._paused_until_ns, self._run.kernel.now_ns + for_ns)

    def die(self, cause: str) -> None:
        """Its memory is lost; a successor comes."""
        if self.is_up:
            self.is_up, self._ticks = False, False
            self._paused_until_ns = 0
            self._life += 1
            self._machine = Acker()
            self._run.note(f"{self.name} was {cause}")
            self._trace("failed", cause)
            recovered_ns = self._run.kernel.now_ns + self._run.settings.recovery_ns
            self._run.kernel.schedule(recovered_ns, "recover", self)

    def recover(self, _payload: None = None) -> None:
        """The successor takes over (kernel event)."""
        self.is_up = True
        self._trace("running", None)

    def _trace(self, state: str, cause: str | None) -> None:
        if self._run.instrument is not None:
            self._run.instrument(TaskState(self._run.kernel.now_ns, self._life + 1, self.name, state, cause))

    def fingerprint(self) -> object:
        paused_ns = max(0, self._paused_until_ns - self._run.kernel.now_ns)
        return self.name, self.is_up, paused_ns, self._machine.fingerprint()
