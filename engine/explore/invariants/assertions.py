"""The engine's own assertions, checked between events: every machine validates its own state."""

from __future__ import annotations

from engine.explore.invariants.base import Shared, Watcher
from engine.explore.run import CaseView

EVERY_EVENTS = 97
"""A prime number, so that it does not fall in with a job's rhythm; a check costs about two events of a small job."""


class Assertions(Watcher):
    """Every so many events, ``validate()`` of the job manager, and so of coordinator, tasks, gates and channels."""

    name = "assertion"
    title = "Between two events every part of the engine is in a state that it may be in."
    reason = "A wrong state is nearer to its cause than the wrong output that comes of it, if one ever does."
    source = "TigerBeetle: assertions in every function, in production"

    def __init__(self, shared: Shared | None = None, every_events: int = EVERY_EVENTS) -> None:
        super().__init__(shared)
        self.every_events = every_events

    def between_events(self) -> None:
        """Validate now. A failed assertion is a violation, and is reported once."""
        if self.violations:
            return
        execution = self.view.execution
        try:
            execution.manager.validate()
        except AssertionError as error:
            self.violated(f"{_where(error)}: {error}", execution.kernel.now_ns)

    def process_died(self, view: CaseView) -> None:
        """A dead process may have died in any state."""


def _where(error: AssertionError) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an assertion"
    code = trace.tb_frame.f_code
    return f"{code.co_qualname} does not hold"
