"""One job under two protocols in a notebook: the value of the cell is the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.explore.cases import Case
from engine.explore.run import Subject
from engine.faults.fault import parse_fault
from engine.graph.job import Job
from engine.protocols.protocol_names import protocol_named
from engine.report.result_table import ResultTable
from engine.view.compare import Compared, compare_modes, comparison_page, comparison_table, verdict_of
from engine.view.page import framed, write_page

_HEIGHT = 760


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of one job, in two modes or more. A notebook shows what they measured and the page of the first two;
    :meth:`save` writes that page to a file."""

    runs: tuple[Compared, ...]
    text: str

    @property
    def verdict(self) -> str:
        """What the comparison comes to, in a line."""
        return verdict_of(self.runs)

    @property
    def table(self) -> ResultTable:
        """A row for each measure, a column for each run."""
        measures = comparison_table(self.runs)
        return ResultTable("measured in each run", ["measure", *measures["heads"][1:]], measures["rows"])

    def __repr__(self) -> str:
        return f"<Comparison: {self.verdict}>"

    def _repr_html_(self) -> str:
        told = [f"mode {run.mode}: {sentence}" for run in self.runs for sentence in run.sentences]
        lines = "".join(f"<p>{escape(line)}</p>" for line in [self.verdict, *told])
        return lines + self.table._repr_html_() + framed(self.text, "Two runs of Weir in step", _HEIGHT)

    def save(self, path: str) -> None:
        """Write the page. Raises :class:`ConfigurationError` when that is impossible."""
        write_page(path, self.text)


def side_by_side(
    make: Callable[[], Job],
    modes: Sequence[str] = ("aligned", "at-least-once"),
    *,
    faults: Sequence[str] = (),
    seed: str = "0",
    **settings: Any,
) -> Comparison:
    """Run the job that ``make`` builds in each mode, with one input, one schedule and one crash.

    ``faults``: in their text form, as of ``--fault``; ``settings``: as of :class:`engine.explore.cases.Case`, such as
    ``checkpoint_interval="2rec"``. Raises :class:`ConfigurationError` for fewer than two modes, for modes without
    checkpoints, and for wrong settings.
    """
    names = [protocol_named(mode).name for mode in modes if protocol_named(mode).takes_checkpoints]
    if len(names) < 2 or len(set(names)) < len(modes):
        raise ConfigurationError(
            f"modes {list(modes)} must be two different ones at least, which take checkpoints\n"
            '  fix: modes=["aligned", "at-least-once"]'
        )
    label = make().name
    case = Case(seed, dict(settings), tuple(map(parse_fault, faults)))
    runs = tuple(compare_modes(Subject(lambda _: make(), label=label), case, names))
    crash = ", ".join(faults) or "no fault"
    lines = [("soft", f"One job, one input, one schedule, one crash: {crash}"), ("verdict", verdict_of(runs))]
    return Comparison(runs, comparison_page(f"{label}: {names[0]} and {names[1]}", runs[:2], lines))
