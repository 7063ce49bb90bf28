"""The fault plan of a run: which tasks are killed at which instants of virtual time, and its other faults.

A plan is data: it can be written down, compared, printed as the command-line options that repeat it, and shrunk by
leaving kills out. :meth:`FaultPlan.install` passes its kills to an execution before that runs; the execution knows its
own tasks and refuses an unknown name. Other faults are for :class:`engine.faults.injector.FaultInjector`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from engine.elements.durations import duration_text, parse_duration_ns
from engine.elements.errors import ConfigurationError
from engine.faults.fault import Fault, parse_fault

_FORM = (
    "write NAME@TIME, for instance --kill 'count[1]@120ms' (one subtask), --kill count@1.5s (all of them) or"
    " --kill 'job manager@70ms'"
)


class FaultTarget(Protocol):
    """The object that a plan is installed into: :class:`engine.runtime.execution.Execution`."""

    def kill(self, target: str, at_ns: int, cause: str = "killed") -> None:
        """Make ``target`` die at ``at_ns``; raises :class:`ConfigurationError` on an unknown name."""


@dataclass(frozen=True, slots=True)
class KillTask:
    """One subtask (``count[1]``), all subtasks of a vertex (``count``) or the job manager (``job manager``) die at an
    instant.

    ``at_ns`` is virtual time since the start of the run, not of the attempt. A task that has ended by then is not
    affected.
    """

    target: str
    at_ns: int
    cause: str = "killed"

    def __post_init__(self) -> None:
        if not self.target.strip():
            raise ConfigurationError(f"a kill names no task: {_FORM}")
        if self.at_ns < 0:
            raise ConfigurationError(f"kill of {self.target!r} at {self.at_ns} ns: a run has no time before its start")

    def __str__(self) -> str:
        """The option that requests exactly this kill: ``parse_kill(str(kill)) == kill``."""
        return f"{self.target}@{duration_text(self.at_ns)}"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All faults of one run. The order of kills at one instant is the order in the plan."""

    kills: tuple[KillTask, ...] = ()
    faults: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, kills: Iterable[str], faults: Iterable[str] = ()) -> FaultPlan:
        """The plan that the given texts describe: ``NAME@TIME``, and faults in their text form. Raises
        :class:`ConfigurationError` if a text has another form."""
        return cls(tuple(parse_kill(text) for text in kills), tuple(parse_fault(text) for text in faults))

    @property
    def is_empty(self) -> bool:
        return not self.kills and not self.faults

    def texts(self) -> list[str]:
        return [*map(str, self.kills), *map(str, self.faults)]

    def install(self, execution: FaultTarget) -> None:
        """Arm every kill; call it before the execution runs. Raises :class:`ConfigurationError` when a name is no task
        of the job."""
        for kill in self.kills:
            execution.kill(kill.target, kill.at_ns, kill.cause)

    def options(self) -> tuple[str, ...]:
        """The command-line options that repeat this plan."""
        kills = tuple(option for kill in self.kills for option in ("--kill", str(kill)))
        return (*kills, *(option for fault in self.faults for option in ("--fault", str(fault))))


def parse_kill(text: str) -> KillTask:
    """``'count[1]@120ms'`` as a :class:`KillTask`; the time follows the last ``@``. Raises
    :class:`ConfigurationError` without a name, or without a readable time."""
    target, at, time = text.rpartition("@")
    if not at or not target.strip():
        raise ConfigurationError(f"kill {text!r} is not of the form NAME@TIME: {_FORM}")
    return KillTask(target.strip(), parse_duration_ns(time, f"the time of kill {text!r},"))
