"""The results of a sweep: a row for each case, means over seeds, a plot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError, MissingDependencyError, StorageError
from engine.elements.suggestions import nearest
from engine.report import ResultTable
from engine.study.case_grid import describe
from engine.study.intervals import Mean, mean_of_values
from engine.study.study_file import Row, read_results

_SCALES = {
    "_ns": ((3.6e12, "h"), (6e10, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")),
    "_bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")),
}
_UNITS = ("", *_SCALES)
_DASHES = ("-", "--", ":", "-.")
_LEGEND_INSIDE = 4
"""The most entries of a legend within a plot."""


class StudyTable:
    """Rows of one study: its arguments, ``status`` (``ok``, ``failed``, ``overloaded`` or ``died``), ``error``,
    and what it measured."""

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
        found = next((name + unit for unit in _UNITS if name + unit in self.measures), None)
        if found is None:
            raise self._unknown("measure", name, [one for one in self.measures if not self._has_texts(one)])
        if self._has_texts(found):
            raise ConfigurationError(
                f"measure {found!r} of study {self.name!r} has texts, and these have no mean; read it in the rows"
            )
        return found

    def _has_texts(self, measure: str) -> bool:
        return any(isinstance(row.get(measure), str) for row in self._rows)

    def _arguments(self, by: str | Sequence[str] | None) -> tuple[str, ...]:
        if by is None:
            return tuple(name for name in self.arguments if name != "seed")
        names = (by,) if isinstance(by, str) else tuple(by)
        for name in names:
            if name not in self.arguments:
                raise self._unknown("argument", name, self.arguments)
        return names

    def _others_than(self, x: str) -> tuple[str, ...]:
        """The other arguments with several values. The interval of a mean over them would say nothing: it takes runs as
        draws of one law."""
        others = [name for name in self._arguments(None) if name != x]
        return tuple(name for name in others if len({row[name] for row in self._rows}) > 1)

    def _unknown(self, kind: str, name: str, known: Sequence[str]) -> ConfigurationError:
        told = f"study {self.name!r} has no {kind} {name!r}"
        if not known and self.failed:
            return ConfigurationError(
                f"{told}: every case failed; correct the first one: {row_text(self.failed[0], self.arguments)}"
            )
        # A unit may be left out.
        names = {one.removesuffix(unit): one for unit in _UNITS for one in known}
        close = nearest(name, names)
        hint = f"; did you mean {names[close]!r}? Choose" if close else "; choose"
        return ConfigurationError(f"{told}{hint} one of {', '.join(known)}")

    def rerun(self, number: int) -> Any:
        """What the study returns for the case of this row, run here and now: to look into it.

        Raises :class:`ConfigurationError` for a table that was read from a file.
        """
        if self._run is None:
            raise ConfigurationError(f"study {self.name!r} was read from a file; call its function with the arguments")
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
        measure: str | Sequence[str],
        x: str | None = None,
        *,
        by: str | Sequence[str] | None = None,
        log: bool = False,
        bars: bool = False,
        marks: Mapping[str, float] | None = None,
        to: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Draw the mean of a measure over an argument, with the confidence interval as a band, and a line for each
        value of ``by``, one argument or several. Several measures stand side by side. Returns the matplotlib figure.

        ``by``     by default all other arguments that have several values, but the seed;
        ``x``      by default the first argument that is not the seed; ``to`` a file, ``.svg`` or ``.png``;
        ``log``    logarithmic axes: that of the measure, which leaves 0 out, and that of ``x`` if it has numbers;
        ``bars``   instead of lines, for an ``x`` whose values have no order;
        ``marks``  vertical lines with their names, at values of an ``x`` that has numbers.

        Raises :class:`MissingDependencyError` without matplotlib, and :class:`StorageError` when ``to`` cannot be
        written.
        """
        if to is not None:
            check_picture(os.fspath(to))
        measures = [self._measure(one) for one in ((measure,) if isinstance(measure, str) else measure)]
        x = self._arguments(x)[0] if x is not None or self._arguments(None) else "seed"
        names = self._others_than(x) if by is None else self._arguments(by)
        groups = self._groups(names)
        styles = _styles(list(groups))
        lines = {
            ", ".join(f"{name} = {one}" for name, one in zip(names, key, strict=True)): (rows, styles[key])
            for key, rows in groups.items()
        }
        figure, panels = _figure(self.name, len(measures))
        for axes, one in zip(panels, measures, strict=True):
            self._draw(axes, one, x, lines, log=log, bars=bars, marks=marks or {})
        if len(lines) + len(marks or ()) > _LEGEND_INSIDE:
            # Inside it would cover the lines.
            figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
            figure.set_figwidth(figure.get_figwidth() + 2.5)
        elif names or marks:
            panels[0].legend()
        if to is not None:
            _save(figure, os.fspath(to))
        return figure

    def _draw(
        self,
        axes: Any,
        measure: str,
        x: str,
        lines: Mapping[str, tuple[Sequence[Row], Mapping[str, str]]],
        *,
        log: bool,
        bars: bool,
        marks: Mapping[str, float],
    ) -> None:
        """One measure. ``lines``: the rows of each line, and its style, by its label."""
        found = [row[measure] for row in self._rows if isinstance(row.get(measure), (int, float))]
        # An axis without a number above 0 cannot be logarithmic.
        is_log = log and max(found, default=0) > 0
        factor, unit = _scale(measure, found)
        labels = list(dict.fromkeys(row[x] for row in self._rows))
        are_numbers = not bars and _are_numbers(labels)
        x_factor, x_unit = _scale(x, labels) if are_numbers else (1, "")
        # Numbers are where they are; others stand side by side. A label has one place for all lines, also for one whose
        # runs failed there.
        places = {label: label / x_factor if are_numbers else number for number, label in enumerate(labels)}
        for number, (name, (rows, style)) in enumerate(lines.items()):
            points = StudyTable(self.name, self.arguments, rows)._groups((x,))
            means = {places[key]: mean for (key,), group in points.items() if (mean := _mean(group, measure))}
            if is_log:
                # A line to 0 would go down for ever.
                means = {place: mean for place, mean in means.items() if mean.mean > 0}
            if bars:
                _add_bars(axes, name, means, factor, number, len(lines))
            else:
                _add_line(axes, name, means, factor, style)
        for number, (name, value) in enumerate(marks.items()):
            axes.axvline(value / x_factor, label=name, color=f"C{number + 1}", linestyle=_DASHES[1 + number % 3])
        axes.set_xlabel(_axis(x, x_unit))
        axes.set_ylabel(_axis(measure, unit))
        if log:
            axes.set(yscale="log" if is_log else "linear", xscale="log" if are_numbers else "linear")
        elif min(found, default=0) >= 0:
            # Room above the highest point, also where all are as high: the axis would end at them.
            axes.set_ylim(0, 1.05 * max(axes.dataLim.ymax, 0) or 1)
        if log or not are_numbers:
            # Long texts would run into each other.
            rotation = 20 if bars and sum(len(str(label)) for label in labels) > 30 else 0
            texts = [f"{place:g}" if are_numbers else str(label) for label, place in places.items()]
            axes.set_xticks(list(places.values()), texts, rotation=rotation)
            axes.set_xticks([], minor=True)


