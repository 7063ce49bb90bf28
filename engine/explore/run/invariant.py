"""The base of every invariant: an instrument that watches one case from its first event to its last.

An invariant never changes a run. It receives trace events of the kinds that it names, the beginning of each process (a
process that died is followed by the next incarnation), and the end. Its result is a list of violations, each of which
describes in the words of the job what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from engine.explore.cases import Case
from engine.explore.run.job_under_test import Subject
from engine.observe.provenance import Provenance
from engine.observe.trace_events import EVERY_CHANNEL

if TYPE_CHECKING:
    from engine.explore.run.case_outcome import CaseView, FinishedCase


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach of an invariant. ``at_ns``: when it was seen (virtual), ``None`` = at the end of the run."""

    invariant: str
    text: str
    at_ns: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


HandlerT = TypeVar("HandlerT", bound=Callable[..., None])


def hears(*kinds: type[Any]) -> Callable[[HandlerT], HandlerT]:
    """Marks a method of an invariant that receives trace events of these classes."""

    def mark(handler: HandlerT) -> HandlerT:
        handler._hears = kinds  # type: ignore[attr-defined]
        return handler

    return mark


class Invariant:
    """Base of invariants. Subclasses set the four texts, mark what :func:`hears`, and override what they need.

    ``name``    short and unique (``V4``); ``title``: what must hold, in a sentence; ``reason``: why it must;
    ``source``  the source of the rule, or of the mistake that it catches.
    """

    name: str = ""
    title: str = ""
    reason: str = ""
    source: str = ""
    every_events: int = 0
    """How many kernel events lie between two calls of :meth:`between_events`, 0 = never called."""
    records_of: Container[int] = EVERY_CHANNEL
    """The channels, by index, of whose records it hears, where it hears ``Send`` or ``Receive``; they may change during
    the run. It hears of every other element."""
    provenance: Provenance | None = None
    """Receives from the run which record caused which effect, if this invariant judges by that."""

    _heard: ClassVar[Mapping[type[Any], str]] = {}
    """By class of trace event: the method that is called with it."""

    def __init_subclass__(cls) -> None:
        mine: dict[type[Any], str] = {}
        for name, method in vars(cls).items():
            for kind in getattr(method, "_hears", ()):
                # Only one method is called for a kind.
                other = mine.get(kind, cls._heard.get(kind, name))
                assert other == name, f"{cls.__name__} hears {kind.__name__} twice: with {other} and with {name}"
                mine[kind] = name
        cls._heard = {**cls._heard, **mine}

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def stand_in(self, subject: Subject, case: Case) -> Invariant | None:
        """Another invariant, which judges a case that this one cannot."""
        return None

    def handlers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """By class of trace event: the handler to call with it."""
        return {kind: getattr(self, name) for kind, name in self._heard.items()}

    def process_started(self, view: CaseView) -> None:
        """A process of the case is about to run (the first one, or a resumed one); ``view.execution`` is it."""

    def files_changed(self) -> None:
        """Files that readers of sinks may see have changed. Called only where a subclass overrides it."""

    def between_events(self) -> None:
        """Two events are done. Called only on the first invariant that sets ``every_events``."""

    def process_dies(self, view: CaseView) -> None:
        """The process is about to die; everything that it has written is there to the last byte, durable or not."""

    def process_died(self, view: CaseView) -> None:
        """The process is dead; the next one resumes from the durable files."""

    def finished(self, case: FinishedCase) -> None:
        """The case is over: judge here what earlier events cannot decide."""

    def violated(self, text: str, at_ns: int | None = None, **details: Any) -> None:
        """Note a violation. Of equal texts only one is kept."""
        if len(self.violations) < 20:
            self.violations.append(Violation(self.name, text, at_ns, details))
