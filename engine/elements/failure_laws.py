"""Failures at random times, as plain data: a law of the time between two of them, and what they strike.

As text: ``exponential:6h``, ``exponential:6h@host``. ``@running`` at the end leaves recoveries in peace.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.elements.errors import ConfigurationError
from engine.elements.laws import Law, as_law
from engine.elements.suggestions import nearest

TASK, HOST, JOB_MANAGER, STORAGE = "task", "host", "job manager", "storage"
TARGETS = (TASK, HOST, JOB_MANAGER, STORAGE)
_RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of a job, one after the other: ``Failures(Exponential("6h"), target="host")``.

    ``law``              of the time from one failure to the next one, in the whole job: a renewal process;
    ``target``           one ``task`` dies; a ``host`` with all subtasks of one index; the ``job manager``; or the
                         ``storage`` fails every snapshot that is being written. Which task or host is drawn evenly;
    ``during_recovery``  whether they strike while the job recovers from an earlier one: a restart of all tasks then
                         begins anew; tasks that are down in another recovery cannot die. If not, such a failure does
                         not happen, and the time to the next one counts from then.
    """

    law: Law
    target: str = TASK
    during_recovery: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "law", as_law(self.law, "law of Failures"))
        target: object = self.target
        if target not in TARGETS:
            close = nearest(target, TARGETS) if isinstance(target, str) else None
            hint = "" if close is None else f"; did you mean {close!r}?"
            raise ConfigurationError(
                f"target of Failures is {self.target!r}; it must be one of {', '.join(TARGETS)}{hint}"
            )
        if self.law.mean_ns < 1:
            raise ConfigurationError("law of Failures is 0 on average; give a time between two failures")

    def __str__(self) -> str:
        """The text that :func:`parse_failures` reads."""
        target = "" if self.target == TASK else f"@{self.target}"
        return f"{self.law}{target}{'' if self.during_recovery else f'@{_RUNNING}'}"


def parse_failures(text: str, what: str = "failures") -> tuple[Failures, ...]:
    """Several kinds of failures, with commas between them: ``exponential:6h,exponential:24h@job manager``."""
    return tuple(_parsed(one, what) for one in text.split(",") if one.strip())


def _parsed(text: str, what: str) -> Failures:
    law, *options = (part.strip() for part in text.split("@"))
    during_recovery = _RUNNING not in options
    targets = [one for one in options if one != _RUNNING]
    if len(targets) > 1:
        raise ConfigurationError(f"{what} {text!r} has two targets; write LAW@TARGET, or LAW@TARGET@{_RUNNING}")
    return Failures(as_law(law, what), targets[0] if targets else TASK, during_recovery)
