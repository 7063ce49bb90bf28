"""The rows that a job must commit: the reference that the output of its runs is judged by, also without faults.

For each sink it comes from the first of these that can give its rows:

1. ``expected()`` of the job file (:mod:`engine.explore.run.expected`);
2. the *second opinion* (:mod:`engine.explore.opinion`), which evaluates the job without the engine;
3. a few runs without faults, under several schedules, batch sizes, costs and parallelisms.

If two orders of the second opinion differ, or two of those runs, the job depends on the order in which its records
meet: no rows can be its reference. Then the effect ledger judges (:mod:`engine.explore.invariants.promised_output`):
nothing lost, nothing applied twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.explore.cases import FIFO, RANDOM, Case, Ranges, Setting
from engine.explore.opinion import ORDERS, Opinion, compare_outputs, read_records, second_opinion, text_of
from engine.explore.run.case_outcome import CUT_OFF, FinishedCase
from engine.explore.run.job_under_test import Subject, World
from engine.explore.run.runner import Bounds, run_case
from engine.faults.injector import FaultInjector
from engine.graph.plan import ExecutionPlan

Output = Mapping[str, list[str]]

EXPECTED, OPINION, RUNS, LEDGER = "expected()", "second opinion", "runs without faults", "ledger"
"""The judges of output."""


@dataclass(frozen=True, slots=True)
class Reference:
    """``rows``: by partition; ``order_dependent``: how another order differs, ``None`` when all agree; ``endings``: the
    different outputs that were seen, the first one first; ``judges``: by uid of a sink, the origin of its rows;
    ``not_evaluated``: by uid, why the second opinion does not know them."""

    rows: Output
    order_dependent: str | None = None
    endings: tuple[Output, ...] = ()
    judges: Mapping[str, str] = field(default_factory=dict)
    not_evaluated: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The judges of the output."""
        if self.order_dependent is not None:
            return (LEDGER,)
        return tuple(kind for kind in (EXPECTED, OPINION, RUNS) if kind in self.judges.values()) or (RUNS,)

    @property
    def judged_by(self) -> str:
        """The same for people: sink by sink, unless all have the same judge."""
        if len(self.kinds) == 1:
            return self.kinds[0]
        sinks = {kind: ", ".join(uid for uid, one in self.judges.items() if one == kind) for kind in self.kinds}
        return "; ".join(f"{kind} for {sinks[kind]}" for kind in self.kinds)

    @property
    def is_independent(self) -> bool:
        """Whether no row comes from runs of the engine."""
        return self.order_dependent is None and bool(self.judges) and RUNS not in self.judges.values()


_BOUNDS = Bounds(attempts=2)
"""Without faults no retry is needed."""

MOST_EVENTS = _BOUNDS.events // 5
"""Limit for a job that is to be searched, without faults. With faults, in batches of one record, it takes up to three
times as many events, and a run that is cut off at its bounds counts as one that never ends."""

Dropped = tuple[tuple[str, Ranges], ...]


