"""What a case comes to: its state while it runs, its result, and the verdicts of the runner itself.

The runner reports, apart from the invariants it was given:

* ``V13``        the job did not end: too many events or too much virtual time, no event left while a task
                 still waits, or it failed although it may restart any number of times;
* ``assertion``  an exception that is about neither the world nor the job: an assertion of the engine, or a bug.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.explore.cases import Case
from engine.explore.run.invariant import Violation
from engine.explore.run.job_sequence import Start
from engine.explore.run.job_under_test import Subject, World
from engine.faults.fault import Fault
from engine.graph.plan import ExecutionPlan
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution, ExecutionResult, who_waits
from engine.runtime.job import ENDED, FAILED
from engine.runtime.kernel import Choice

NOTHING_IS_LEFT = "nothing is left to happen"
"""The first words of an execution's assertion when it has no event left and has not ended."""

LIVENESS, ASSERTION = "V13", "assertion"
"""The names of violations that the runner itself reports."""

CUT_OFF, REFUSED, BROKEN = "cut off", "refused", "broken"
"""Outcomes besides those of :mod:`engine.runtime.job.job_state`: the case took too long; a process could not start,
with an error that says why; an unexpected exception ended it."""


@dataclass(slots=True)
class CaseView:
    """The view that invariants have of a running case; it is updated as processes and jobs follow each other.
    ``job`` counts these from 1; ``start``: the savepoint that the job resumes from, ``storage_dir``: the directory of
    its checkpoints; ``cancelled``: its user has just cancelled it."""

    subject: Subject
    case: Case
    config: RunConfig
    plan: ExecutionPlan
    world: World
    execution: Execution
    incarnation: int
    job: int
    start: Start | None
    storage_dir: str
    cancelled: bool = False


@dataclass(slots=True)
class FinishedCase:
    """The result of a case.

    ``outcome``   ``finished``, ``stopped``, ``failed``, ``refused``, ``cut off`` or ``broken``;
    ``results``   one for each process that ended by itself (the last one did, unless the case was cut off);
    ``faults``    those that struck, exactly; ``unused``: those of the case that never did;
    ``points``    ``(point, phase)`` -> visits;
    ``choices``   all draws, in order; ``committed``: the rows that readers see at the end.
    """

    view: CaseView
    results: list[ExecutionResult]
    committed: dict[str, list[str]]
    choices: Sequence[Choice]
    violations: list[Violation] = field(default_factory=list)
    faults: tuple[Fault, ...] = ()
    points: Mapping[tuple[str, str], int] = field(default_factory=dict)
    incarnations: int = 1
    events: int = 0
    error: Exception | None = None
    outcome: str = ""
    unused: tuple[Fault, ...] = ()
    judged_by_ledger: bool = False
    """Whether the ledger has judged its effects, because there is no reference for its rows."""

    def __repr__(self) -> str:
        rows = sum(map(len, self.committed.values()))
        broken = ", ".join(one.invariant for one in self.violations) or "no invariant"
        return f"<FinishedCase {self.outcome}: {rows:,} rows, {len(self.faults)} faults, violates {broken}>"

    @property
    def result(self) -> ExecutionResult:
        """Of the last process that ended by itself."""
        assert self.results, f"no process ended by itself: the case was {self.outcome} ({self.error})"
        return self.results[-1]

    @property
    def is_over(self) -> bool:
        """Whether the job came to its end, so that its output can be judged as a whole."""
        return self.outcome in ENDED and self.outcome != FAILED


def given_up(state: str, error: BaseException | None, at_ns: int | None) -> Violation:
    """The verdict on a job that ended with an error that it was to survive. ``state``: failed, or refused."""
    if state == FAILED:
        text = f"the job failed for good: {_whole(error)}"
    else:
        text = f"a process could not start: {type(error).__name__}: {error}"
    return Violation(LIVENESS, text, at_ns)


def _whole(error: BaseException | None) -> str:
    cause = None if error is None else error.__cause__
    if cause is None or str(cause) in str(error):
        return str(error)
    return f"{error} ({type(cause).__name__}: {cause})"


def broken_by(error: Exception, execution: Execution | None, at_ns: int | None) -> Violation:
    """The verdict on a case that an unexpected exception has ended. ``execution``: ``None`` = no process has run."""
    if isinstance(error, AssertionError) and execution is not None and str(error).startswith(NOTHING_IS_LEFT):
        manager = execution.manager
        text = f"{NOTHING_IS_LEFT}, but the job is {manager.job.state}: {who_waits(manager)}"
        return Violation(LIVENESS, text, at_ns)
    return Violation(ASSERTION, f"{type(error).__name__}: {error}", at_ns, {"error": error})


_CONSEQUENCES = (LIVENESS, "V1", "V2")
"""The usual consequences of most mistakes. Any other violation says more about the cause."""


def causes_first(violation: Violation) -> tuple[int, bool, int]:
    """Causes in the order in which they were seen, those seen at the end last; then consequences."""
    name, at_ns = violation.invariant, violation.at_ns
    return (1 + _CONSEQUENCES.index(name) if name in _CONSEQUENCES else 0, at_ns is None, at_ns or 0)
