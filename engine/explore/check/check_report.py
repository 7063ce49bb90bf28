"""An exhaustive check of one job: run the search and judge its endings.

If the job's reference does not come from runs of the engine (:mod:`engine.explore.run.references`), it is the judge:
every ending must be right by it, also endings without faults. Otherwise the judge is the set of endings without faults,
all of which the search finds first: ``exactly-once`` then means that readers see output they could have seen without a
fault. A job that depends on the order of its records has several such endings, and each of them is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.elements.errors import EXIT_UNKNOWN, EXIT_VALID, EXIT_VIOLATED, ConfigurationError
from engine.explore.cases import AT_LEAST_ONCE, DRAIN, EXACTLY_ONCE, FIFO, Case, promise_of, run_config
from engine.explore.check.machine import Machine
from engine.explore.check.search import FINISHED, STATES, WRONG, CheckOrder, Ending, Found, Move, Search
from engine.explore.invariants import PromisedOutput, invariants_for, keeps
from engine.explore.opinion import compare_outputs
from engine.explore.run import RUNS, FinishedCase, Reference, Subject, Violation, run_case
from engine.runtime.job import FAILED

Rows = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check.

    ``promise``      the promise that endings were judged by; ``wrong``: of the endings that break it, the one to report
                     (see :func:`check`), ``None`` = all keep it;
    ``own_promise``  the promise of the mode; ``own_wrong``: the first ending that breaks even that;
    ``outputs``      how many different outputs there are without faults;
    ``witness``      the case that ends in ``wrong``, run and confirmed; ``confirmed``: the result of that run;
    ``invariants``   the verdicts of invariants on the shortest run to each right ending;
    ``judged_by``    the output that endings were compared with.
    """

    order: CheckOrder
    found: Found
    promise: str
    own_promise: str
    outputs: int
    wrong: Ending | None = None
    own_wrong: Ending | None = None
    witness: Case | None = None
    confirmed: FinishedCase | None = None
    invariants: tuple[str, ...] = ()
    judged_by: str = RUNS

    def __repr__(self) -> str:
        return f"<CheckReport {self.verdict[0]}: {self.found.states:,} states, {len(self.found.endings)} endings>"

    @property
    def verdict(self) -> tuple[str, str, int]:
        """Name, reason, exit code."""
        if self.wrong is not None:
            return "violated", _why(self.wrong, self.promise), EXIT_VIOLATED
        if self.invariants:
            return "violated", self.invariants[0], EXIT_VIOLATED
        if not self.found.is_complete:
            return "unknown", self._how_far(), EXIT_UNKNOWN
        endings = len(self.found.endings)
        if not endings:
            return "violated", "the job never ends: it restarts for ever, even when nothing goes wrong", EXIT_VIOLATED
        are = "the one ending is" if endings == 1 else f"all {endings} endings are"
        return "valid", f"{are} {self.promise}", EXIT_VALID

    def _how_far(self) -> str:
        found, order = self.found, self.order
        bound = f"{order.max_states:,} states (--max-states)"
        if found.stopped_by != STATES:
            bound = f"{order.seconds:g} s (--time)"
        return (
            f"the search stopped at its bound of {bound}: {found.states:,} states kept, {found.transitions:,} passed,"
            f" {found.struck:,} faults tried, {found.frontier:,} states and faults still to try;"
            " nothing is wrong so far"
        )

    @property
    def meant(self) -> Violation | None:
        """The violation that the verdict is about, ``None`` = no invariant singles it out."""
        if self.wrong is None or self.wrong.state != FINISHED or self.confirmed is None:
            return None
        return next((one for one in self.confirmed.violations if one.invariant == PromisedOutput.name), None)

    def plain(self) -> dict[str, Any]:
        name, reason, _ = self.verdict
        found, order = self.found, self.order
        return {
            "verdict": name,
            "reason": reason,
            "mode": run_config(order.case).mode,
            "promise": self.promise,
            "own_promise": self.own_promise,
            "own_promise_holds": self.own_wrong is None,
            "is_complete": found.is_complete,
            "stopped_by": found.stopped_by,
            "faults": order.faults,
            "kinds": list(order.kinds),
            "reduction": order.reduction,
            "states": found.states,
            "transitions": found.transitions,
            "faults_tried": found.struck,
            "frontier": found.frontier,
            "seconds": round(found.seconds, 3),
            "outputs_without_faults": self.outputs,
            "reference": self.judged_by,
            "endings": [_plain(ending) for ending in found.endings],
            "wrong": None if self.wrong is None else _plain(self.wrong),
        }


