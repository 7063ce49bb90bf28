"""Shrinking: makes a failing case as small as possible while it fails by the same invariant.

Rules.
1. A step is accepted only if the smaller case breaks the *same* invariant in the same way: shrinking must not slip from
   one bug to another.
2. In this order: settings towards their defaults, records of the input, faults, savepoints, checkpoints, choices of the
   schedule; again and again until a whole round changes nothing. Each kind is reduced by delta debugging
   (:mod:`engine.explore.shrink.ddmin`), and then made simpler: an earlier visit of a point, *before* instead
   of *after*, shorter, an earlier instant, a smaller choice.
3. At the end each single removal (of a record, a fault, a savepoint, a checkpoint, a choice that is not first come,
   first served) is run once more. If one still fails, it is accepted and everything begins again. If none fails,
   the case is *1-minimal*; this is claimed only of removals that were run.
4. A budget of runs ends the search, but every removal not verified within it is named. The wall clock ends the search
   only where seconds are requested, as the verbs do: then the result depends on how busy the machine is.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine.elements.errors import ConfigurationError, WeirError
from engine.explore.cases import CANCEL, DRAIN, FIFO, STOP, Case, Ranges, Savepoint
from engine.explore.run import ASSERTION, LIVENESS, Bounds, FinishedCase, Invariant, Subject, Violation, run_case
from engine.explore.shrink.case_parts import Size, case_key, counted, ranges_of, records_of, removals, size_of
from engine.explore.shrink.concrete import Triggers
from engine.explore.shrink.ddmin import ddmin, smallest
from engine.explore.story import Witness
from engine.faults.fault import FaultMix
from engine.observe.points import POINTS

InvariantsFactory = Callable[[Case], Sequence[Invariant]]
"""Fresh invariants for one case: the expected output may depend on its input and settings."""

Run = Callable[[Subject, Case, Sequence[Invariant]], FinishedCase]

_KEPT_SETTINGS = ("mode", "batch_size", "parallelism")
_DIGITS = re.compile(r"\d+")
_US = 1_000
_PATIENCE, _FEW_EVENTS, _MANY_EVENTS = 10, 5_000, 40_000
_SEARCH_SHARE = 0.8
"""The share of the budget for the search; the rest is kept for the verification."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of shrinking: ``runs`` of the job, ``seconds`` of wall time."""

    runs: int = 300
    seconds: float = math.inf

    def limited_to(self, share: float) -> Budget:
        return Budget(int(self.runs * share), self.seconds * share)


WAITING = Budget(seconds=10.0)
"""The budget of the verbs, because a person waits for them."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest case that was found.

    ``records`` by ``source uid/split``: how many records the split has, omitted ones included; ``unverified``:
    removals that were not run within the budget.
    """

    case: Case
    finished: FinishedCase
    violation: Violation
    original: Case
    before: Size
    after: Size
    records: Mapping[str, int]
    runs: int
    seconds: float
    verified: int
    unverified: tuple[str, ...]

    @property
    def is_minimal(self) -> bool:
        """Whether each single removal was run and does not fail."""
        return not self.unverified

    def describe(self) -> str:
        """One or two lines for people."""
        lines = [f"shrunk from {self.before} to {self.after} ({counted(self.runs, 'run')}, {self.seconds:.1f} s)"]
        if self.is_minimal:
            lines.append(
                f"1-minimal: {counted(self.verified, 'single removal')} run again, none of which fails so"
                if self.verified
                else "1-minimal: there is nothing left to remove"
            )
        else:
            shown = ", ".join(self.unverified[:5]) + (", …" if len(self.unverified) > 5 else "")
            lines.append(
                f"not shown to be 1-minimal: the budget ended before {counted(len(self.unverified), 'single removal')}"
                f" could be run ({shown})"
            )
        return "\n".join(lines)


def same_invariant(original: Violation, other: Violation) -> bool:
    """The same invariant, and the same kind of violation. The kind comes from the invariant (``details["kind"]``), or,
    for a violation found by the runner itself, from the text without its numbers."""
    return other.invariant == original.invariant and _kind(other) == _kind(original)


