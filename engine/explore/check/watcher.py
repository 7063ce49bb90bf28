"""Every occasion for a fault that an event of a case offers, and faults at occasions that the search names.

The search carries out an event once without a fault and learns which occasions it passed: named points, and messages
that may be lost. Then it carries the same event out again, from a copy of the state before it, with a fault at one of
them. Occasions are counted as :class:`engine.faults.injector.FaultInjector` counts them. So the text form of each fault
strikes at the same place when the case is run from its beginning. Only a run of one path from beginning to end needs
these counts: a watcher is copied with every state, and keeps no counts unless told to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from engine.faults.fault import Fault
from engine.faults.probing_filesystem import ProbingFileSystem
from engine.observe.points import TORN
from engine.runtime.execution import Execution
from engine.runtime.faulted import DELIVERED, JOB_MANAGER, PROCESS, ZOMBIE, NotedVisits, StruckDown
from state_backends.files import FileSystem

CRASH, LOSE, DUPLICATE = "crash", "lose", "duplicate"
KINDS = (CRASH, LOSE, DUPLICATE)
"""The kinds of faults that a search knows."""

EFFECTS = (
    "sink.", "manifest.", "subsume.", "restore.", "snapshot.async.", "notify.", "complete.",
    "user.commit", "user.notify",
)  # fmt: skip
"""Points at or next to which something changes that outlives the process."""

_TORN_BYTES = 1
"""How many bytes of a write remain when its writer dies during it."""


class Occasion(NamedTuple):
    """Where a fault could strike: a named point (with ``phase``; ``who`` passes it), or a message (no phase; ``who``:
    the task at one end of it)."""

    where: str
    phase: str
    who: str


@dataclass(frozen=True)
class Strike:
    """``kind`` strikes ``victim`` at the occasion with this index in an event."""

    index: int
    kind: str
    victim: str


class StrikeWatcher:
    """Notes the occasions that an event passes, and strikes where it is told to. Implements
    :class:`engine.runtime.faulted.interference.Interference` and :class:`engine.faults.probing_filesystem.Prober`."""

    def __init__(self, *, counts: bool = False) -> None:
        """``counts``: whether occasions are counted, so that faults have an exact form."""
        self.visited = NotedVisits()
        """Nothing: it is told of each."""
        self.passed: list[Occasion] = []
        """Of the present event."""
        self.struck = 0
        """How many faults have struck so far."""
        self.has_lost_messages = False
        """Whether a message was lost or came twice: a checkpoint, and with it the job, may fail much later."""
        self.exact: tuple[Fault, ...] = ()
        """The same faults in the form used in a case, if occasions are counted."""
        self.unwinding: StruckDown | None = None
        self.worlds: list[bytes] = []
        """For each occasion: a digest of all that outlives the process."""
        self.world_digest: Callable[[], bytes] | None = None
        """Called when that may have changed; ``None`` = not needed."""
        self._counts: dict[Occasion, int] | None = {} if counts else None
        self._strikes: dict[int, Strike] = {}
        self._is_idle = False
        """Whether nothing can strike in this event, and nothing is counted: then occasions are not noted."""
        self._dies_torn: StruckDown | None = None
        self._execution: Execution | None = None
        self._writer: str | None = None
        """The actor that passed a point last; it is the writer of any file written now."""

    def wrap(self, checkpoints: FileSystem) -> FileSystem:
        """The disk of checkpoints of a new process."""
        self.unwinding = self._writer = None
        return ProbingFileSystem(checkpoints, self)

    def install(self, execution: Execution) -> None:
        self._execution = execution

    def begin(self, strikes: tuple[Strike, ...]) -> None:
        """Before each event, and before a copy."""
        self.passed.clear()
        self.worlds.clear()
        self._strikes = {strike.index: strike for strike in strikes}
        self._is_idle = not strikes and self.world_digest is None and self._counts is None

    def _pass(self, occasion: Occasion) -> Strike | None:
        if self._counts is not None:
            self._counts[occasion] = self._counts.get(occasion, 0) + 1
        self.passed.append(occasion)
        if self.world_digest is not None:
            known = self.worlds and not occasion.where.startswith(EFFECTS)
            self.worlds.append(self.worlds[-1] if known else self.world_digest())
        return self._strikes.get(len(self.passed) - 1) if self._strikes else None

    # -- questions of the runtime -----------------------------------------------------------------------------------

    def at(self, point: str, phase: str, actor: str) -> None:
        if actor.startswith(ZOMBIE):
            self._writer = None
            return
        self._writer = actor
        if self._is_idle:
            return
        strike = self._pass(Occasion(point, phase, actor))
        if strike is None:
            return
        self._note_crash(strike.victim, point, phase, 0)
        cause = f"struck down {phase} {point}"
        if strike.victim in (PROCESS, actor):
            self.unwinding = StruckDown(strike.victim, cause)
            raise self.unwinding
        assert self._execution is not None, "only a process that runs comes by"
        self._execution.condemn(strike.victim, cause)

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        if self._is_idle:
            return DELIVERED
        occasion = Occasion(message, "", task)
        strike = self._pass(occasion)
        if strike is None:
            return DELIVERED
        self.struck += 1
        self.has_lost_messages = True
        if self._counts is not None:
            self.exact = (*self.exact, Fault(strike.kind, f"{message} {task}", number=self._counts[occasion]))
        return () if strike.kind == LOSE else (0, 0)

    disturbs_messages = True
    disturbs_elements = False
    """Elements take no time: every order of arrivals is a schedule."""
    disturbs_time = False
    """Only the schedule makes tasks slow, and delays watermarks."""

    def element_delay_ns(self, channel: str, kind: str) -> int:
        return 0

    def clock_skew_ns(self, task: str) -> int:
        return 0

    def hold_ns(self, task: str, is_source: bool) -> int:
        return 0

    def watermark_delay_ns(self, task: str) -> int:
        return 0

    # -- questions of the file system ---------------------------------------------------------------------------------

    def at_file(self, point: str, phase: str) -> None:
        if self._writer is not None:
            self.at(point, phase, self._writer)

    def torn(self, point: str, size_bytes: int) -> int | None:
        if self._writer is None or self._is_idle:
            return None
        strike = self._pass(Occasion(point, TORN, self._writer))
        if strike is None:
            return None
        self._note_crash(strike.victim, point, TORN, _TORN_BYTES)
        self._dies_torn = StruckDown(strike.victim, f"struck down in the middle of {point}")
        return min(_TORN_BYTES, size_bytes)

    def die_torn(self) -> StruckDown:
        assert self._dies_torn is not None, "no actor was struck down in a write"
        self.unwinding = self._dies_torn
        return self._dies_torn

    def _note_crash(self, victim: str, point: str, phase: str, amount: int) -> None:
        self.struck += 1
        if self._counts is None:
            return
        number = sum(
            count
            for (where, when, who), count in self._counts.items()
            if where == point and when == phase and (victim in (PROCESS, JOB_MANAGER, who) or who == JOB_MANAGER)
        )
        self.exact = (*self.exact, Fault(CRASH, victim, None, point, phase, number, 0, amount))
