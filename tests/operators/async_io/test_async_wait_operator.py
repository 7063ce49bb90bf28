"""Asynchronous requests without an engine: capacity, order, timeouts, retries, snapshots, the end."""

from __future__ import annotations

from typing import Any

import pytest

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, UserFunctionError
from operators.async_io import AsyncContext, AsyncResult, AsyncRetryStrategy, async_operator
from operators.async_io.async_wait_operator import AsyncWaitOperator
from tests.operators.harness import START_NS, Checkpoint, Harness

MS = 1_000_000


class Service:
    """Answers ``(name, ms)`` with its name after so many ms, and notes what it was asked and when."""

    def __init__(self, failures: int = 0) -> None:
        self.asked: list[tuple[Any, int, int]] = []
        self._failures = failures

    def invoke(self, record: Any, context: AsyncContext) -> AsyncResult:
        name, ms = record
        self.asked.append((name, context.attempt, (context.processing_time_ns - START_NS) // MS))
        if context.attempt <= self._failures:
            return AsyncResult.failed(ValueError("busy"), ms * MS)
        return AsyncResult.of(name, ms * MS)


def harness(service: Any = None, restored: Checkpoint | None = None, **kwargs: Any) -> Harness:
    where = {name: kwargs.pop(name) for name in ("subtask", "parallelism", "now_ns") if name in kwargs}
    return Harness(AsyncWaitOperator(service or Service(), **kwargs), restored=restored, **where)


def at(one: Harness, ms: int) -> list[Any]:
    """What leaves up to that time: records, and watermarks as ints."""
    one.advance_to_ns(START_NS + ms * MS)
    out: list[Any] = []
    for event in one.take():
        out += event.values if isinstance(event, Batch) else [event[1]]
    return out


def test_in_order_answers_wait_for_each_other() -> None:
    """Each answer has the timestamp of its record."""
    one = harness()
    one.process([("a", 5), ("b", 2), ("c", 7)], [10, 20, 30])
    assert at(one, 4) == []
    one.advance_to_ns(START_NS + 7 * MS)
    assert one.take_stamped() == [("a", 10), ("b", 20), ("c", 30)]


def test_out_of_order_answers_leave_as_they_come_but_not_across_a_watermark() -> None:
    """An answer leaves on the same side of a watermark, before or after it, on which its record came."""
    one = harness(ordered=False)
    one.process([("a", 5), ("b", 2)], [10, 20])
    one.watermark(20)
    one.process([("c", 1)], [30])
    assert at(one, 4) == ["b"]
    assert at(one, 5) == ["a", 20, "c"]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_status_does_not_overtake_either(ordered: bool) -> None:
    """A stream that still waits for answers is not idle."""
    one = harness(ordered=ordered)
    one.operator.process_watermark_status(True)
    one.process([("a", 5)])
    one.operator.process_watermark_status(True)
    assert one.take() == [("idle", True)]
    assert at(one, 5) == ["a", True]


@pytest.mark.parametrize("batches", [[5], [1, 1, 1, 1, 1], [2, 3]])
def test_no_more_requests_than_the_capacity_are_in_flight(batches: list[int]) -> None:
    """Batches of any size keep to it; the task is told to stop while there is no room, and to go on when there is."""
    service = Service()
    one = harness(service, capacity=2, ordered=False)
    records = [("a", 4), ("b", 2), ("c", 1), ("d", 1), ("e", 1)]
    for size in batches:
        one.process(records[:size])
        records = records[size:]
    assert one.context.holds_input
    assert at(one, 9) == ["b", "c", "a", "d", "e"]
    assert service.asked == [("a", 1, 0), ("b", 1, 0), ("c", 1, 2), ("d", 1, 3), ("e", 1, 4)]
    assert not one.context.holds_input


def test_in_order_an_answer_that_waits_takes_up_room() -> None:
    """As in Flink: a record counts until it has left."""
    service = Service()
    one = harness(service, capacity=2)
    one.process([("a", 9), ("b", 1), ("c", 1)])
    at(one, 8)
    assert [name for name, _, _ in service.asked] == ["a", "b"]
    at(one, 9)
    assert service.asked[2] == ("c", 1, 9)


def test_a_request_that_fails_fails_the_job() -> None:
    """The error names the record and the cause."""
    one = harness(Service(failures=1))
    one.process([("a", 3)])
    with pytest.raises(UserFunctionError, match="busy") as failure:
        at(one, 3)
    assert failure.value.record == ("a", 3)


def test_a_request_is_made_again_after_the_delay() -> None:
    """The delay begins at the end of the failed request; when no attempt is left, the job fails with the error."""
    service = Service(failures=2)
    one = harness(service, retries=AsyncRetryStrategy.fixed_delay(2, 10 * MS))
    one.process([("a", 3)])
    assert at(one, 28) == []
    assert at(one, 29) == ["a"]
    assert service.asked == [("a", 1, 0), ("a", 2, 13), ("a", 3, 26)]
    assert one.counter("numAsyncRetries") == 2

    one = harness(Service(failures=2), retries=AsyncRetryStrategy.fixed_delay(1, 10 * MS))
    one.process([("a", 3)])
    with pytest.raises(UserFunctionError, match="busy"):
        at(one, 100)


def test_a_timeout_is_for_all_attempts_together() -> None:
    """It runs from the first request on; an answer at that very instant is in time."""
    one = harness(Service(failures=1), retries=AsyncRetryStrategy.fixed_delay(1, 4 * MS), timeout_ms=10)
    one.process([("a", 3)])
    assert at(one, 10) == ["a"]
    one = harness(Service(failures=1), retries=AsyncRetryStrategy.fixed_delay(1, 5 * MS), timeout_ms=10)
    one.process([("a", 3)])
    at(one, 9)
    with pytest.raises(UserFunctionError, match="no answer within 10 ms, after 2 attempts"):
        at(one, 10)


def test_a_timeout_may_be_answered_instead() -> None:
    """The timeout may give any number of records in place of the answer; a later answer of the service is ignored."""
    one = harness(timeout_ms=5, on_timeout=lambda record: [record[0].upper(), "!"])
    one.process([("a", 50), ("b", 1)])
    assert at(one, 4) == []
    assert at(one, 5) == ["A", "!", "b"]
    assert at(one, 100) == []
    assert one.counter("numAsyncTimeouts") == 1


def test_waiting_for_room_is_not_part_of_the_timeout() -> None:
    """It runs from the first request of the record."""
    one = harness(timeout_ms=5, capacity=1)
    one.process([("a", 4), ("b", 4)])
    assert at(one, 8) == ["a", "b"]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("after", [1, 2])
def test_what_is_in_flight_is_asked_for_again(after: int, ordered: bool) -> None:
    """The snapshot has all in order: answered but held back, asked, not yet asked. Emitted answers are not in it."""
    before = harness(capacity=3, ordered=ordered)
    before.process([("a", 1), ("b", 9), ("c", 2), ("d", 1), ("e", 1)], [1, 2, 3, 4, 5])
    gone = at(before, 1)
    assert gone == ["a"]
    checkpoint = before.snapshot(1)
    found: list[Any] = []
    services = []
    for subtask in range(after):
        services.append(Service())
        one = harness(
            services[-1], checkpoint, capacity=3, ordered=ordered, subtask=subtask, parallelism=after, now_ns=START_NS
        )
        found += at(one, 50)
    assert sorted(found) == ["b", "c", "d", "e"]
    assert sorted(name for service in services for name, _, _ in service.asked) == ["b", "c", "d", "e"]
    if ordered:
        assert found == ["b", "c", "d", "e"]


def test_behind_the_last_watermark_nothing_is_taken_until_all_is_answered() -> None:
    """Otherwise the input would end, and timers would be quiet, with requests in flight."""
    one = harness()
    one.process([("a", 5)])
    one.watermark(100)
    assert not one.context.holds_input
    one.watermark(MAX_TIMESTAMP_MS)
    held = one.context
    assert held.holds_input
    assert at(one, 5) == ["a", 100, MAX_TIMESTAMP_MS]
    assert not one.context.holds_input


def test_behind_the_last_watermark_every_record_holds_the_input() -> None:
    """A record that comes round in a loop must be answered before the loop can be found empty."""
    one = harness()
    one.watermark(MAX_TIMESTAMP_MS)
    one.process([("a", 5)])
    assert one.context.holds_input
    assert at(one, 5) == [MAX_TIMESTAMP_MS, "a"]


def test_what_is_left_at_the_end_is_answered() -> None:
    """If an input ends without a last watermark, finish lets the time of its records pass, in order."""
    one = harness(capacity=1)
    one.process([("a", 5), ("b", 1)])
    one.finish()
    assert one.take_values() == ["a", "b"]


@pytest.mark.parametrize("result", [None, AsyncResult((), None, -1), AsyncResult((), None, 0.5)])  # type: ignore[arg-type]
def test_a_service_that_says_nonsense_is_told_so(result: Any) -> None:
    """Refused are an answer without a result, a time before its request, and a time that is not a whole number."""

    class Strange:
        def invoke(self, record: Any, context: AsyncContext) -> Any:
            return result

    with pytest.raises(UserFunctionError, match=r"AsyncResult|after_ns"):
        harness(Strange()).process([("a", 1)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 0}, "capacity"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"on_timeout": list}, "timeout_ms="),
        ({"on_timeout": "late", "timeout_ms": 1}, "on_timeout takes a function"),
        ({"function": len, "latency_ns": -1}, "latency_ns of async_map, which is no function, is"),
        ({"function": len, "latency_ns": 1.5}, "latency_ns of async_map, which is no function, is"),
        ({"retries": 3}, "AsyncRetryStrategy"),
        ({"function": 3}, "invoke"),
        ({"function": Service}, "invoke"),
        ({"function": len}, "latency_ns="),
        ({"latency_ns": 3}, "latency_ns="),
    ],
)
def test_what_makes_no_sense_is_refused_where_the_job_is_built(arguments: dict[str, Any], message: str) -> None:
    """The error says what is wrong, and how to correct it."""
    settings: dict[str, Any] = {
        "function": Service(), "latency_ns": None, "ordered": True, "capacity": 1, "timeout_ms": None, "retries": None,
        "on_timeout": None,
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match=message):
        async_operator(**{**settings, **arguments})


def test_two_operators_differ_when_their_requests_do() -> None:
    """The fingerprint holds what decides how the operator goes on: what is due, and after how much time from now."""
    one, other = harness(), harness()
    for each in (one, other):
        each.process([("a", 5)])
    assert one.operator.fingerprint() == other.operator.fingerprint()
    one.advance_to_ns(START_NS + MS)
    assert one.operator.fingerprint() != other.operator.fingerprint()
