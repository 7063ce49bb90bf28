"""Laws of chance: their closed forms, their texts, and draws that are choices like every other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine import CountingSink, Job, SequenceSource
from engine.elements import exact_math
from engine.elements.durations import parse_duration_ns
from engine.elements.errors import ConfigurationError
from engine.elements.exact_math import exponential, natural_log, normal_quantile, rounded_times_log
from engine.elements.laws import (
    DRAW_BOUND,
    MOST_NS,
    Constant,
    Empirical,
    Exponential,
    Law,
    LogNormal,
    Pareto,
    Uniform,
    as_law,
    parse_law,
    parse_rate,
    sample_ns,
    times_ns,
)
from engine.runtime.kernel import ChoiceRecorder

MS = 1_000_000
times = st.integers(1, 10**15)
laws: st.SearchStrategy[Law] = st.one_of(
    st.builds(Constant, st.integers(0, 10**15)),
    st.builds(lambda low, more: Uniform(low, low + more), st.integers(0, 10**15), st.integers(0, 10**15)),
    st.builds(Exponential, times),
    st.builds(LogNormal, times, st.floats(0.01, 5)),
    st.builds(Pareto, times, st.floats(1.01, 50)),
    st.builds(Empirical, st.lists(st.integers(0, 10**15), min_size=1, max_size=5)),
)
numbers = st.integers(0, DRAW_BOUND - 1)

EACH = [
    Constant("5ms"),
    Uniform("1ms", "3ms"),
    Exponential("100ms"),
    LogNormal("10ms", 0.5),
    Pareto("1ms", 8),
    Empirical(["1ms", "2ms", "6ms"]),
]


@given(laws, numbers, numbers)
def test_a_smaller_number_is_a_shorter_time(law: Law, one: int, other: int) -> None:
    """The inverse of a distribution function grows, so a case shrinks to shorter times, and stays within bounds."""
    assert 0 <= law.quantile_ns(min(one, other)) <= law.quantile_ns(max(one, other)) <= MOST_NS


@given(laws)
def test_the_text_of_a_law_reads_back(law: Law) -> None:
    """A law that is written down is the same law after reading."""
    assert parse_law(str(law)) == law


@pytest.mark.parametrize("law", EACH, ids=str)
def test_mean_and_variance_are_those_of_the_closed_form(law: Law) -> None:
    """Numbers spread evenly over the bound give the mean and the variance that the law states."""
    count = 20_000
    drawn = [law.quantile_ns((2 * k + 1) * DRAW_BOUND // (2 * count)) for k in range(count)]
    mean = math.fsum(drawn) / count
    variance = math.fsum((one - mean) ** 2 for one in drawn) / count
    assert mean == pytest.approx(law.mean_ns, rel=1e-3)
    assert variance == pytest.approx(law.variance_ns2, rel=2e-2)


@pytest.mark.parametrize(
    ("law", "median_ns", "percentile_99_ns"),
    [
        (Uniform(0, 1_000 * MS), 500 * MS, 990 * MS),
        (Exponential("1s"), math.log(2) * 1e9, math.log(100) * 1e9),
        (LogNormal("1s", 0.5), 1e9, math.exp(0.5 * NormalDist().inv_cdf(0.99)) * 1e9),
        (Pareto("1s", 2.0), math.sqrt(2) * 1e9, 10e9),
    ],
    ids=str,
)
def test_quantiles_are_those_of_the_closed_form(law: Law, median_ns: float, percentile_99_ns: float) -> None:
    """Half of the bound gives the median, 99 % of it the 99th percentile."""
    assert law.quantile_ns(DRAW_BOUND // 2) == pytest.approx(median_ns, rel=1e-6)
    assert law.quantile_ns(DRAW_BOUND * 99 // 100) == pytest.approx(percentile_99_ns, rel=1e-6)


def test_heavy_tails_may_have_no_variance() -> None:
    """A Pareto law of shape 2 has a mean, and infinite variance."""
    assert Pareto("1s", 2.0).mean_ns == 2e9
    assert Pareto("1s", 2.0).variance_ns2 == math.inf


def test_draws_have_the_same_bits_everywhere() -> None:
    """These times were computed by IEEE arithmetic; a machine with another mathematical library gives the same."""
    drawn = [[law.quantile_ns(number * DRAW_BOUND // 7) for number in (0, 3, 6)] for law in EACH]
    assert drawn == [
        [5000000, 5000000, 5000000],
        [1000000, 1857143, 2714286],
        [0, 55961579, 194591015],
        [420465, 9139255, 17053754],
        [1000000, 1072457, 1275373],
        [1000000, 2000000, 6000000],
    ]


@given(st.floats(1e-300, 1e300))
def test_the_logarithm_is_exact_to_its_last_bits(x: float) -> None:
    """It agrees with the C library to 1e-15 of the value."""
    assert natural_log(x) == pytest.approx(math.log(x), rel=1e-15, abs=1e-16)


@given(st.floats(-700, 700))
def test_the_exponential_is_exact_to_its_last_bits(x: float) -> None:
    """It agrees with the C library to 1e-15 of the value."""
    assert exponential(x) == pytest.approx(math.exp(x), rel=1e-15)


@given(st.floats(1e-12, 1, exclude_max=True))
def test_the_normal_quantile_is_that_of_the_normal_law(p: float) -> None:
    """It agrees with the standard library."""
    assert normal_quantile(p) == pytest.approx(NormalDist().inv_cdf(p), rel=1e-12, abs=1e-12)


@given(st.integers(0, MOST_NS), st.floats(1e-10, 1.0))
def test_a_rounded_product_is_that_of_the_exact_logarithm(factor: int, x: float) -> None:
    """Whatever the logarithm of C has in its last bits."""
    assert rounded_times_log(-factor, x) == round(-factor * natural_log(x))


@given(st.integers(0, 10**7), st.floats(0.01, 0.99), st.sampled_from([-1, 1]))
def test_close_to_the_middle_the_exact_logarithm_decides(whole: int, x: float, side: int) -> None:
    """There the logarithm of C may be on the other side on another machine."""
    factor = (whole + 0.5) / natural_log(x)
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patched:
            # As imprecise as any library, on one side.
            patched.setattr(exact_math, "log", lambda x: natural_log(x) * (1 + side * 4e-16))
            assert rounded_times_log(factor, x) == round(factor * natural_log(x))
        factor = math.nextafter(factor, side * math.inf)


def test_times_drawn_by_a_recorder_are_choices() -> None:
    """A recorded sequence gives the same times again, whatever the seed."""
    recorder = ChoiceRecorder("seed 1")
    drawn = [sample_ns(law, lambda bound: recorder.draw("service of sum", bound)) for law in EACH]
    # A constant is no choice.
    assert [(one.stream, one.bound) for one in recorder.log] == [("service of sum", DRAW_BOUND)] * (len(EACH) - 1)
    again = ChoiceRecorder("another seed", replay=list(recorder.log))
    assert [sample_ns(law, lambda bound: again.draw("service of sum", bound)) for law in EACH] == drawn


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant("-5ms"), "value of Constant '-5ms' is negative: write a time of 0 or more"),
        (lambda: Constant(-5), "value of Constant is -5 ns; it must be from 0 to"),
        (lambda: Constant(True), "value of Constant is True; write a time"),
        (lambda: Constant(0.5), "value of Constant is 0.5; write a time"),  # type: ignore[arg-type]
        (lambda: Exponential("0s"), "mean of Exponential is 0 ns; it must be from 1 to"),
        (lambda: Exponential("2000000h"), "it must be from 1 to 4611686018427387904 ns"),
        (lambda: Uniform("3ms", "1ms"), "Uniform goes from 3ms to 1ms; give the shorter time first"),
        (lambda: LogNormal("3ms", 0), "sigma of LogNormal is 0; it must be above 0"),
        (lambda: LogNormal("3ms", math.nan), "sigma of LogNormal is nan; write a finite number"),
        (lambda: LogNormal("3ms", 6), "sigma of LogNormal is 6.0; it must be at most 5"),
        (lambda: Pareto("3ms", 1), "shape of Pareto is 1; it must be above 1, or its mean would be infinite"),
        (lambda: Pareto("3ms", math.inf), "shape of Pareto is inf; write a finite number"),
        (lambda: Empirical([]), "give at least one time"),
        (lambda: Empirical(["3ms", "-1ms"]), "a value of Empirical '-1ms' is negative"),
        (lambda: parse_law("soon"), "'soon' is no law; write one of: TIME"),
        (lambda: Empirical("3ms"), "give at least one time"),
        (lambda: parse_law("exponental:3ms"), "did you mean 'exponential'? Write one of: TIME, constant:TIME"),
        (lambda: parse_law("pareto:3ms"), "has 1 parameters; write pareto:LEAST:SHAPE"),
        (lambda: parse_law("pareto:3ms:x"), "has a parameter that is not a number; write pareto:LEAST:SHAPE"),
        (lambda: as_law(0.5, "service of 'sum'"), "service of 'sum' is 0.5 of type float; write Exponential"),
        (lambda: as_law(Exponential), "write Exponential('100ms'), or '5ms'"),
        (lambda: parse_rate("8"), "rate is '8'; write records per unit of time, such as '8/s'"),
        (lambda: parse_rate("0/s"), "must be above 0"),
        (lambda: parse_rate("2/ns"), "at most one record per ns"),
        (lambda: parse_rate("8/day"), "rate is '8/day'; write records per unit of time, such as '8/s' or '0.5/ms'"),
    ],
)
def test_impossible_parameters_are_refused(make: object, message: str) -> None:
    """The error names the law, its parameter and its value."""
    assert callable(make)
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert message in str(refused.value)


@dataclass
class Drawn:
    """A law of the user."""

    time_ns: Any
    mean_ns: float = 1.0
    variance_ns2: float = 1.0

    def quantile_ns(self, number: int) -> Any:
        return self.time_ns


@pytest.mark.parametrize("time_ns", [-1, math.inf, math.nan, 1.5, True, "3ms", MOST_NS + 1])
def test_impossible_draws_are_refused(time_ns: Any) -> None:
    """A law of the user that gives a negative or infinite time, or none at all, is named, one by one and in blocks."""
    for draw in (lambda law: sample_ns(law, lambda _: 0), lambda law: times_ns(law, [0])):
        assert draw(Drawn(MOST_NS)) in (MOST_NS, [MOST_NS])
        with pytest.raises(ConfigurationError, match=f"law Drawn gave {time_ns!r}; return a whole number"):
            draw(Drawn(time_ns))
    job = Job("served")
    job.source(SequenceSource(0, 5), name="from").sink(CountingSink(), name="to", chain=False)
    with pytest.raises(ConfigurationError, match="law Drawn gave"):
        job.run(service={"to": Drawn(time_ns)})


def test_values_that_mean_a_law() -> None:
    """A law, a time or a text; a time alone is a constant."""
    assert as_law("100ms") == as_law(100 * MS) == Constant("100ms")
    assert as_law("exponential:100ms") == as_law(Exponential(100 * MS)) == Exponential("100ms")


@given(st.integers(1, 10**6), st.sampled_from(["s", "ms", "m"]))
def test_rates_are_exact(count: int, unit: str) -> None:
    """A rate is a fraction, so the time of the millionth record is off by no rounding."""
    assert parse_rate(f"{count}/{unit}") * parse_duration_ns(f"1{unit}") == Fraction(count)