def _kind(violation: Violation) -> object:
    if violation.invariant == ASSERTION:
        return _DIGITS.sub("#", violation.text)
    if violation.invariant == LIVENESS:
        # The rest of the text lists the waiting tasks, which become fewer as the case gets smaller.
        return _DIGITS.sub("#", violation.text.partition(":")[0])
    if "lost" in violation.details:
        # Missing rows and extra rows have different causes.
        return "lost" if violation.details["lost"] else "too many"
    return violation.details.get("kind")


def shrink(
    subject: Subject,
    case: Case,
    invariants_for: InvariantsFactory,
    violation: Violation | None = None,
    *,
    budget: Budget | None = None,
    run: Run | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Shrunk | None:
    """Shrink a concretised case: exact faults, no mix, first come, first served except for its ``schedule``.

    ``violation``: the failure that must stay, ``None`` = the first one of the case. Returns ``None`` when the case does
    not fail, or fails otherwise.
    """
    if case.scheduler != FIFO or case.mix.per_million:
        raise ConfigurationError(
            "only a case whose faults and choices are spelled out can be shrunk: run it, and shrink what"
            " concretised(finished) gives"
        )
    bounds = shorter_bounds(subject, case, violation)
    search = _Search(subject, invariants_for, budget or Budget(), run, bounds, clock)
    if not search.begin(case, violation):
        return None
    before = search.size()
    unverified = search.search()
    return Shrunk(
        case=search.case,
        finished=search.finished,
        violation=search.violation,
        original=case,
        before=before,
        after=search.size(),
        records=search.records,
        runs=search.runs,
        seconds=search.elapsed_s,
        verified=search.verified,
        unverified=unverified,
    )


def shorter_bounds(subject: Subject, case: Case, violation: Violation | None) -> Bounds | None:
    """The bounds of a run that never ends. A search cannot wait for the usual bound each time; ten times the duration
    of the run without faults is long enough. ``None`` = the usual bounds: the failure is another one."""
    if violation is None or violation.invariant != LIVENESS:
        return None
    undisturbed = run_case(subject, replace(case, faults=(), mix=FaultMix()), bounds=Bounds(events=_MANY_EVENTS))
    return Bounds(events=min(_MANY_EVENTS, max(_FEW_EVENTS, _PATIENCE * undisturbed.events)))


class _BudgetSpent(Exception):
    """No further run may be made."""


class _Search:
    """The best case so far, and the results of others."""

    case: Case
    finished: FinishedCase
    violation: Violation

    def __init__(
        self,
        subject: Subject,
        invariants_for: InvariantsFactory,
        budget: Budget,
        run: Run | None,
        bounds: Bounds | None,
        clock: Callable[[], float],
    ) -> None:
        self._subject, self._invariants_for = subject, invariants_for
        self._budget, self._bounds, self._clock = budget, bounds, clock
        self._run = run or partial(run_case, bounds=bounds)
        self._start_s = clock()
        self._limit = budget.limited_to(_SEARCH_SHARE)
        self._passing: dict[str, None] = {}
        self.runs = 0
        self.verified = 0
        self.records: dict[str, int] = {}
        self._instants: tuple[int, ...] = ()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._start_s

    def size(self) -> Size:
        return size_of(self.case, self.records)

    def begin(self, case: Case, violation: Violation | None) -> bool:
        """Whether the case fails, by ``violation`` if there is one."""
        self._original = violation
        if not self._fails_now(case):
            return False
        self._original = self.violation
        self._look()
        return True

    def search(self) -> tuple[str, ...]:
        """Shrink within the budget; returns the unverified removals."""
        while True:
            self._limit = self._budget.limited_to(_SEARCH_SHARE)
            try:
                self._until_nothing_changes()
            except _BudgetSpent:
                return self._verify(as_far_as_it_goes=True)
            before = self.case
            unverified = self._verify(as_far_as_it_goes=False)
            if self.case is before:
                return unverified

    # -- runs ---------------------------------------------------------------------------------------------------------

    def _fails(self, case: Case) -> bool:
        """Whether a case fails in the same way; then it becomes the best one."""
        key = case_key(case)
        if key == case_key(self.case):
            return True
        if key in self._passing:
            return False
        self._spend()
        if self._fails_now(case):
            return True
        self._passing[key] = None
        return False

    def _spend(self) -> None:
        if self.runs >= self._limit.runs or self.elapsed_s >= self._limit.seconds:
            raise _BudgetSpent

    def _fails_now(self, case: Case) -> bool:
        self.runs += 1
        try:
            finished = self._run(self._subject, case, self._invariants_for(case))
        except WeirError:
            # The smaller case is invalid: a fault without its target, a setting that needs another one.
            return False
        for violation in finished.violations:
            if self._original is None or same_invariant(self._original, violation):
                self.case, self.finished, self.violation = case, finished, violation
                return True
        return False

    def _look(self) -> None:
        """Find how many records each split has, and when the case triggers checkpoints. Records are counted in a run
        without faults: a failing run may end before it has read all of them."""
        witness = Witness(self._subject)
        case = self.case
        self.runs += 2
        self._run(witness.subject, replace(case, faults=(), savepoints=(), schedule={}, dropped={}), [witness])
        self.records = witness.records
        triggers = Triggers()
        run_case(self._subject, case, [triggers], bounds=self._bounds)
        self._instants = tuple(dict.fromkeys(triggers.all))

    # -- passes -------------------------------------------------------------------------------------------------------

    def _until_nothing_changes(self) -> None:
        while True:
            before = self.case
            self._fails(replace(self.case, schedule={}))
            self._name_checkpoints()
            self._simplify_settings()
            self._remove_records()
            self._remove_from("faults")
            self._simplify_faults()
            self._remove_from("savepoints")
            self._simplify_savepoints()
            self._remove_from("checkpoints")
            self._move_checkpoints()
            self._remove_choices()
            self._simplify_choices()
            if self.case is before:
                return

    def _name_checkpoints(self) -> None:
        """Replace an interval by checkpoints at instants: only these can be removed one by one."""
        if self.case.checkpoints is None:
            config = {name: value for name, value in self.case.config.items() if name != "checkpoint_interval"}
            self._fails(replace(self.case, config=config, checkpoints=self._instants))

    def _simplify_settings(self) -> None:
        config = self.case.config
        kept = {name: config[name] for name in _KEPT_SETTINGS if name in config}
        if self.case.checkpoints is None and "checkpoint_interval" in config:
            kept["checkpoint_interval"] = config["checkpoint_interval"]
        if not self._fails(replace(self.case, config={**kept, "batch_size": 1}, seed="0")):
            for name in config:
                if name not in kept:
                    others = {one: value for one, value in self.case.config.items() if one != name}
                    self._fails(replace(self.case, config=others))
            self._fails(self.case.with_config(batch_size=1))
            self._fails(replace(self.case, seed="0"))
        parallelism = self.case.config.get("parallelism")
        if isinstance(parallelism, int):
            any(self._fails(self.case.with_config(parallelism=fewer)) for fewer in range(1, parallelism))

    def _remove_records(self) -> None:
        ddmin(records_of(self.case, self.records), lambda kept: self._fails(self._with_records(kept)))

    def _with_records(self, kept: Sequence[tuple[str, int]]) -> Case:
        wanted = dict.fromkeys(kept)
        dropped: dict[str, Ranges] = {}
        for key, count in self.records.items():
            ranges = ranges_of([number for number in range(count) if (key, number) not in wanted])
            if ranges:
                dropped[key] = ranges
        return replace(self.case, dropped=dropped)

    def _remove_from(self, name: str) -> None:
        """Remove those faults, savepoints or checkpoints of the case that it does not need."""
        items: Sequence[Any] = getattr(self.case, name) or ()

        def fails(kept: Sequence[Any]) -> bool:
            changes: dict[str, Any] = {name: tuple(kept)}
            return self._fails(replace(self.case, **changes))

        ddmin(items, fails)

    def _simplify_faults(self) -> None:
        for at in range(len(self.case.faults)):
            fault = self.case.faults[at]
            if fault.point in POINTS and fault.phase != "before":
                self._fails_with_fault(at, "phase", "before")
            smallest(fault.number, 1, partial(self._fails_with_fault, at, "number"))
            for name in ("for_ns", "at_ns"):
                if getattr(fault, name):
                    self._lower(getattr(fault, name), 0, partial(self._fails_with_fault, at, name))
            if fault.amount > 1:
                smallest(fault.amount, 1, partial(self._fails_with_fault, at, "amount"))

    def _fails_with_fault(self, at: int, name: str, value: int | str) -> bool:
        faults = list(self.case.faults)
        changes: dict[str, Any] = {name: value}
        try:
            faults[at] = replace(faults[at], **changes)
        except ConfigurationError:
            return False
        return self._fails(replace(self.case, faults=tuple(faults)))

    def _lower(self, value: int, least: int, fails: Callable[[int], bool]) -> None:
        """A smaller time: whole microseconds first, because they are easier to read and faster to search."""
        if value % _US and value // _US * _US >= least and fails(value // _US * _US):
            value = value // _US * _US
        if value % _US == 0:
            smallest(value // _US, -(-least // _US), lambda us: fails(us * _US))

    def _simplify_savepoints(self) -> None:
        """Fewer changed settings, no-claim, the canonical form, an earlier instant."""
        for at in range(len(self.case.savepoints)):
            for name in sorted(self.case.savepoints[at].settings):
                settings = self.case.savepoints[at].settings
                self._fails_with_savepoint(at, settings={one: settings[one] for one in settings if one != name})
            self._fails_with_savepoint(at, claim=Savepoint(STOP, 0).claim)
            self._fails_with_savepoint(at, native=False)
            if self.case.savepoints[at].kind in (DRAIN, CANCEL):
                self._fails_with_savepoint(at, kind=STOP)
            self._lower(self.case.savepoints[at].at_ns, 0, partial(self._fails_with_savepoint_at, at))

    def _fails_with_savepoint_at(self, at: int, instant_ns: int) -> bool:
        return self._fails_with_savepoint(at, at_ns=instant_ns)

    def _fails_with_savepoint(self, at: int, **changes: Any) -> bool:
        orders = list(self.case.savepoints)
        orders[at] = replace(orders[at], **changes)
        return self._fails(replace(self.case, savepoints=tuple(orders)))

    def _move_checkpoints(self) -> None:
        for at in range(len(self.case.checkpoints or ())):
            instants = self.case.checkpoints or ()
            self._lower(instants[at], instants[at - 1] + 1 if at else 0, partial(self._fails_at, at))

    def _fails_at(self, at: int, instant_ns: int) -> bool:
        instants = list(self.case.checkpoints or ())
        instants[at] = instant_ns
        return self._fails(replace(self.case, checkpoints=tuple(instants)))

    def _remove_choices(self) -> None:
        ddmin(sorted(self.case.schedule.items()), lambda kept: self._fails(replace(self.case, schedule=dict(kept))))

    def _simplify_choices(self) -> None:
        for number, value in sorted(self.case.schedule.items()):
            smallest(value, 1, partial(self._fails_with_choice, number))

    def _fails_with_choice(self, number: int, value: int) -> bool:
        return self._fails(replace(self.case, schedule={**self.case.schedule, number: value}))

    # -- verification -------------------------------------------------------------------------------------------------

    def _verify(self, *, as_far_as_it_goes: bool) -> tuple[str, ...]:
        """Run each single removal, whatever is known of it. The first one that fails after all becomes the best case
        (and ends this call), unless the budget is already spent."""
        self._limit = self._budget
        self.verified = 0
        unverified: list[str] = []
        for what, smaller in list(removals(self.case, self.records)):
            try:
                self._spend()
            except _BudgetSpent:
                unverified.append(what)
                continue
            if self._fails_now(smaller):
                if not as_far_as_it_goes:
                    return ()
                return self._verify(as_far_as_it_goes=True)
            self._passing[case_key(smaller)] = None
            self.verified += 1
        return tuple(unverified)
