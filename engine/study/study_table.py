"""The results of a sweep: a row for each case, means over seeds, a plot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError, MissingDependencyError
from engine.elements.suggestions import nearest
from engine.report import ResultTable
from engine.study.case_grid import describe
from engine.study.intervals import Mean, mean_of_values
from engine.study.study_file import Row, read_results

_UNITS = ("", "_ns", "_bytes")
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns"))


class StudyTable:
    """Rows of one study: its arguments, ``status`` (``ok``, ``failed`` or ``overloaded``), ``error``, and what it
    measured."""

    def __init__(
        self, name: str, arguments: Sequence[str], rows: Sequence[Row], run: Callable[[int], Any] | None = None
    ) -> None:
        """``run``: runs the case of the row of this number."""
        self.name = name
        self.arguments = tuple(arguments)
        self._rows = list(rows)
        self._run = run

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __getitem__(self, number: int) -> Row:
        return self._rows[number]

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<study {self.name}: {len(self)} cases of {', '.join(self.arguments)}{failed}>"

    @property
    def failed(self) -> list[Row]:
        """The rows of cases that raised an error, were overloaded, or died."""
        return [row for row in self._rows if row["status"] != "ok"]

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of what was measured."""
        given = {*self.arguments, "status", "error"}
        return tuple(dict.fromkeys(name for row in self._rows for name in row if name not in given))

    def mean(self, measure: str, by: str | Sequence[str] | None = None) -> ResultTable:
        """The mean of a measure for each value of ``by``, with its 95 % confidence interval (Student), the number of
        runs that it is of, and how many failed. ``by`` = one argument or several; by default all but ``seed``.

        ``measure`` may leave its unit out: ``makespan``. Raises :class:`ConfigurationError` when there is no such
        measure or argument.
        """
        measure = self._measure(measure)
        names = self._arguments(by)
        unit = next(unit for unit in ("_ns", "_bytes", "") if measure.endswith(unit))
        rows = []
        for key, group in self._groups(names).items():
            mean = _mean(group, measure) or (None, None, None, 0)
            rows.append([*key, *mean, sum(row["status"] != "ok" for row in group)])
        return ResultTable(measure, [*names, f"mean{unit}", f"low{unit}", f"high{unit}", "runs", "failed"], rows)

    def _groups(self, names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in self._rows:
            groups.setdefault(tuple(row[name] for name in names), []).append(row)
        return groups

    def _measure(self, name: str) -> str:
        for unit in _UNITS:
            if name + unit in self.measures:
                return name + unit
        raise self._unknown("measure", name, self.measures)

    def _arguments(self, by: str | Sequence[str] | None) -> tuple[str, ...]:
        if by is None:
            return tuple(name for name in self.arguments if name != "seed")
        names = (by,) if isinstance(by, str) else tuple(by)
        for name in names:
            if name not in self.arguments:
                raise self._unknown("argument", name, self.arguments)
        return names

    def _unknown(self, kind: str, name: str, known: Sequence[str]) -> ConfigurationError:
        close = nearest(name, known)
        hint = f"; did you mean {close!r}?" if close else ""
        if not known and self.failed:
            return ConfigurationError(
                f"study {self.name} has no {kind} {name!r}: every case failed; correct the first one:"
                f" {row_text(self.failed[0], self.arguments)}"
            )
        have = ", ".join(known)
        return ConfigurationError(f"study {self.name} has no {kind} {name!r}{hint} It has: {have}")

    def rerun(self, number: int) -> Any:
        """What the study returns for the case of this row, run here and now: to look into it.

        Raises :class:`ConfigurationError` for a table that was read from a file.
        """
        if self._run is None:
            raise ConfigurationError(f"study {self.name} was read from a file; call its function with the arguments")
        return self._run(number)

    def table(self) -> ResultTable:
        """All rows as one table."""
        columns = [*self.arguments, "status", "error", *self.measures]
        return ResultTable.of_records(self.name, columns, self._rows)

    def to_arrow(self) -> Any:
        """See :class:`engine.report.ResultTable`, as for the other methods."""
        return self.table().to_arrow()

    def to_pandas(self) -> Any:
        return self.table().to_pandas()

    def to_spark(self) -> Any:
        return self.table().to_spark()

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def plot(
        self,
        measure: str,
        x: str | None = None,
        *,
        by: str | None = None,
        to: str | os.PathLike[str] | None = None,
        marks: Mapping[str, float] | None = None,
    ) -> Any:
        """Draw the mean of a measure over an argument, with the confidence interval as a band, and a line for each
        value of ``by``. Returns the matplotlib figure.

        ``x``      by default the first argument that is not the seed; ``to`` a file, ``.svg`` or ``.png``;
        ``marks``  vertical lines with their names, at values of an argument that is a number.

        Raises :class:`MissingDependencyError` without matplotlib.
        """
        measure = self._measure(measure)
        x = self._arguments(x)[0] if x is not None or self._arguments(None) else "seed"
        lines = self._groups(() if by is None else self._arguments(by))
        figure, axes = _figure(self.name)
        factor, unit = _scale(measure, [row.get(measure) for row in self._rows])
        labels = list(dict.fromkeys(row[x] for row in self._rows))
        are_numbers = all(isinstance(label, (int, float)) and not isinstance(label, bool) for label in labels)
        x_factor, x_unit = _scale(x, labels)
        # Numbers are where they are; others stand side by side. A label has one place for all lines, also for one whose
        # runs failed there.
        places = {label: label / x_factor if are_numbers else number for number, label in enumerate(labels)}
        for key, rows in lines.items():
            points = StudyTable(self.name, self.arguments, rows)._groups((x,))
            means = [(label, mean) for (label,), group in points.items() if (mean := _mean(group, measure)) is not None]
            numbers = [places[label] for label, _ in means]
            values = [mean.mean / factor for _, mean in means]
            label = f"{by} = {key[0]}" if by else None
            (line,) = axes.plot(numbers, values, marker="o", label=label)
            low = [mean.low / factor for _, mean in means if mean.low is not None]
            high = [mean.high / factor for _, mean in means if mean.high is not None]
            if len(low) == len(means):
                axes.fill_between(numbers, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        if not are_numbers:
            axes.set_xticks(list(places.values()), list(map(str, labels)))
        for number, (name, value) in enumerate((marks or {}).items()):
            axes.axvline(value / x_factor, label=name, color=f"C{number + 1}", linestyle=("--", ":", "-.")[number % 3])
        axes.set_xlabel(_axis(x, x_unit))
        axes.set_ylabel(_axis(measure, unit))
        axes.set_ylim(bottom=0)
        if by or marks:
            axes.legend()
        if to is not None:
            _save(figure, os.fspath(to))
        return figure


def _mean(rows: Sequence[Row], measure: str) -> Mean | None:
    values = [row[measure] for row in rows if isinstance(row.get(measure), (int, float))]
    return mean_of_values(values) if values else None


def _figure(title: str) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingDependencyError("a plot needs matplotlib; run: pip install 'weirstream[research]'") from error
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    return figure, axes


def _save(figure: Any, path: str) -> None:
    from matplotlib import rc_context

    # Without a date and with fixed ids, so that the same results give the same file.
    with rc_context({"svg.hashsalt": "weir"}):
        figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def _axis(name: str, unit: str) -> str:
    return f"{name.removesuffix('_ns').removesuffix('_bytes')}{unit}" if unit else name


def _scale(measure: str, values: Sequence[Any]) -> tuple[float, str]:
    if not measure.endswith("_ns"):
        return 1, " (bytes)" if measure.endswith("_bytes") else ""
    greatest = max((value for value in values if isinstance(value, (int, float))), default=0)
    factor, unit = next((pair for pair in _TIMES if greatest >= pair[0]), _TIMES[-1])
    return factor, f" ({unit})"


def read_study(path: str | os.PathLike[str]) -> StudyTable:
    """The table that a sweep has written, also one that was interrupted.

    Raises :class:`StorageError` when the file is no results file.
    """
    header, rows = read_results(path)
    arguments = [name for name in (rows[0] if rows else header["arguments"]) if name in header["arguments"]]
    return StudyTable(str(header["study"]), arguments, rows)


def row_text(row: Mapping[str, Any], arguments: Sequence[str]) -> str:
    """A row in one line, for progress."""
    told = describe({name: row[name] for name in arguments})
    return f"{told}: {row['error']}" if row["status"] != "ok" else told
