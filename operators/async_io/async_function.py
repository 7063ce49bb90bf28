"""How a job describes an external service: the answer to a request, its delay, and when the request is repeated.

Time and network are simulated, so a request is data: the function returns the future answer and its delay at once, and
the operator lets that much virtual time pass. (Flink: ``AsyncFunction``, ``ResultFuture``, ``AsyncRetryStrategies``.)

Rules of retries, as in Flink.

* ``max_attempts`` counts further attempts after the first.
* An answer that ``retry_on_result`` picks, or an error that ``retry_on_error`` picks, is tried again after the delay.
  When no attempt is left, the last answer is the result, and the last error fails the job.
* The delay of attempt *n* is fixed, or ``initial * multiplier^(n-1)``, limited by a maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol

from engine.elements.errors import ConfigurationError, check_whole


class AsyncTimeoutError(Exception):
    """A request has taken longer than the operator waits."""


class AsyncResult(NamedTuple):
    """How one request ends: with values, or with an error, ``after_ns`` of virtual time after its beginning."""

    values: tuple[Any, ...] = ()
    error: Exception | None = None
    after_ns: int = 0

    @classmethod
    def of(cls, value: Any, after_ns: int = 0) -> AsyncResult:
        """One record."""
        return cls((value,), None, after_ns)

    @classmethod
    def of_all(cls, values: Iterable[Any], after_ns: int = 0) -> AsyncResult:
        """Any number of records, none included."""
        return cls(tuple(values), None, after_ns)

    @classmethod
    def failed(cls, error: Exception, after_ns: int = 0) -> AsyncResult:
        """No answer but an error."""
        return cls((), error, after_ns)


class AsyncContext(NamedTuple):
    """The information that a request gets besides its record.

    ``attempt``           1 for the first request of a record in this attempt of the job, 2 for its first retry, ...;
    ``timestamp_ms``      event time of the record, ``None`` when the stream carries none;
    ``processing_time_ns`` the virtual clock.
    """

    attempt: int
    timestamp_ms: int | None
    processing_time_ns: int


class AsyncFunction(Protocol):
    """A service outside of the job.

    The operator calls it once per record and attempt, and again after every restore, because a checkpoint contains the
    requests in flight but not the answers. So it may see a record more often than its answer takes effect. For
    repeatable runs it must give the same answer to the same request; it keeps no state.
    """

    def invoke(self, record: Any, context: AsyncContext) -> AsyncResult:
        """The result of the request for ``record``. An exception from this method fails the job without a retry."""


class FixedLatency:
    """A plain function as a service: ``fn(record)`` is the answer, or its exception the error, after ``latency_ns``.

    ``latency_ns``: a number, or a function of the record. Raises :class:`ConfigurationError` for another.
    """

    def __init__(self, fn: Callable[[Any], Any], latency_ns: int | Callable[[Any], int]) -> None:
        if not callable(latency_ns):
            check_whole("latency_ns of async_map, which is no function,", latency_ns, 0)
        self._fn = fn
        self._latency_ns = latency_ns

    def invoke(self, record: Any, context: AsyncContext) -> AsyncResult:
        """Call the function."""
        latency = self._latency_ns
        after_ns = latency(record) if callable(latency) else latency
        try:
            return AsyncResult.of(self._fn(record), after_ns)
        except Exception as error:
            return AsyncResult.failed(error, after_ns)


def _always(error: Exception) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class AsyncRetryStrategy:
    """When a request is repeated. Create one with :meth:`fixed_delay` or :meth:`exponential_delay`.

    ``max_attempts``     how often it is repeated at most;
    ``delay_ns``         how long after the failure;
    ``multiplier``       the factor by which the delay grows each time;
    ``max_delay_ns``     the longest delay;
    ``retry_on_error``   which errors are repeated;
    ``retry_on_result``  which answers are repeated (a function of the list of records); none by default.
    """

    max_attempts: int
    delay_ns: int
    multiplier: float = 1.0
    max_delay_ns: int | None = None
    retry_on_error: Callable[[Exception], bool] = _always
    retry_on_result: Callable[[list[Any]], bool] | None = None

    def __post_init__(self) -> None:
        check_whole("max_attempts of a retry strategy", self.max_attempts)
        check_whole("delay_ns of a retry strategy", self.delay_ns, 0)
        if type(self.multiplier) not in (int, float) or not 1.0 <= self.multiplier < inf:
            raise ConfigurationError(f"async_map: multiplier of retries must be at least 1, got {self.multiplier!r}")
        if not callable(self.retry_on_error):
            raise ConfigurationError(
                f"async_map: retry_on_error takes a function of the error, got {self.retry_on_error!r}"
            )
        if self.retry_on_result is not None and not callable(self.retry_on_result):
            raise ConfigurationError(
                f"async_map: retry_on_result takes a function of the list of records, got {self.retry_on_result!r}"
            )
        check_whole("max_delay_ns of a retry strategy", self.max_delay_ns, self.delay_ns, or_none=True)

    @classmethod
    def fixed_delay(
        cls,
        max_attempts: int,
        delay_ns: int,
        *,
        retry_on_error: Callable[[Exception], bool] = _always,
        retry_on_result: Callable[[list[Any]], bool] | None = None,
    ) -> AsyncRetryStrategy:
        """The same delay each time."""
        return cls(max_attempts, delay_ns, retry_on_error=retry_on_error, retry_on_result=retry_on_result)

    @classmethod
    def exponential_delay(
        cls,
        max_attempts: int,
        initial_delay_ns: int,
        max_delay_ns: int,
        multiplier: float = 2.0,
        *,
        retry_on_error: Callable[[Exception], bool] = _always,
        retry_on_result: Callable[[list[Any]], bool] | None = None,
    ) -> AsyncRetryStrategy:
        """A delay that grows."""
        return cls(max_attempts, initial_delay_ns, multiplier, max_delay_ns, retry_on_error, retry_on_result)

    def wants(self, result: AsyncResult, attempt: int) -> bool:
        """Whether another attempt follows attempt number ``attempt``, which had this result."""
        if attempt > self.max_attempts:
            return False
        if result.error is not None:
            return self.retry_on_error(result.error)
        return self.retry_on_result is not None and self.retry_on_result(list(result.values))

    def delay_after(self, attempt: int) -> int:
        """How long after the end of attempt number ``attempt`` the next one begins, in ns."""
        delay_ns = self.delay_ns
        for _ in range(attempt - 1):
            grown_ns = int(delay_ns * self.multiplier)
            if self.max_delay_ns is not None and grown_ns >= self.max_delay_ns:
                return self.max_delay_ns
            if grown_ns == delay_ns:
                break
            delay_ns = grown_ns
        return delay_ns
