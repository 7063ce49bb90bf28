"""Advice about a job: how often it should take a checkpoint, by formula and by simulation, and how many tasks it needs.

The formulas know the cost of a checkpoint and the time between failures. The simulation knows the job: pipelines,
checkpoints that take longer than they stop the job, failures during recoveries. It says how far the formulas hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from tempfile import TemporaryDirectory
from typing import Any

from engine.elements.durations import duration_text, parse_duration_ns, rounded_ns
from engine.elements.errors import ConfigurationError, check_whole
from engine.elements.failure_laws import STORAGE, TASK, Failures
from engine.elements.laws import Exponential, parse_rate
from engine.graph.job import Job
from engine.report import ResultTable, RunResult
from engine.report.units import format_ns
from engine.study.best_intervals import best_period, daly_work, expected_makespan, young_work
from engine.study.intervals import Mean, mean_of_values
from engine.study.job_costs import Run, check_length, check_mode, checkpoint_cost_ns, recovery_cost_ns
from engine.study.row_measures import measures_of
from engine.study.study_file import StudyIdentity
from engine.study.study_table import StudyTable
from engine.study.sweep import Progress, identity_of, sweep
from engine.study.true_rates import rescaling

ARGUMENTS = ("checkpoint_interval_ns", "seed")
"""Of the study: what its rows differ in."""

_INTERVAL = ARGUMENTS[0]
_FACTORS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)
"""The work between two checkpoints that is tried, in parts of that of the exact formula."""
_DECIDED = ("checkpoint_interval", "failures", "kills", "seed", "storage", "restore", "output_dir", "on")


def advise(
    job: Callable[[], Job],
    *,
    mtbf: str,
    target: str = TASK,
    rate: str | None = None,
    seeds: int = 10,
    jobs: int = 1,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    identity: StudyIdentity | None = None,
    **settings: Any,
) -> Advice:
    """How often the job should take a checkpoint if it fails each ``mtbf`` on average, and how many tasks it needs.

    ``job``       builds the job; each run has a new one;
    ``target``    what fails: ``task``, ``host`` or ``job manager``, as for :class:`engine.study.Failures`;
    ``rate``      records per time that the sources shall handle together, such as ``"900/s"``: adds the number of tasks
                  for it, see :func:`engine.study.rescaling`;
    ``seeds``     runs at each interval, at least 2. A seed means the same failures at every interval;
    ``settings``  those of ``Job.run``, the same in all runs. ``batch_size`` is 1 by default: a source that ends takes
                  the time of a whole batch, which must be short beside an interval.

    The others are as for :func:`engine.study.sweep`. ``engine.study.job_costs`` says how costs are measured.

    Raises :class:`ConfigurationError` for a job that is too short to fail, takes no checkpoints, or has such that cost
    nothing; what ``sweep`` raises; and the error of a run that fails, such as one that gets more records than it can
    handle.
    """
    from engine.job_runner import has_arrivals

    mtbf_ns = _checked(mtbf, target, rate, settings)
    check_whole("seeds", seeds, 2)
    run = _runs_of(job, {"batch_size": 1, **settings})
    calm = run(checkpoint_interval=None)
    check_mode(calm)
    check_length(calm.makespan_ns, mtbf_ns)
    is_paced = has_arrivals(calm.plan)
    cost_ns = checkpoint_cost_ns(run, calm, mtbf_ns, is_paced=is_paced)
    period_ns = best_period(cost_ns, mtbf_ns)
    check_length(calm.makespan_ns, mtbf_ns, period_ns)
    recovery_ns = recovery_cost_ns(run, calm.makespan_ns, mtbf_ns, rounded_ns(period_ns), target)

    def study(checkpoint_interval_ns: int, seed: int) -> dict[str, Any]:
        result = run(
            checkpoint_interval=duration_text(checkpoint_interval_ns), seed=seed,
            failures=Failures(Exponential(mtbf_ns), target),
        )  # fmt: skip
        lost_ns = sum((row["lost_ns"] or 0) + row["read_ns"] for row in result.recoveries)
        return {**measures_of(result), "overhead_ns": lost_ns + cost_ns * result.execution.checkpoints.completed}

    if identity is None:
        asked = repr((mtbf_ns, target, sorted(settings.items())))
        identity = replace(identity_of(job, ARGUMENTS, out, asked), study=calm.plan.job_name)
    intervals = sorted({rounded_ns(cost_ns + factor * (period_ns - cost_ns)) for factor in _FACTORS})
    table = sweep(
        study, checkpoint_interval_ns=intervals, seed=range(seeds), jobs=jobs, out=out, progress=progress,
        identity=identity,
    )  # fmt: skip
    # The time in which a task takes snapshots is none of its records.
    scaled = None if rate is None else rescaling(run(checkpoint_interval=None, **{"cost.sync": "0s"}), rate)
    return Advice(mtbf_ns, target, calm.makespan_ns, cost_ns, recovery_ns, is_paced, table, rate, scaled)


@dataclass(frozen=True, repr=False)
class Advice:
    """What the formulas say, what the simulation says, and whether they agree.

    ``makespan_ns``    of the job without failures and periodic checkpoints;
    ``checkpoint_ns``  what a checkpoint costs the job, and ``recovery_ns`` a recovery;
    ``is_paced``       whether records come at times of their own. Then intervals are compared by the overhead: the time
                       from the trigger of each restored checkpoint until the job runs again, and the cost of each
                       checkpoint. Otherwise by the makespan;
    ``study``          the runs, with both measures;
    ``rescaling``      the number of tasks for ``rate``, see :func:`engine.study.rescaling`.
    """

    mtbf_ns: int
    target: str
    makespan_ns: int
    checkpoint_ns: float
    recovery_ns: int
    is_paced: bool
    study: StudyTable
    rate: str | None = None
    rescaling: ResultTable | None = None

    @property
    def measure(self) -> str:
        """What intervals are compared by; shorter is better."""
        return "overhead_ns" if self.is_paced else "makespan_ns"

    @property
    def formulas(self) -> ResultTable:
        """What Young, Daly and the exact optimum say: the work between two checkpoints, the checkpoint interval that
        this means, and the measure that the model expects there."""
        cost, mtbf = self.checkpoint_ns, self.mtbf_ns
        exact = best_period(cost, mtbf)
        periods = {"Young": young_work(cost, mtbf) + cost, "Daly": daly_work(cost, mtbf) + cost, "exact": exact}
        rows = [(name, period - cost, period, self._expected_ns(period)) for name, period in periods.items()]
        return ResultTable("formulas", ("formula", "work_ns", _INTERVAL, "expected_ns"), rows)

    @property
    def means(self) -> ResultTable:
        """The mean of the measure at each interval, with its 95 % confidence interval, and what the model expects."""
        found = self.study.mean(self.measure, by=_INTERVAL)
        rows = [(*row.values(), self._expected_ns(row[_INTERVAL])) for row in found]
        return ResultTable(found.name, (*found.columns, "expected_ns"), rows)

    def _expected_ns(self, interval_ns: float) -> float:
        work_ns = self.makespan_ns
        makespan_ns = expected_makespan(work_ns, interval_ns, self.checkpoint_ns, self.mtbf_ns, self.recovery_ns)
        # Records that come at their own times end at their time; of that the same part is lost.
        return work_ns * (1 - work_ns / makespan_ns) if self.is_paced else makespan_ns

    @property
    def formula_interval_ns(self) -> int:
        """The exact formula's interval, as it was simulated: with three digits."""
        return rounded_ns(best_period(self.checkpoint_ns, self.mtbf_ns))

    @property
    def best_interval_ns(self) -> int:
        """The best interval of the simulation. One at which runs failed counts only if none has more that did not."""
        means = list(self.means)
        most = max(row["runs"] for row in means)
        best: int = min((row for row in means if row["runs"] == most), key=lambda row: row["mean_ns"])[_INTERVAL]
        return best

    @property
    def difference(self) -> Mean | None:
        """By how much the measure is greater at the formula's interval than at the best one, seed by seed: both had the
        same failures. ``None`` = no seed ended at both."""
        found: dict[int, dict[Any, Any]] = {}
        for row in self.study:
            if row["status"] == "ok":
                found.setdefault(row[_INTERVAL], {})[row["seed"]] = row[self.measure]
        formula, best = found.get(self.formula_interval_ns, {}), found[self.best_interval_ns]
        differences = [formula[seed] - best[seed] for seed in best if seed in formula]
        return mean_of_values(differences) if differences else None

    @property
    def verdict(self) -> str:
        """Which interval was the best, and whether the runs tell it from that of the formula."""
        best, formula = format_ns(self.best_interval_ns), format_ns(self.formula_interval_ns)
        if self.best_interval_ns == self.formula_interval_ns:
            return f"best in simulation: {best}, the interval of the exact formula"
        apart, name = self.difference, self.measure.removesuffix("_ns")
        if apart is None or apart.low is None or apart.high is None:
            return f"best in simulation: {best}; too few runs ended at the {formula} of the exact formula to compare"
        whole = next(row["mean_ns"] for row in self.means if row[_INTERVAL] == self.best_interval_ns) / 100
        more, low, high = apart.mean / whole, apart.low / whole, apart.high / whole
        told = "these runs do not tell the two apart" if low <= 0 else "for this job the formula is off"
        return (
            f"best in simulation: {best}. At the {formula} of the exact formula the {name} is {more:.2g} % longer"
            f" (95 % interval {low:.2g} % to {high:.2g} %): {told}"
        )

    def __repr__(self) -> str:
        return f"<advice about {self.study.name}: {self.verdict}>"

    def _repr_html_(self) -> str:
        """For notebooks: what ``print`` shows."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        """The costs, the formulas, the simulation, the verdict; then the number of tasks."""
        measured = self.measure.removesuffix("_ns")
        parts = [
            f"without failures the job takes {format_ns(self.makespan_ns)}; a checkpoint costs it"
            f" {format_ns(self.checkpoint_ns)}, a recovery takes {format_ns(self.recovery_ns)}",
            str(self.formulas),
            f"{measured}: mean and 95 % confidence interval; each seed has the same failures at every interval",
            self.means.text(),
            self.verdict,
        ]
        if self.rescaling is not None:
            parts += [f"tasks for {self.rate}, by true rates", self.rescaling.text()]
            for row in self.rescaling:
                if row["proposed"] > row["max_parallelism"]:
                    parts.append(f"{row['vertex']} needs a max_parallelism of {row['proposed']} or more")
        return "\n".join(parts)

    def report(self) -> dict[str, Any]:
        """All of it as plain values."""
        names = ("mtbf_ns", "target", "makespan_ns", "checkpoint_ns", "recovery_ns", "measure", "best_interval_ns")
        tables = {"formulas": self.formulas, "means": self.means, "rescaling": self.rescaling or ()}
        found = {name: getattr(self, name) for name in (*names, "formula_interval_ns", "verdict")}
        apart = self.difference
        found["difference"] = None if apart is None else apart._asdict()
        return found | {name: list(table) for name, table in tables.items()}

    def plot(self, to: str | os.PathLike[str] | None = None) -> Any:
        """Draw the measure over the intervals, with the confidence interval as a band and a vertical line for each
        formula; see :meth:`engine.study.StudyTable.plot`."""
        marks = {row["formula"]: row[_INTERVAL] for row in self.formulas}
        return self.study.plot(self.measure, _INTERVAL, to=to, marks=marks)


def _checked(mtbf: object, target: str, rate: str | None, settings: Mapping[str, object]) -> int:
    """The time between failures; what cannot be advised about is refused."""
    if not isinstance(mtbf, str):
        raise ConfigurationError(f"mtbf is {mtbf!r} of type {type(mtbf).__name__}; write a time such as '6h'")
    mtbf_ns = parse_duration_ns(mtbf, "mtbf")
    if mtbf_ns < 1:
        raise ConfigurationError(f"mtbf is {mtbf}; it must be above 0: a time such as 6h")
    if target == STORAGE:
        raise ConfigurationError(
            "target is storage: its failures lose checkpoints and no work, so there is nothing to weigh against their"
            " cost\n  fix: choose task, host or job manager"
        )
    Failures(Exponential(mtbf_ns), target)
    if rate is not None:
        parse_rate(rate)
    for name in settings:
        if name in _DECIDED:
            raise ConfigurationError(f"advise: {name} is decided here, for each run; leave it out")
    return mtbf_ns


def _runs_of(job: Callable[[], Job], settings: Mapping[str, Any]) -> Run:
    build: Any = job

    def run(**more: Any) -> RunResult:
        made = build() if callable(build) else None
        if not isinstance(made, Job):
            raise ConfigurationError(
                f"advise: {job!r} does not build a job; give a function that returns a new one, for each run"
            )
        # The output of these runs is not kept.
        with TemporaryDirectory() as directory:
            return made.run(**{**settings, **more}, output_dir=os.path.join(directory, "out"))

    return run
