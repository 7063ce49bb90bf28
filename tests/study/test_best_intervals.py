"""The closed forms of the checkpoint interval: where each is the optimum, and published figures."""

from __future__ import annotations

from functools import partial
from math import e, exp

import pytest
from hypothesis import given, strategies as st

from engine import ConfigurationError
from engine.study import best_period, daly_work, expected_makespan, lambert_w, young_work

MTBF = st.floats(1, 1e15)


@given(MTBF, st.floats(1e-7, 1e-4))
def test_all_formulas_agree_for_cheap_checkpoints(mtbf: float, part: float) -> None:
    """The relative difference vanishes with the square root of c / M, that of Daly much faster."""
    cost = part * mtbf
    exact = best_period(cost, mtbf) - cost

    assert young_work(cost, mtbf) == pytest.approx(exact, rel=2 * part**0.5)
    assert daly_work(cost, mtbf) == pytest.approx(exact, rel=part + 1e-7)


@given(MTBF, st.floats(1e-4, 1), st.floats(0, 1), st.floats(1.01, 3))
def test_the_exact_period_is_the_best(mtbf: float, part: float, restart: float, away: float) -> None:
    """More work between two checkpoints makes the makespan longer, and so does less; the restart does not matter."""
    cost = part * mtbf
    work = best_period(cost, mtbf) - cost

    def makespan(one: float) -> float:
        return expected_makespan(1.0, one + cost, cost, mtbf, restart * mtbf)

    assert makespan(work) < makespan(work * away)
    assert makespan(work) < makespan(work / away)


@given(st.floats(-1 / e + 1e-9, -1e-9))
def test_lambert_is_the_inverse(x: float) -> None:
    """w exp(w) = x, on the branch above -1."""
    w = lambert_w(x)

    assert -1 <= w < 0
    assert w * exp(w) == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize(("mtbf_min", "published", "daly", "exact"), [
    (1_440, 117, 116.69, 116.69), (360, 57, 56.71, 56.71), (15, 9.1, 9.14, 9.167),
])  # fmt: skip
def test_figures_of_daly(mtbf_min: float, published: float, daly: float, exact: float) -> None:
    """A checkpoint of 5 min: his figures 3 to 5 (2006) show 117, 57 and 9.1 min."""
    assert daly_work(5, mtbf_min) == pytest.approx(daly, abs=0.006)
    assert round(daly_work(5, mtbf_min), 1 if published < 10 else None) == published
    assert best_period(5, mtbf_min) - 5 == pytest.approx(exact, abs=0.006)


def test_what_are_no_times_is_refused() -> None:
    """Instead of a number without a meaning."""
    for cost, mtbf in ((-1, 5), (1, 0), (1, -5), (float("nan"), 5), (1, float("inf"))):
        for formula in (young_work, daly_work, best_period, partial(expected_makespan, 10, 9)):
            with pytest.raises(ConfigurationError, match=f"the cost of a checkpoint is {cost} and the time .* {mtbf};"):
                formula(cost, mtbf)
    for work, period, restart in ((-1, 9, 0), (10, 2, 0), (10, 1, 0), (10, 9, -1)):
        with pytest.raises(ConfigurationError, match=f"work is {work}, restart {restart}, the period {period} and"):
            expected_makespan(work, period, 2, 100, restart)
    for x in (-0.4, 0.1, float("nan")):
        with pytest.raises(ConfigurationError, match="Lambert's W is asked for"):
            lambert_w(x)


def test_daly_does_not_count_on_checkpoints_that_take_longer_than_the_job_lives() -> None:
    """From c = 2 M on his estimate is M."""
    assert daly_work(20, 10) == daly_work(50, 10) == 10
    assert daly_work(19.9, 10) < 10


@pytest.mark.parametrize(("cost_s", "mtbf_s", "period_s"), [
    (10, 3_600, 271.7), (30, 3_600, 475.0), (60, 600, 289.9), (120, 365 * 86_400 / 64, 10_914.9),
])  # fmt: skip
def test_periods_of_streams(cost_s: float, mtbf_s: float, period_s: float) -> None:
    """The optimum of Jayasekara et al.; the last one is the cluster of 64 of GraphLab: 3.03 h."""
    assert round(best_period(cost_s, mtbf_s), 1) == period_s
