"""Means with confidence intervals, plots, and other forms of the results of a sweep."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine import ConfigurationError, StorageError
from engine.study import StudyTable, sweep
from engine.study.intervals import mean_of_values, student_quantile, student_within


def table() -> StudyTable:
    rows: list[dict[str, Any]] = [
        {"interval": interval, "seed": seed, "status": "ok", "error": None, "makespan_ns": base + seed * 1_000_000}
        for interval, base in (("1ms", 10_000_000), ("2ms", 20_000_000))
        for seed in range(3)
    ]
    rows.append({"interval": "2ms", "seed": 3, "status": "failed", "error": "JobFailedError: it died"})
    return StudyTable("queue", ("interval", "seed"), rows)


def test_quantiles_of_student_are_those_of_the_tables() -> None:
    """The two-sided 95 % point for some degrees of freedom, from printed tables."""
    known = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 10: 2.228, 19: 2.093, 30: 2.042, 99: 1.984, 1000: 1.962}

    assert {degrees: round(student_quantile(degrees), 3) for degrees in known} == known


@given(st.integers(1, 200), st.floats(0.001, 50))
def test_the_distribution_of_student_grows(degrees: int, t: float) -> None:
    """It is a probability, and greater for a greater value."""
    assert 0 <= student_within(t, degrees) <= student_within(t * 1.1, degrees) + 1e-12 <= 1 + 2e-12


def test_a_mean_has_its_interval() -> None:
    """1, 2, 3: half a width of 4.303 * 1 / sqrt(3). One value says nothing about others."""
    mean = mean_of_values([1.0, 2.0, 3.0])

    assert (mean.mean, mean.runs) == (2.0, 3)
    assert mean.low == pytest.approx(2 - 4.302653 / math.sqrt(3), rel=1e-6)
    assert mean.high == pytest.approx(2 + 4.302653 / math.sqrt(3), rel=1e-6)
    assert mean_of_values([5.0]) == (5.0, None, None, 1)


def test_intervals_hold_the_true_mean_as_often_as_they_say() -> None:
    """Of 400 studies of five means of a known law, 95 % hold its mean."""
    from engine.elements.laws import sample_ns
    from engine.runtime.kernel import ChoiceRecorder
    from engine.study import Exponential

    law, recorder = Exponential(1_000_000), ChoiceRecorder("intervals")
    held = 0
    for _ in range(400):
        # The sum of 12 draws is nearly normal, as the interval assumes.
        sums = [sum(sample_ns(law, lambda bound: recorder.draw("x", bound)) for _ in range(12)) for _ in range(5)]
        mean = mean_of_values([one / 12 for one in sums])
        assert mean.low is not None
        assert mean.high is not None
        held += mean.low <= 1_000_000 <= mean.high
    assert 368 <= held <= 392


def test_means_are_by_argument_over_seeds() -> None:
    """With the number of runs and of failures; the unit of the measure may be left out."""
    means = table().mean("makespan", by="interval")

    assert means.columns == ("interval", "mean_ns", "low_ns", "high_ns", "runs", "failed")
    assert means["mean_ns"] == [11_000_000, 21_000_000]
    assert (means["runs"], means["failed"]) == ([3, 3], [0, 1])
    assert str(means).splitlines()[1].split()[:2] == ["1ms", "11ms"]
    assert list(table().mean("makespan_ns")) == list(means), "all arguments but the seed"


def test_names_that_do_not_exist_are_refused() -> None:
    """With the nearest one, and all there are; the unit may be left out."""
    with pytest.raises(ConfigurationError, match=r"no measure 'makspan'; did you mean 'makespan_ns'\? Choose one of"):
        table().mean("makspan")
    with pytest.raises(ConfigurationError, match="no measure 'lost'; choose one of makespan_ns"):
        table().mean("lost")
    with pytest.raises(ConfigurationError, match="no measure 'makspan_ns'; did you mean 'makespan_ns'"):
        table().mean("makspan_ns")
    with pytest.raises(ConfigurationError, match="no argument 'intervall'; did you mean 'interval'"):
        table().mean("makespan", by="intervall")


def test_texts_have_no_mean() -> None:
    """A column of them is told, instead of a table without numbers; it is not among the measures to choose from."""
    found = sweep(lambda x: {"side": "left", "length": x}, x=[1, 2])

    for take in (found.mean, found.plot):
        with pytest.raises(ConfigurationError, match="measure 'side' of study '<lambda>' has texts, and these have no"):
            take("side")
    with pytest.raises(ConfigurationError, match=r"no measure 'sides'; choose one of length$"):
        found.mean("sides")


def test_a_table_goes_to_other_tools() -> None:
    """With a column for each argument and measure; a failed case has no measures."""
    arrow = table().to_arrow()

    assert arrow.column_names == ["interval", "seed", "status", "error", "makespan_ns"]
    assert arrow["makespan_ns"].null_count == 1
    assert len(table().to_pandas()) == 7
    assert "JobFailedError" in table()._repr_html_()


def test_a_table_of_a_file_cannot_run_its_study() -> None:
    """It has no function."""
    with pytest.raises(ConfigurationError, match="was read from a file; call its function"):
        table().rerun(0)


def test_a_plot_shows_means_with_a_band(tmp_path: Path) -> None:
    """The same results give the same file; texts stand side by side, times in a unit that fits."""
    pytest.importorskip("matplotlib")
    figure = table().plot("makespan", x="interval", to=tmp_path / "one.svg")
    table().plot("makespan", x="interval", to=tmp_path / "two.svg")

    (axes,) = figure.axes
    (line,), (band,) = axes.lines, axes.collections
    assert list(line.get_ydata()) == [11, 21]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1ms", "2ms"]
    assert axes.get_ylabel() == "makespan (ms)"
    half = 4.302653 / math.sqrt(3)
    assert band.get_datalim(axes.transData).y0 == pytest.approx(11 - half, rel=1e-6)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_plot_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """By its ending and its directory, before it is drawn; by the disk after that."""
    pytest.importorskip("matplotlib")
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(ConfigurationError, match=r"to 'plot.pdf' must end with .svg or .png"):
        table().plot("makespan", to="plot.pdf")
    with pytest.raises(ConfigurationError, match="there is no directory '/nowhere'; create it first"):
        table().plot("makespan", to="/nowhere/plot.svg")
    with pytest.raises(StorageError, match=r"taken.svg: cannot be written: Is a directory; give another file"):
        table().plot("makespan", to=tmp_path / "taken.svg")


def test_a_plot_has_a_line_for_each_value() -> None:
    """With a legend; of a single run there is no band."""
    pytest.importorskip("matplotlib")
    numbers = sweep(lambda x, factor: x * factor, x=[1, 2, 3], factor=[1, 10])
    (axes,) = numbers.plot("value", x="x", by="factor").axes

    assert [list(line.get_ydata()) for line in axes.lines] == [[1, 2, 3], [10, 20, 30]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["factor = 1", "factor = 10"]
    assert not axes.collections


def test_a_plot_has_room_above_its_highest_point() -> None:
    """Also when all means are nearly the same, which must show as a flat line; axes begin at 0 unless numbers are
    below."""
    pytest.importorskip("matplotlib")

    def limits(values: list[float]) -> tuple[float, float]:
        rows = [{"x": number, "status": "ok", "time_ns": value * 3.6e12} for number, value in enumerate(values)]
        (axes,) = StudyTable("flat", ("x",), rows).plot("time", x="x").axes
        assert axes.get_ylabel() == "time (h)"
        low, high = axes.get_ylim()
        return low, high

    assert limits([4, 4, 4]) == pytest.approx((0, 4.2))
    assert limits([2, 4]) == pytest.approx((0, 4.2))
    assert limits([-1, 4])[0] < -1


def test_by_default_a_plot_mixes_no_cases_but_those_of_several_seeds() -> None:
    """Arguments that differ beside the x have lines: an interval over them would mean nothing."""
    pytest.importorskip("matplotlib")
    found = sweep(lambda x, factor, same, seed: x * factor + seed, x=[1, 2], factor=[1, 10], same=0, seed=range(2))

    (axes,), (mixed,) = found.plot("value", x="x").axes, found.plot("value", x="x", by=()).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["factor = 1", "factor = 10"]
    assert [list(line.get_ydata()) for line in axes.lines] == [[1.5, 2.5], [10.5, 20.5]]
    assert [list(line.get_ydata()) for line in mixed.lines] == [[6, 11.5]]


def test_measures_of_a_plot_stand_side_by_side() -> None:
    """Each in a unit that fits, with a line for each combination of several arguments, and one legend. A colour is a
    value of the first argument, dashes are one of the second."""
    pytest.importorskip("matplotlib")

    def study(x: int, a: int, b: str) -> dict[str, int]:
        return {"time_ns": x * a * 1_000_000, "size_bytes": x << 20}

    times, sizes = sweep(study, x=[1, 10], a=[1, 2], b=["p", "q"]).plot(["time", "size"], x="x", by=["a", "b"]).axes

    assert [list(line.get_ydata()) for line in times.lines] == [[1, 10], [1, 10], [2, 20], [2, 20]]
    assert [list(line.get_ydata()) for line in sizes.lines] == [[1, 10]] * 4
    assert (times.get_ylabel(), sizes.get_ylabel()) == ("time (ms)", "size (MiB)")
    assert [text.get_text() for text in times.get_legend().get_texts()] == [
        "a = 1, b = p", "a = 1, b = q", "a = 2, b = p", "a = 2, b = q",
    ]  # fmt: skip
    assert [(line.get_color(), line.get_linestyle()) for line in sizes.lines] == [
        ("C0", "-"), ("C0", "--"), ("C1", "-"), ("C1", "--"),
    ]  # fmt: skip
    assert sizes.get_legend() is None


def test_bars_stand_side_by_side() -> None:
    """A group for each value of x, with the interval on top; long texts are turned."""
    pytest.importorskip("matplotlib")

    def study(cause: str, copies: bool, seed: int) -> int:
        return len(cause) * (1 + copies) + seed

    causes = ["slow storage", "a failure of the whole host"]
    found = sweep(study, cause=causes, copies=[False, True], seed=range(3))
    (axes,) = found.plot("value", x="cause", by="copies", bars=True).axes

    assert [round(bar.get_x() + bar.get_width() / 2, 9) for bar in axes.patches] == [-0.2, 0.8, 0.2, 1.2]
    assert [bar.get_height() for bar in axes.patches] == [13, 28, 25, 55]
    assert [label.get_rotation() for label in axes.get_xticklabels()] == [20, 20]
    (first, *_), low = axes.collections[0].get_segments(), 13 - 4.302653 / math.sqrt(3)
    assert first[0][1] == pytest.approx(low, rel=1e-6)


def test_axes_are_logarithmic_where_they_can_be() -> None:
    """Not that of texts, and not one that has only zeros."""
    pytest.importorskip("matplotlib")

    def scales(x: list[Any], factor: int) -> tuple[str, str]:
        rows = [{"x": one, "status": "ok", "value": number * factor} for number, one in enumerate(x, 1)]
        (axes,) = StudyTable("scales", ("x",), rows).plot("value", x="x", log=True).axes
        assert [label.get_text() for label in axes.get_xticklabels()] == list(map(str, x))
        return axes.get_xscale(), axes.get_yscale()

    assert scales([1, 30, 100], 1) == ("log", "log")
    assert scales(["1s", "30s"], 1) == ("linear", "log")
    assert scales([1, 30, 100], 0) == ("log", "linear")


def test_lines_of_logarithmic_axes_leave_zeros_out() -> None:
    """A point at 0 has no place there; on linear axes it has one, also if all are 0."""
    pytest.importorskip("matplotlib")

    def drawn(values: list[int], log: bool) -> list[int]:
        rows = [{"x": number, "status": "ok", "value": value} for number, value in enumerate(values, 1)]
        (axes,) = StudyTable("zeros", ("x",), rows).plot("value", x="x", log=log).axes
        return list(axes.lines[0].get_ydata())

    assert (drawn([0, 5, 9], True), drawn([0, 5, 9], False), drawn([0, 0], True)) == ([5, 9], [0, 5, 9], [0, 0])


def test_a_long_legend_stands_beside_the_plot() -> None:
    """Four entries are within it; more would cover the lines."""
    pytest.importorskip("matplotlib")

    def legends(lines: int) -> tuple[int, int]:
        rows = [{"x": 1, "by": by, "status": "ok", "value": by} for by in range(lines)]
        figure = StudyTable("legend", ("x", "by"), rows).plot("value", x="x", by="by")
        return len(figure.axes[0].get_legend().get_texts()) if not figure.legends else 0, len(figure.legends)

    assert (legends(4), legends(5)) == ((4, 0), (0, 1))


def test_a_text_has_one_place_for_all_lines() -> None:
    """Also for a line that has no result there."""
    pytest.importorskip("matplotlib")
    cases = [(x, by) for x in ("1m", "2m", "5m") for by in ("a", "b")]
    rows = [{"x": x, "by": by, "status": "ok", "value": 1.0 if (x, by) != ("1m", "b") else None} for x, by in cases]
    (axes,) = StudyTable("places", ("x", "by"), rows).plot("value", x="x", by="by").axes

    assert [list(line.get_xdata()) for line in axes.lines] == [[0, 1, 2], [1, 2]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1m", "2m", "5m"]