class References:
    """The references of one job, by the records left out of its input."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._known: dict[Dropped, Reference] = {}
        self._duration_ns = 0
        """Of the longest run so far."""

    def of(self, dropped: Mapping[str, Ranges] | None = None) -> Reference:
        """The reference for this input. Raises :class:`ConfigurationError` when the job does not end without faults."""
        key = tuple(sorted((dropped or {}).items()))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._made(dict(key))
        return known

    def _made(self, dropped: Mapping[str, Ranges]) -> Reference:
        # A job that fails by itself must raise its own error before any other.
        first = None if dropped else self._output(Case(scheduler=FIFO))
        world, plans = self._plans()
        sinks = [*world.sinks, *world.file_outputs, *world.announcers]
        said = self._said(plans[0], world, dropped)
        judges = {uid: EXPECTED for uid in sinks if any(name.partition("/")[0] == uid for name in said)}
        opinion = self._opinion(plans, world, [uid for uid in sinks if uid not in judges], dropped)
        judges |= {uid: RUNS if uid in opinion.unknown else OPINION for uid in sinks if uid not in judges}
        if RUNS not in judges.values():
            endings = [{**ending, **said} for ending in opinion.endings]
            return Reference(endings[0], opinion.dependent, tuple(endings), judges)
        runs = self._runs(first, dropped, [uid for uid, judge in judges.items() if judge == RUNS])
        endings = [{**ending, **said, **run} for ending in opinion.endings for run in runs.endings]
        dependent = opinion.dependent or runs.order_dependent
        return Reference(endings[0], dependent, tuple(endings), judges, opinion.unknown)

    def _plans(self) -> tuple[World, list[ExecutionPlan]]:
        """The job in a world of its own; also with another parallelism if it can have one."""
        from engine.explore.run.job_under_test import World

        world, subject = World(), self._subject
        plans = [subject.in_world(subject.plan(), world)]
        if subject.is_scalable:
            plans.append(subject.in_world(subject.plan(_ANOTHER), World()))
        return world, plans

    def _said(self, plan: ExecutionPlan, world: World, dropped: Mapping[str, Ranges]) -> dict[str, list[str]]:
        """The rows of ``expected()``, as readers see them."""
        expected = self._subject.expected
        if expected is None or (dropped and not expected.takes_inputs):
            return {}
        said: dict[str, list[Any]] = expected.rows(read_records(plan, world.files, dropped))
        known = [*world.sinks, *world.file_outputs, *world.announcers]
        for name in said:
            if name.partition("/")[0] not in known:
                raise ConfigurationError(
                    f"{expected.path}: expected() speaks of {name!r}, and the job has no such sink\n"
                    f"  fix: name one of {', '.join(known)}"
                )
        return {
            name: [row if isinstance(row, str) else text_of(plan, name.partition("/")[0], row) for row in rows]
            for name, rows in said.items()
        }

    def _opinion(
        self, plans: Sequence[ExecutionPlan], world: World, sinks: Sequence[str], dropped: Mapping[str, Ranges]
    ) -> Opinion:
        if not sinks:
            return Opinion(({},))
        try:
            if dropped and self.of().order_dependent is None:
                # A job that is order-independent with all of its input is so with less: one order is enough.
                return second_opinion(plans[:1], world.files, sinks, dropped, ORDERS[:1])
            return second_opinion(plans, world.files, sinks, dropped)
        except Exception as error:
            # The engine has run the same functions without an error. Whatever the cause, there is no opinion.
            return Opinion(({},), dict.fromkeys(sinks, f"evaluating it raised {type(error).__name__}: {error}"))

    def _runs(self, first: Output | None, dropped: Mapping[str, Ranges], sinks: Sequence[str]) -> Reference:
        """The rows of some sinks according to runs without faults."""
        rows = _of(self._output(Case(scheduler=FIFO, dropped=dropped)) if first is None else first, sinks)
        endings, reason = [rows], None
        if dropped:
            # A job that is order-independent with all of its input is so with less.
            return Reference(rows, self.of().order_dependent, (rows,))
        for case in calm_cases(self._subject, self._duration_ns)[1:]:
            output = _of(self._output(case), sinks)
            if all(not compare_outputs(ending, output).equal for ending in endings):
                endings.append(output)
                reason = reason or _difference(rows, output)
        return Reference(rows, reason, tuple(endings))

    def _output(self, case: Case) -> Output:
        finished = undisturbed(self._subject, case)
        self._duration_ns = max(self._duration_ns, finished.result.ended_ns - finished.result.started_ns)
        return finished.committed


def _of(output: Output, sinks: Sequence[str]) -> dict[str, list[str]]:
    return {name: rows for name, rows in output.items() if name.partition("/")[0] in sinks}


def undisturbed(
    subject: Subject, case: Case, *, events: int = _BOUNDS.events, interference: FaultInjector | None = None
) -> FinishedCase:
    """A run without faults that comes to its end.

    Raises :class:`engine.elements.errors.ConfigurationError` when it does not: the job fails by itself, or it takes
    more than so many events of the kernel.
    """
    finished = run_case(subject, case, bounds=replace(_BOUNDS, events=events), interference=interference)
    if finished.is_over:
        return finished
    job, manager = f"job {subject.label!r}", finished.view.execution.manager
    if finished.outcome == CUT_OFF and manager.job.attempt == 1:
        raise ConfigurationError(
            f"{job} is too long to be searched: without faults it has not ended after {finished.events:,} events of the"
            f" kernel and {manager.sources.records:,} records read; it must end within {MOST_EVENTS:,} events\n"
            f"  runs with faults take several times as many, and are cut off after {_BOUNDS.events:,}\n"
            "  fix: give the job fewer records, with --param NAME=VALUE if job() takes their number, or in its file;"
            " give a source without an end one"
        )
    raise ConfigurationError(
        f"{job} is {finished.outcome} even when nothing goes wrong:"
        f" {finished.error or '; '.join(map(str, finished.violations))}\n"
        "  fix the job first: weir run shows the same error"
    ) from finished.error


_ANOTHER = 3
"""Another parallelism in which a scalable job must also be right."""


def calm_cases(subject: Subject, duration_ns: int) -> list[Case]:
    """Runs without faults: first come, first served; and under other schedules, settings and parallelisms.
    ``duration_ns``: of such a run. A job that waits for its records runs long but does little, so it need
    not take a checkpoint in every instant."""
    another = _ANOTHER if subject.is_scalable else None
    often, seldom = (f"{max(least_ns, duration_ns // 8)}ns" for least_ns in (20_000, 50_000))
    others: list[dict[str, Setting]] = [
        {"batch_size": 1},
        {"batch_size": 3, "cost.record_ns": 700, "cost.link_latency_ns": 2_500, "checkpoint_interval": often},
        {"batch_size": 2, "cost.link_latency_ns": 300, "parallelism": another, "checkpoint_interval": seldom},
    ]
    return [
        Case(scheduler=FIFO),
        *(
            Case(seed=f"reference/{number}", config=settings, scheduler=RANDOM)
            for number, settings in enumerate(others)
        ),
    ]


def _difference(first: Output, other: Output) -> str:
    return compare_outputs(first, other).describe(1).replace("\n", ";")
