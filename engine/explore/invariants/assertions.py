"""The engine's own assertions, asked between events: every machine says what must hold of it."""

from __future__ import annotations

from engine.explore.invariants.base import Shared, Watcher
from engine.explore.run import CaseView

EVERY_EVENTS = 97
"""A number that no rhythm of a job falls in with; asking costs about as much as two events of a small job."""


class Assertions(Watcher):
    """``validate()`` of the job manager, and so of coordinator, tasks, gates and channels, every so many events."""

    name = "assertion"
    title = "Between two events every part of the engine is in a state that it may be in."
    reason = "A wrong state is nearer to its cause than the wrong output that comes of it, if one ever does."
    source = "TigerBeetle: assertions in every function, in production"

    def __init__(self, shared: Shared | None = None, every_events: int = EVERY_EVENTS) -> None:
        super().__init__(shared)
        self.every_events = every_events

    def between_events(self) -> None:
        """Ask now. What is wrong is a violation, and is told once."""
        if self.violations:
            return
        execution = self.view.execution
        try:
            execution.manager.validate()
        except AssertionError as error:
            self.violated(f"{_where(error)}: {error}", execution.kernel.now_ns)

    def process_died(self, view: CaseView) -> None:
        """A dead process is in whatever state it died in."""


def _where(error: AssertionError) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an assertion"
    code = trace.tb_frame.f_code
    return f"{code.co_qualname} does not hold"
