"""What the lessons share: their command line, their table, and the sentences below it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from textwrap import fill
from typing import Any

from engine.elements.errors import WeirError
from engine.report import ResultTable
from engine.study import StudyTable, row_text

_WIDTH = 100
"""Of the sentences, in columns."""


@dataclass(frozen=True)
class Lesson:
    """A question about settings, and what runs answer.

    ``title``     of the plot;
    ``measure``   makes the runs: ``quick`` = few and short ones; ``jobs`` of them at the same time;
    ``shown``     the measures in the table;
    ``conclude``  says what follows from them, with the numbers;
    ``plot``      how to draw them: arguments of :meth:`StudyTable.plot`;
    ``beside``    an argument whose values stand side by side, in a table for each measure.
    """

    title: str
    measure: Callable[[bool, int], StudyTable]
    shown: Sequence[str]
    conclude: Callable[[StudyTable], str]
    plot: Mapping[str, Any]
    beside: str | None = None

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Print the table and the conclusion; draw the plot, if one is asked for."""
        parser = ArgumentParser()
        parser.add_argument("--quick", action="store_true", help="few and short runs, as in the tests")
        parser.add_argument("--jobs", type=int, default=2, help="runs at the same time (default: %(default)s)")
        parser.add_argument("--plot", metavar="FILE", type=_picture, help="draw to this file, .svg or .png")
        options = parser.parse_args(arguments)
        try:
            self._answer(options.quick, options.jobs, options.plot)
        except WeirError as error:
            sys.exit(f"error: {error}")

    def _answer(self, quick: bool, jobs: int, plot: str | None) -> None:
        table = self.measure(quick, jobs)
        table.name = self.title
        if table.failed:
            raise WeirError(f"a run failed: {row_text(table.failed[0], table.arguments)}")
        print("\n\n".join(map(str, self.tables(table))), end="\n\n")
        for line in self.conclude(table).splitlines():
            print(fill(line, _WIDTH))
        if plot is not None:
            table.plot(**self.plot, to=plot)

    def tables(self, table: StudyTable) -> list[Any]:
        """What is printed: one table, or one for each measure if runs differ by seed or stand side by side."""
        if self.beside is not None:
            return [f"{one}\n{_side_by_side(table, one, self.beside)}" for one in self.shown]
        if "seed" in table.arguments:
            by = [name for name in _varied(table) if name != "seed"]
            return [f"{one}\n{table.mean(one, by)}" for one in self.shown]
        return [ResultTable.of_records(table.name, [*_varied(table), *self.shown], list(table))]


def mean(table: StudyTable, measure: str, **arguments: Any) -> float:
    """Of the runs with these arguments."""
    values = [row[measure] for row in table if all(row[name] == value for name, value in arguments.items())]
    return fsum(values) / len(values)


def _picture(path: str) -> str:
    if not path.endswith((".svg", ".png")):
        raise ArgumentTypeError(f"{path!r} must end with .svg or .png")
    return path


def _varied(table: StudyTable) -> list[str]:
    """The arguments that have more than one value."""
    return [name for name in table.arguments if len({row[name] for row in table}) > 1]


def _side_by_side(table: StudyTable, measure: str, argument: str) -> ResultTable:
    others = [name for name in _varied(table) if name != argument]
    unit = next(unit for unit in ("_ns", "_bytes", "") if measure.endswith(unit))
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in table:
        lines.setdefault(tuple(row[name] for name in others), {})[f"{row[argument]}{unit}"] = row[measure]
    columns = list(dict.fromkeys(column for line in lines.values() for column in line))
    return ResultTable(measure, [*others, *columns], [[*key, *map(line.get, columns)] for key, line in lines.items()])