def _plain(ending: Ending) -> dict[str, Any]:
    return {
        "state": ending.state,
        "faults": ending.faults,
        "events": len(ending.path),
        "committed": {where: list(rows) for where, rows in ending.committed},
        "text": ending.text,
    }


def _why(ending: Ending, promise: str) -> str:
    after = {0: "without any fault", 1: "with one fault"}.get(ending.faults, f"with {ending.faults} faults")
    if ending.state != FINISHED:
        return f"{after} the job ends {ending.state}: {ending.text}"
    return f"{after} the output is not {promise}"


@dataclass(slots=True)
class _Judge:
    """``has_references``: all references are known, so that endings without a fault are judged, too."""

    promise: str
    settled: Rows | None = None
    """The rows that readers must see, ``None`` = those that they see without faults."""
    references: list[Rows] = field(default_factory=list)
    wrong: Ending | None = None
    has_references: bool = False
    outputs: int = 0

    def see(self, ending: Ending) -> None:
        """Call in order of the endings' faults, and at equal faults in order of their events."""
        if ending.faults == 0 and ending.state == FINISHED:
            self.outputs += 1
            if self.settled is None and not self.has_references:
                self.references.append(dict(ending.committed))
                return
        if not self.may_change(ending.faults):
            return
        if ending.state != FINISHED:
            if not (ending.stopped_in_vain and ending.state == FAILED):
                self.wrong = self.wrong or ending
        elif not self._is_right(ending):
            self.wrong = ending

    def may_change(self, faults: int) -> bool:
        """Whether an ending with so many faults may still become the one to report."""
        return self.wrong is None or (self.wrong.state != FINISHED and self.wrong.faults == faults)

    def _is_right(self, ending: Ending) -> bool:
        # After a stop-with-savepoint that did not stop the job, readers may see the committed rows twice; as in V1.
        promise = AT_LEAST_ONCE if ending.stopped_in_vain and self.promise == EXACTLY_ONCE else self.promise
        references = self.references if self.settled is None else [self.settled]
        committed = dict(ending.committed)
        return any(keeps(promise, compare_outputs(reference, committed)) for reference in references)


