"""A failing run for analysis: made once more, with its case made concrete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cli.cases.named_run import resolve
from engine.explore.cases import FIFO, Case
from engine.explore.failures import standard_invariants
from engine.explore.run import Subject, Violation, run_case
from engine.explore.shrink import concretised


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run that was made again. ``promise``: the promise that its output is judged by, ``None`` = that of its mode;
    ``violation``: its present violation, ``None`` = none, or another one than it was named for."""

    subject: Subject
    case: Case
    promise: str | None
    violation: Violation | None


def open_run(name: str, job: str | None, typed: Sequence[str], promise: str | None = None) -> OpenedRun:
    """Find the run whose token or file ``name`` is, and run it; its case is returned in concrete form.

    ``job`` and ``typed`` as of :func:`engine.cli.cases.resolve`; ``promise`` replaces the recorded one.

    Raises what :func:`engine.cli.cases.resolve` raises.
    """
    named = resolve(name, job, typed)
    case, promise = named.token.to_case(named.subject), named.token.promise if promise is None else promise
    finished = run_case(named.subject, case, standard_invariants(promise)(case))
    violation = next((one for one in finished.violations if named.invariant in (None, one.invariant)), None)
    if case.scheduler != FIFO or case.mix.per_million:
        case = concretised(finished)
    return OpenedRun(named.subject, case, promise, violation)
