"""A campaign: very many runs of one job, each drawn from its own seed, over one or several processes.

Rules.
1. Run number *i* of a campaign has the seed ``SEED/i``, and only the seed decides it. With a number of runs the report
   is the same however many workers there are: work is handed out in chunks in the order of their numbers, and runs
   after the first failure are discarded, even if a worker has already made them.
2. A campaign checks itself: every twentieth run is made twice and compared, and a failure is reported only after it
   was replayed three times. A run that differs the second time is itself a violation (V16).
3. The wall clock decides only when to stop, and only if the order says so.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, BinaryIO

from engine.elements.errors import EXIT_UNKNOWN, EXIT_VALID, EXIT_VIOLATED
from engine.explore.cases import Case
from engine.explore.invariants import Footprint, invariants_for, sometimes
from engine.explore.run import (
    RUNS,
    Bounds,
    FinishedCase,
    Invariant,
    Measure,
    Reference,
    Subject,
    Violation,
    World,
    calm_cases,
    run_case,
    trace_digest,
)
from engine.explore.search.coverage import Coverage
from engine.explore.search.made_run import MadeRun
from engine.explore.search.swarm import Swarm, draw_case
from engine.explore.search.workers import Hire, Pool
from engine.observe.trace_events import TraceEvent
from state_backends.files import FileSystem, LocalFileSystem, RandomAccessFile, WrappedFileSystem, WritableFile

CHUNK_RUNS = 20
"""Runs handed out at a time. One of them, the first, is made twice: five per cent."""

REPLAYS = 3

DETERMINISM = "V16"


@dataclass(frozen=True, slots=True)
class CampaignOrder:
    """What is requested. One of ``runs`` and ``seconds`` may be ``None``; with both, the first limit reached ends it.

    ``jobs``        processes that run cases; ``promise``: the judge of output, ``None`` = the promise of each mode;
    ``keep_going``  whether the campaign continues after the first failure;
    ``files``       a directory below which cases use real files, ``None`` = files in memory.
    """

    seed: str = "0"
    runs: int | None = 1_000
    seconds: float | None = None
    jobs: int = 1
    swarm: Swarm = field(default_factory=Swarm)
    promise: str | None = None
    keep_going: bool = False
    files: str | None = None
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True, slots=True)
class Failure:
    """A run with a violation. ``replayed``: how many of the three replays did the same."""

    number: int
    seed: str
    case: Case
    violations: tuple[Violation, ...]
    digest: str
    replayed: int = 0
    drawn: bool = True
    """Whether the case is drawn from its seed; otherwise it is a case without faults, made beforehand."""

    @property
    def violation(self) -> Violation:
        """The first one: the others are often its consequences."""
        return self.violations[0]


@dataclass(slots=True)
class Chunk:
    """The results of some consecutive runs."""

    first: int
    coverage: Coverage = field(default_factory=Coverage)
    failures: list[Failure] = field(default_factory=list)
    runs: list[MadeRun] = field(default_factory=list)


@dataclass(slots=True)
class CampaignReport:
    """The results of a campaign. ``failures`` are in the order of their numbers."""

    order: CampaignOrder
    measure: Measure
    coverage: Coverage
    failures: list[Failure]
    seconds: float
    reference: Reference | None = None
    """The reference that output was judged by; ``None``: nothing was promised."""

    def __repr__(self) -> str:
        return f"<CampaignReport {self.verdict[0]}: {self.coverage.runs:,} runs, {len(self.failures)} failures>"

    @property
    def verdict(self) -> tuple[str, str, int]:
        """``(valid | violated | unknown, one sentence, exit code)``."""
        if self.failures:
            first = self.failures[0]
            return "violated", f"run {first.seed} violates {first.violation}", EXIT_VIOLATED
        unknown = self._why_unknown()
        if unknown is not None:
            return "unknown", unknown, EXIT_UNKNOWN
        judged = ""
        if self.reference is not None and self.reference.order_dependent is not None:
            judged = (
                "; the job's output depends on the order in which records meet"
                f" ({self.reference.order_dependent}), so the ledger judged {self.coverage.by_ledger} of the runs: in"
                " these nothing is lost or applied twice"
            )
        return "valid", f"{self.coverage.runs} runs, and none violates anything{judged}", EXIT_VALID

    def _why_unknown(self) -> str | None:
        coverage = self.coverage
        if not coverage.runs:
            return "no run was made"
        dependent = None if self.reference is None else self.reference.order_dependent
        if dependent is not None and not coverage.by_ledger:
            return (
                "no run violates anything, but the job's output depends on the order in which records meet"
                f" ({dependent}), and the ledger could judge none of the runs"
            )
        if coverage.vacuous:
            return f"no run violates anything, but none {_listed(coverage.vacuous)}"
        return None


def explore(
    load: Callable[[], Subject],
    order: CampaignOrder,
    progress: Callable[[Coverage, float], None] | None = None,
    *,
    clock: Callable[[], float] = perf_counter,
    results: Callable[[Sequence[MadeRun]], None] | None = None,
    hire: Hire[Chunk] | None = None,
) -> CampaignReport:
    """Make a campaign.

    ``load`` makes the job under test. With several workers each calls it in its own process, so it must be a function
    of a module, or a ``functools.partial`` of one. ``progress`` receives what was seen so far, and the number of
    seconds that have passed by ``clock``. ``results`` receives the runs, in the order of their numbers, those without
    faults apart. ``hire`` starts the workers: without it they are processes of this machine, for more than one job.
    """
    started = clock()
    subject = load()
    explorer = Explorer(subject, order)
    # Before all runs: a job that fails by itself is reported as such, not as the first of a thousand failures.
    reference = subject.reference() if order.promise != "none" else None
    coverage, failures = Coverage(), explorer.calm(reference)
    if failures and not order.keep_going:
        return CampaignReport(order, explorer.measure, coverage, failures, clock() - started, reference)
    for chunk in _chunks(load, explorer, order, lambda: clock() - started, hire):
        coverage.merge(chunk.coverage)
        failures += chunk.failures
        if results is not None:
            results(chunk.runs)
        if progress is not None:
            progress(coverage, clock() - started)
        if chunk.failures and not order.keep_going:
            break
    return CampaignReport(order, explorer.measure, coverage, failures, clock() - started, reference)


def _chunks(
    load: Callable[[], Subject],
    explorer: Explorer,
    order: CampaignOrder,
    elapsed_s: Callable[[], float],
    hire: Hire[Chunk] | None,
) -> Iterator[Chunk]:
    """The chunks of a campaign in the order of their numbers."""
    spans = _spans(order, elapsed_s)
    if order.jobs == 1 and hire is None:
        for first, count in spans:
            yield explorer.chunk(first, count)
        return
    with (hire or Pool)(order.jobs, partial(_worker, load, order)) as workers:
        yield from workers.in_order(spans)


def _worker(load: Callable[[], Subject], order: CampaignOrder) -> Callable[[int, int], Chunk]:
    """The function with which a separate process makes chunks."""
    return Explorer(load(), order).chunk


def _spans(order: CampaignOrder, elapsed_s: Callable[[], float]) -> Iterator[tuple[int, int]]:
    """``(first, count)`` of each chunk, until there were enough runs or the time is over."""
    first = 0
    while order.runs is None or first < order.runs:
        if order.seconds is not None and elapsed_s() >= order.seconds:
            return
        count = CHUNK_RUNS if order.runs is None else min(CHUNK_RUNS, order.runs - first)
        yield first, count
        first += count


class Explorer:
    """Makes the runs of a campaign in this process."""

    def __init__(self, subject: Subject, order: CampaignOrder) -> None:
        self._subject = subject
        self._order = order
        self.measure = subject.measure()
        self._files = None if order.files is None else LocalFileSystem()

    def calm(self, reference: Reference | None) -> list[Failure]:
        """Runs without faults whose output breaks the promise: then the engine is wrong without any fault. If the
        reference comes from such runs, there is nothing to compare them with."""
        failures = []
        if reference is not None and set(reference.judges.values()) != {RUNS}:
            for number, case in enumerate(calm_cases(self._subject, self.measure.duration_ns)):
                made = self._made(case, number, whole=True)
                if made.finished.violations:
                    failures.append(self._failure(number, f"without-faults/{number}", case, made, drawn=False))
                    if not self._order.keep_going:
                        break
        return failures

    def chunk(self, first: int, count: int) -> Chunk:
        """Make consecutive runs; unless the campaign continues after failures, the first failure ends them."""
        chunk = Chunk(first)
        with garbage_kept() as collect:
            for number in range(first, first + count):
                made, failure = self._run(number, chunk.coverage)
                collect()
                chunk.runs.append(made)
                if failure is not None:
                    chunk.failures.append(failure)
                    if not self._order.keep_going:
                        break
        return chunk

    def _run(self, number: int, coverage: Coverage) -> tuple[MadeRun, Failure | None]:
        seed = f"{self._order.seed}/{number}"
        case = draw_case(self._order.swarm, self.measure, seed)
        made = self._made(case, number)
        coverage.add(made.finished, made.digest, made.invariants, sometimes(made.invariants))
        violations = list(made.finished.violations)
        if not violations and number % CHUNK_RUNS == 0:
            coverage.checked += 1
            violations += _differences(made, self._made_again(case, number, made))
        failure = self._failure(number, seed, case, made, violations) if violations else None
        return MadeRun.of(number, seed, made.finished, made.digest, failure.violations if failure else ()), failure

    def _failure(
        self,
        number: int,
        seed: str,
        case: Case,
        made: _Made,
        violations: list[Violation] | None = None,
        *,
        drawn: bool = True,
    ) -> Failure:
        violations = list(made.finished.violations) if violations is None else violations
        if made.footprint is None:
            made = self._made(case, number, whole=True)
        replays = [self._made(case, number, whole=True) for _ in range(REPLAYS)]
        others = [replay for replay in replays if replay.footprint != made.footprint]
        if others and violations[0].invariant != DETERMINISM:
            violations += _differences(made, others[0])
        portable = tuple(map(_portable, violations))
        return Failure(number, seed, case, portable, made.digest, REPLAYS - len(others), drawn)

    def _made_again(self, case: Case, number: int, made: _Made) -> _Made:
        """The run once more. Nothing judges it: an invariant changes no run, unless it is replaced by the ledger, for
        which each record is a batch of its own."""
        return self._made(case, number, whole=True, is_judged=made.finished.judged_by_ledger)

    def _made(self, case: Case, number: int, *, whole: bool = False, is_judged: bool = True) -> _Made:
        trace: list[TraceEvent] = []
        invariants = invariants_for(self._order.promise) if is_judged else []
        root = None if self._order.files is None else f"{self._order.files}/run-{number}"
        world = World()
        disks: tuple[RootedFileSystem, ...] = ()
        if self._files is not None and root is not None:
            disks = tuple(RootedFileSystem(self._files, f"{root}/{name}") for name in ("storage", "files"))
            world.checkpoints, world.files = disks
        try:
            finished = run_case(
                self._subject, case, invariants, world=world, instruments=[trace.append], bounds=self._order.bounds
            )
            digest = trace_digest(trace)
            # The run, which refers to itself, keeps its instrument: without the events less is left to be collected.
            trace.clear()
            whole = whole or number % CHUNK_RUNS == 0
            return _Made(finished, invariants, digest, Footprint.of(finished, digest) if whole else None)
        finally:
            for disk in disks:
                disk.release()
            if self._files is not None and root is not None:
                self._files.delete_tree(root)


@contextmanager
def garbage_kept() -> Iterator[Callable[[], object]]:
    """Each run leaves thousands of objects that refer to each other. The caller has them collected after the run, by
    calling the given function: cheaper than all the time, and than after many runs, when they are in no cache any more.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield partial(gc.collect, 0)
    finally:
        if was_enabled:
            gc.enable()
            gc.collect(1)


