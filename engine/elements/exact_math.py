"""Logarithm, exponential and normal quantile with the same last bit on every machine.

The C libraries of two machines may round ``log`` and ``exp`` differently, so a simulation that draws from them has
another digest there. The results of these functions are made of sums, products, quotients, ``sqrt``, ``frexp`` and
``ldexp`` alone. IEEE 754 rounds all of them correctly, so they are the same everywhere. Their relative error is below
1e-15. One of them asks C's ``log``, where every library's leads to the same whole number.
"""

from __future__ import annotations

from math import frexp, ldexp, log, sqrt

_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
"""ln 2 in two parts: the first has few bits, so that its products with small whole numbers are exact."""
_LN2 = _LN2_HIGH + _LN2_LOW
_SQRT_HALF = sqrt(0.5)
_EXP_SERIES: tuple[float, ...] = ()
_factorial = 1.0
for _n in range(1, 15):
    _EXP_SERIES = (1.0 / _factorial, *_EXP_SERIES)
    _factorial *= _n


def natural_log(x: float) -> float:
    """ln x, for x > 0."""
    assert x > 0, x
    fraction, exponent = frexp(x)
    if fraction < _SQRT_HALF:
        fraction, exponent = 2 * fraction, exponent - 1
    # ln f = 2 artanh((f-1)/(f+1)), whose argument is below 0.172 here: twelve terms are enough.
    z = (fraction - 1) / (fraction + 1)
    s = z * z
    # Written out: a loop would take twice as long.
    total = ((((((2 / 23 * s + 2 / 21) * s + 2 / 19) * s + 2 / 17) * s + 2 / 15) * s + 2 / 13) * s + 2 / 11) * s + 2 / 9
    total = (((total * s + 2 / 7) * s + 2 / 5) * s + 2 / 3) * s + 2
    return exponent * _LN2_HIGH + (exponent * _LN2_LOW + z * total)


def rounded_times_log(factor: float, x: float) -> int:
    """``round(factor * natural_log(x))``, for a product that is not negative.

    The logarithm of C decides if that is certain: it is a part in 1e15 from the true one or nearer, everywhere, so both
    products round to the same number unless they are close to the middle between two.
    """
    product = factor * log(x)
    whole = round(product)
    if -0.499 < product - whole < 0.499 and product < 1e11:
        return whole
    return round(factor * natural_log(x))


def exponential(x: float) -> float:
    """e to the power of x, for results that a float can hold."""
    exponent = round(x / _LN2)
    rest = (x - exponent * _LN2_HIGH) - exponent * _LN2_LOW
    total = 0.0
    for coefficient in _EXP_SERIES:
        total = total * rest + coefficient
    return ldexp(total, exponent)


_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def normal_quantile(p: float) -> float:
    """The value below which a standard normal variable is with probability p, for 0 < p < 1 (Wichura: Algorithm AS
    241, Applied Statistics 37, 1988)."""
    assert 0 < p < 1, p
    centred = p - 0.5
    if abs(centred) <= 0.425:
        return centred * _ratio(_CENTRE, 0.180625 - centred * centred)
    r = sqrt(-natural_log(p if centred < 0 else 1 - p))
    found = _ratio(_MIDDLE, r - 1.6) if r <= 5 else _ratio(_TAIL, r - 5)
    return -found if centred < 0 else found


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: float) -> float:
    above, below = polynomials
    numerator = denominator = 0.0
    for coefficient in above:
        numerator = numerator * x + coefficient
    for coefficient in below:
        denominator = denominator * x + coefficient
    return numerator / denominator