def check(
    subject: Subject, order: CheckOrder, promise: str = EXACTLY_ONCE, progress: Callable[[Found], None] | None = None
) -> CheckReport:
    """Search everything, judge all endings, and make the case of a wrong one.

    The reported ending has the fewest faults. At equal faults, wrong output comes before a job that fails, because a
    failure is visible and wrong output is not. Among those, the ending with the fewest events is reported.

    The search stops at an ending that breaks the mode's own promise, because no worse ending can follow. If that ending
    is a failed job, the search executes as many events again to look for wrong output.

    ``progress`` receives what was found so far while the search runs.

    :raises ConfigurationError: when the job or the order makes no sense
    """
    protocol = run_config(order.case).protocol
    if protocol.tracks_records:
        raise ConfigurationError(
            f"a check cannot try every schedule in mode {protocol.name}: which messages of ackers may change places"
            f" without a difference is not known to it\n  use weir explore --mode {protocol.name}, or another mode"
        )
    own_promise = promise_of(protocol)
    reference = _reference(subject, order)
    settled = reference.rows if reference is not None and reference.is_independent else None
    settled = None if _may_drain(order.case) else settled
    judge, own_judge = _Judge(promise, settled), _Judge(own_promise, settled)
    judges = (judge,) if own_promise == promise else (judge, own_judge)
    search = Search(subject, order, progress)
    if settled is None and not _may_drain(order.case):
        references = _without_savepoints(subject, order)
        for one in (judge, own_judge):
            one.references, one.has_references = list(references), bool(references)
    endings = search.endings()
    for ending in endings:
        judge.see(ending)
        own_judge.see(ending)
        if not any(one.may_change(ending.faults) for one in judges):
            search.found.stopped_by = WRONG
            break
        if all(one.wrong is not None for one in judges):
            search.look_as_far_again()
    endings.close()
    judged_by = RUNS if settled is None or reference is None else reference.judged_by
    report = CheckReport(
        order, search.found, promise, own_promise, judge.outputs, judge.wrong, own_judge.wrong, judged_by=judged_by
    )
    if judge.wrong is None:
        return replace(report, invariants=tuple(_of_invariants(subject, order, own_promise, search.found.endings)))
    witness = case_of(subject, order, judge.wrong.path)
    return replace(report, witness=witness, confirmed=_confirmed(subject, witness, judge.wrong, promise))


def _reference(subject: Subject, order: CheckOrder) -> Reference | None:
    """The output that the job must commit; ``None`` for a job that fails by itself: the search will find that."""
    try:
        return subject.reference(order.case.dropped)
    except ConfigurationError:
        return None


def _may_drain(case: Case) -> bool:
    """Whether windows may be closed early: endings without a fault then show that, and may."""
    return any(one.kind == DRAIN for one in case.savepoints)


def _without_savepoints(subject: Subject, order: CheckOrder) -> list[Rows]:
    """The rows that readers may see at the end, from runs without savepoints: a mistake that needs a savepoint and no
    fault must not justify itself. Raises :class:`ConfigurationError` when that exceeds the order's limits."""
    if not order.case.savepoints:
        return []
    search = Search(subject, replace(order, case=replace(order.case, savepoints=()), faults=0))
    references: list[Rows] = [dict(ending.committed) for ending in search.endings() if ending.state == FINISHED]
    if not search.found.is_complete:
        raise ConfigurationError(
            "the job is too large to be checked with savepoints: without any, and without faults, not all of its"
            " endings were found\n  fix: give it fewer records, or allow more states and time"
        )
    return references


def case_of(subject: Subject, order: CheckOrder, path: Sequence[Move]) -> Case:
    """The case that takes a path of the search."""
    machine = Machine(subject, order.case, order.faults)
    state = machine.start(counts=True)
    schedule: dict[int, int] = {}
    draws = 0
    try:
        for step in path:
            machine.alternatives(state)
            if state.execution.kernel.ready_events > 1:
                if step.position:
                    schedule[draws] = step.position
                draws += 1
            machine.execute(state, step.position, step.strikes)
    except Exception:
        # The last step of a path to a broken ending.
        assert step is path[-1], "only the end of a path is broken"
    finally:
        machine.close()
    return replace(order.case, scheduler=FIFO, schedule=schedule, faults=state.watcher.exact)


def _confirmed(subject: Subject, case: Case, ending: Ending, promise: str) -> FinishedCase:
    finished = run_case(subject, case, invariants_for(promise))
    if ending.state == FINISHED:
        committed = {where: sorted(rows) for where, rows in finished.committed.items()}
        expected = {where: list(rows) for where, rows in ending.committed}
        assert committed == expected, f"the run of the wrong ending gives {committed} instead of {expected}"
    return finished


def _of_invariants(subject: Subject, order: CheckOrder, promise: str, endings: Iterable[Ending]) -> Iterable[str]:
    for ending in endings:
        invariants = invariants_for(promise)
        finished = run_case(subject, case_of(subject, order, ending.path), invariants)
        yield from map(str, finished.violations)