@dataclass(frozen=True, slots=True)
class _Made:
    """A run that was made; its results are kept only where they are compared."""

    finished: FinishedCase
    invariants: Sequence[Invariant]
    digest: str
    footprint: Footprint | None


def _differences(first: _Made, second: _Made) -> list[Violation]:
    assert first.footprint is not None
    assert second.footprint is not None
    different = first.footprint.differences(second.footprint)
    if not different:
        return []
    text = "; ".join(different[:3]) + (f"; and {len(different) - 3} further differences" if len(different) > 3 else "")
    return [Violation(DETERMINISM, f"made a second time, the run is another one: {text}")]


def _portable(violation: Violation) -> Violation:
    """Without details that have a meaning only in the process that saw it."""
    details = {name: value for name, value in violation.details.items() if isinstance(value, str | int | None)}
    return Violation(violation.invariant, violation.text, violation.at_ns, details)


def _listed(names: Sequence[str]) -> str:
    return "; none ".join(names)


_OPENS = frozenset(["open_write", "open_append", "open_read", "open_random"])


class RootedFileSystem(WrappedFileSystem):
    """Maps all paths of a file system below one directory. The path ``/out`` of a case lies there, so that cases on
    real files neither meet each other nor know where they are.

    A dying process closes no files, and here it only counts as dead: :meth:`release` closes its open files.
    """

    def __init__(self, inner: FileSystem, root: str) -> None:
        super().__init__(inner)
        self._root = root.rstrip("/")
        self._opened: list[WritableFile | RandomAccessFile | BinaryIO] = []
        inner.make_dirs(self._root)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path.lstrip('/')}"

    def release(self) -> None:
        """Close every file that was opened here and may still be open."""
        for file in self._opened:
            file.close()
        self._opened.clear()

    def real_path(self, path: str) -> str:
        """The path itself: the caller does not know where it lies."""
        return path

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        there = [self._at(one) if type(one) is str else one for one in arguments]
        answer = super()._call(operation, *there, **options)
        if operation in _OPENS:
            self._opened.append(answer)
        return answer
