"""Retries: how often, after which delay, for which errors and answers."""

from __future__ import annotations

from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from operators.async_io import AsyncContext, AsyncResult, AsyncRetryStrategy
from operators.async_io.async_function import FixedLatency

ERROR = AsyncResult.failed(ValueError("no"))


def test_attempts_are_counted_behind_the_first() -> None:
    """With two attempts, the first and the second failure are each followed by another attempt."""
    strategy = AsyncRetryStrategy.fixed_delay(2, 5)
    assert [strategy.wants(ERROR, attempt) for attempt in (1, 2, 3)] == [True, True, False]
    assert [strategy.delay_after(attempt) for attempt in (1, 2)] == [5, 5]


def test_an_exponential_delay_grows_up_to_its_bound() -> None:
    """It starts at the initial delay and grows by the multiplier."""
    strategy = AsyncRetryStrategy.exponential_delay(9, 10, 45, 2.0)
    assert [strategy.delay_after(attempt) for attempt in (1, 2, 3, 4, 5)] == [10, 20, 40, 45, 45]
    assert AsyncRetryStrategy.exponential_delay(9, 0, 45).delay_after(8) == 0


def test_which_errors_and_answers_are_worth_it() -> None:
    """By default every error is tried again, and no answer is."""
    plain = AsyncRetryStrategy.fixed_delay(1, 0)
    picky = AsyncRetryStrategy.fixed_delay(
        1, 0, retry_on_error=lambda error: isinstance(error, KeyError), retry_on_result=lambda values: not values
    )
    assert plain.wants(ERROR, 1)
    assert not plain.wants(AsyncResult.of_all([]), 1)
    assert not picky.wants(ERROR, 1)
    assert picky.wants(AsyncResult.of_all([]), 1)
    assert not picky.wants(AsyncResult.of(1), 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AsyncRetryStrategy.fixed_delay(0, 1),
        lambda: AsyncRetryStrategy.fixed_delay(1, -1),
        lambda: AsyncRetryStrategy.exponential_delay(1, 10, 5),
        lambda: AsyncRetryStrategy.exponential_delay(1, 10, 50, 0.5),
        lambda: AsyncRetryStrategy.exponential_delay(1, 10, 50, float("inf")),
        lambda: AsyncRetryStrategy.exponential_delay(1, 10, 50, "2"),  # type: ignore[arg-type]
        lambda: AsyncRetryStrategy.fixed_delay(1, 1, retry_on_error=None),  # type: ignore[arg-type]
        lambda: AsyncRetryStrategy.fixed_delay(1, 1, retry_on_result=True),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    """No attempt, a negative delay, a bound below the beginning, a delay that shrinks or has no end, no function."""
    with pytest.raises(ConfigurationError, match="retr"):
        make()


def test_a_plain_function_is_a_service() -> None:
    """Its exception is the error of the request, which may be tried again."""
    service = FixedLatency(lambda value: 10 // value, lambda value: value * 3)
    context = AsyncContext(1, None, 0)
    assert service.invoke(5, context) == AsyncResult((2,), None, 15)
    failed = service.invoke(0, context)
    assert isinstance(failed.error, ZeroDivisionError)