def _mean(rows: Sequence[Row], measure: str) -> Mean | None:
    values = [row[measure] for row in rows if isinstance(row.get(measure), (int, float))]
    return mean_of_values(values) if values else None


def _figure(title: str, panels: int) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingDependencyError("a plot needs matplotlib; run: pip install 'weirstream[research]'") from error
    figure = Figure(figsize=(6.4 if panels == 1 else 4.8 * panels, 4.0), layout="constrained")
    figure.suptitle(title)
    made = list(figure.subplots(1, panels, squeeze=False)[0])
    for axes in made:
        axes.grid(visible=True, alpha=0.3)
    return figure, made


def check_picture(path: str, what: str = "to") -> None:
    """Raises :class:`ConfigurationError` when a plot cannot go to this file, by its ending or its directory."""
    if not path.endswith((".svg", ".png")):
        raise ConfigurationError(f"{what} {path!r} must end with .svg or .png")
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise ConfigurationError(f"{what} {path!r}: there is no directory {directory!r}; create it first")


def _save(figure: Any, path: str) -> None:
    from matplotlib import rc_context

    # Without a date and with fixed ids, so that the same results give the same file.
    try:
        with rc_context({"svg.hashsalt": "weir"}):
            figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}; give another file") from error


def _are_numbers(labels: Sequence[Any]) -> bool:
    return all(isinstance(label, (int, float)) and not isinstance(label, bool) for label in labels)


def _axis(name: str, unit: str) -> str:
    return f"{name.removesuffix('_ns').removesuffix('_bytes')}{unit}" if unit else name


def _styles(keys: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], dict[str, str]]:
    """Of lines by their values of ``by``: the first value has a colour, the others have dashes."""
    firsts, others = (list(dict.fromkeys(part)) for part in ([key[:1] for key in keys], [key[1:] for key in keys]))
    return {
        key: {"color": f"C{firsts.index(key[:1])}", "linestyle": _DASHES[others.index(key[1:]) % len(_DASHES)]}
        for key in keys
    }


def _add_line(
    axes: Any, name: str, means: Mapping[Any, Mean], factor: float, style: Mapping[str, str]
) -> None:
    """``means``: by their place on the axis; with a band, if each has an interval."""
    heights = [mean.mean / factor for mean in means.values()]
    (line,) = axes.plot(list(means), heights, marker="o", label=name or None, **style)
    low = [mean.low / factor for mean in means.values() if mean.low is not None]
    high = [mean.high / factor for mean in means.values() if mean.high is not None]
    if len(low) == len(means):
        axes.fill_between(list(means), low, high, alpha=0.2, color=line.get_color(), linewidth=0)


def _add_bars(axes: Any, name: str, means: Mapping[Any, Mean], factor: float, number: int, count: int) -> None:
    """The bars of the ``number``-th of ``count`` lines, side by side with the others."""
    width = 0.8 / count
    at = [place + (number - (count - 1) / 2) * width for place in means]
    half = [(mean.mean - mean.low) / factor for mean in means.values() if mean.low is not None]
    error = half if len(half) == len(means) else None
    axes.bar(at, [mean.mean / factor for mean in means.values()], width, yerr=error, label=name or None)


def _scale(measure: str, values: Sequence[float]) -> tuple[float, str]:
    scales = next((scales for unit, scales in _SCALES.items() if measure.endswith(unit)), None)
    if scales is None:
        return 1, ""
    greatest = max(values, default=0)
    factor, unit = next((pair for pair in scales if greatest >= pair[0]), scales[-1])
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
