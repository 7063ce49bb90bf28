"""Every occasion for a fault that an event of a case offers, and faults at occasions that the search names.

The search carries out an event once without a fault and is told what it came by: named points, and messages that may
go astray. Then it carries the same event out again, from a copy of the state before it, with a fault at one of them.
Occasions are counted as :class:`engine.faults.injector.FaultInjector` counts them, so that each fault has the text
form that strikes at the same place when the case is run from its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.faults.fault import Fault
from engine.faults.injector import FaultInjector
from engine.observe.points import TORN
from engine.runtime.interference import DELIVERED, JOB_MANAGER, PROCESS, ZOMBIE, StruckDown

if TYPE_CHECKING:
    from engine.runtime.execution import Execution

CRASH, LOSE, DUPLICATE = "crash", "lose", "duplicate"
KINDS = (CRASH, LOSE, DUPLICATE)
"""The kinds of faults that a search knows."""

_TORN_BYTES = 1
"""How much of a write is left when its writer dies in the middle of it."""


class Occasion(NamedTuple):
    """Where a fault could strike: a named point (``phase``, ``who`` comes by), or a message (no phase; ``who``: the
    task at one end of it)."""

    where: str
    phase: str
    who: str


@dataclass(frozen=True, slots=True)
class Strike:
    """``kind`` strikes ``victim`` at the occasion of this index in an event."""

    index: int
    kind: str
    victim: str


class Watcher(FaultInjector):
    """Notes what an event comes by, and strikes where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.passed: list[Occasion] = []
        """Of the present event."""
        self.exact: list[Fault] = []
        """What has struck so far, in the form of a case."""
        self._strikes: dict[int, Strike] = {}
        self._messages: dict[tuple[str, str], int] = {}
        self._dies_torn: StruckDown | None = None
        self._execution: Execution | None = None
        self._writer: str | None = None
        """Who came by last: whoever writes a file now."""

    def install(self, execution: Execution) -> None:
        """See the base class."""
        super().install(execution)
        self._execution, self._writer = execution, None

    def begin(self, strikes: tuple[Strike, ...]) -> None:
        """An event is about to be carried out."""
        self.passed.clear()
        self._strikes = {strike.index: strike for strike in strikes}

    def _pass(self, occasion: Occasion) -> Strike | None:
        index = len(self.passed)
        self.passed.append(occasion)
        return self._strikes.get(index) if self._strikes else None

    def at(self, point: str, phase: str, actor: str) -> None:
        """See the base class."""
        super().at(point, phase, actor)
        if actor.startswith(ZOMBIE):
            self._writer = None
            return
        self._writer = actor
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

    def torn(self, point: str, size_bytes: int) -> int | None:
        """See the base class."""
        super().torn(point, size_bytes)
        if self._writer is None:
            return None
        strike = self._pass(Occasion(point, TORN, self._writer))
        if strike is None:
            return None
        self._note_crash(strike.victim, point, TORN, _TORN_BYTES)
        self._dies_torn = StruckDown(strike.victim, f"struck down in the middle of {point}")
        return min(_TORN_BYTES, size_bytes)

    def die_torn(self) -> StruckDown:
        """See the base class."""
        assert self._dies_torn is not None
        self.unwinding = self._dies_torn
        return self._dies_torn

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        """See the base class."""
        key = (message, task)
        self._messages[key] = number = self._messages.get(key, 0) + 1
        strike = self._pass(Occasion(message, "", task))
        if strike is None:
            return DELIVERED
        self.exact.append(Fault(strike.kind, f"{message} {task}", number=number))
        return () if strike.kind == LOSE else (0, 0)

    def _note_crash(self, victim: str, point: str, phase: str, amount: int) -> None:
        number = sum(
            count
            for (where, when, who), count in self.visits.items()
            if where == point and when == phase and (victim in (PROCESS, JOB_MANAGER, who) or who == JOB_MANAGER)
        )
        self.exact.append(Fault(CRASH, victim, None, point, phase, number, 0, amount))
