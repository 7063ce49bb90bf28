"""A job with joins, requests and patterns, and how its rows follow from its input.

Orders and payments of accounts meet in intervals and in windows, payments are sent to a service, the first payment of
each order, the greatest of each window and sequences of payments are looked for. Every row depends on event time only,
so the rows are the same whichever process is killed. A request that is forgotten, half of a pair or of a match that is
lost, or one that comes back, shows in some row.

Run like any other: ``weir run tests/crash/jobs/event_job.py --storage DIR --out DIR``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from engine import (
    AsyncResult,
    AsyncRetryStrategy,
    FileSink,
    Job,
    Pattern,
    SequenceSource,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    greatest,
)

ACCOUNTS = 40
APART_MS = 100
LATEST_MS = 10 * APART_MS
PAID_WITHIN_MS = 6_000
WINDOW_MS = 9_000

Order = tuple[int, int, int]
"""Account, number, time in ms."""
Payment = tuple[int, int, int, int]
"""Account, number, time in ms, amount."""


def order_of(number: int) -> Order:
    return number * 7919 % ACCOUNTS, number, number * APART_MS


def payment_of(number: int) -> Payment:
    """The payments, all at different times. They come up to a second late."""
    time_ms = (number + number * 37 % 10) * APART_MS + number % APART_MS
    return number * 7919 % ACCOUNTS, number, time_ms, number * 31 % 11


class Fees:
    """A service that fails now and then, and takes longer for some requests."""

    def invoke(self, payment: Payment, context: Any) -> AsyncResult:
        _, number, _, amount = payment
        if number % 13 == 0 and context.attempt == 1:
            return AsyncResult.failed(ConnectionError("busy"), after_ns=3_000)
        return AsyncResult.of(("fee", number, amount * 2), after_ns=1_000 + number % 7 * 2_000)


def job(records: str = "6000", splits: str = "2", parallelism: int | None = None) -> Job:
    """Two sources, two subtasks of every operator, one table of rows."""
    made = Job("killed", parallelism=parallelism or 2, max_parallelism=16)
    times = WatermarkStrategy.for_bounded_out_of_orderness(LATEST_MS, lambda record: record[2]).with_interval_ns(20_000)
    numbers = SequenceSource(0, int(records), splits=int(splits))
    orders = made.source(numbers, name="orders").map(order_of, name="order")
    orders = orders.assign_timestamps_and_watermarks(times, name="order-times")
    payments = made.source(numbers, name="payments").map(payment_of, name="payment")
    payments = payments.assign_timestamps_and_watermarks(times, name="payment-times")
    by_account = payments.key_by(_account)

    paid = orders.key_by(_account).interval_join(by_account).between(0, PAID_WITHIN_MS).apply(_paid)
    first = paid.key_by(lambda row: row[1]).deduplicate(time="event", append_only=True).map(_first, name="first")
    fees = payments.async_map(
        Fees(), ordered=False, capacity=8, retries=AsyncRetryStrategy.fixed_delay(2, delay_ns=2_000), name="fees"
    )
    windows = TumblingEventTimeWindows.of(WINDOW_MS)
    counts = orders.co_group(payments).where(_account).equal_to(_account).window(windows).apply(_counted)
    largest = by_account.window(windows).aggregate(greatest(2, by=lambda payment: payment[3:0:-1]))
    sequence = Pattern.begin("small").where(_is_small).next("large").where(lambda payment: not _is_small(payment))
    raises = by_account.pattern(sequence).map(_raised, name="raise")
    largest_rows = largest.map(_largest, name="largest")
    rows = paid.union(first, fees, counts, largest_rows, raises)
    return rows.sink(FileSink("counts", bucket=lambda row: f"rows={row[0]}"), name="files")


def _account(record: tuple[Any, ...]) -> int:
    return int(record[0])


def _is_small(payment: Payment) -> bool:
    return payment[3] < 5


def _paid(order: Order, payment: Payment) -> tuple[Any, ...]:
    return "paid", order[1], payment[1]


def _first(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return "first", *row[1:]


def _counted(orders: list[Order], payments: list[Payment]) -> list[tuple[Any, ...]]:
    account = (orders or payments)[0][0]
    return [("window", account, len(orders), sorted(payment[1] for payment in payments))]


def _largest(window: tuple[int, int, int, list[Payment]]) -> tuple[Any, ...]:
    return "largest", *(payment[1] for payment in window[3])


def _raised(match: dict[str, list[Payment]]) -> tuple[Any, ...]:
    return "raise", match["small"][0][1], match["large"][0][1]


def expected_rows(records: int) -> dict[str, list[str]]:
    """The expected output of the job, computed without the engine."""
    rows: dict[str, list[str]] = {}
    for row in _rows(records):
        rows.setdefault(f"rows={row[0]}", []).append(json.dumps(row, separators=(",", ":")))
    return {partition: sorted(lines) for partition, lines in sorted(rows.items())}


def _rows(records: int) -> Iterator[tuple[Any, ...]]:
    for account in range(ACCOUNTS):
        orders = [one for one in map(order_of, range(records)) if one[0] == account]
        payments = [one for one in map(payment_of, range(records)) if one[0] == account]
        payments.sort(key=lambda one: one[2])
        for order in orders:
            pairs = [(order[1], one[1]) for one in payments if 0 <= one[2] - order[2] <= PAID_WITHIN_MS]
            yield from (("paid", *pair) for pair in pairs)
            yield from (("first", *pair) for pair in pairs[:1])
        yield from (("fee", number, amount * 2) for _, number, _, amount in payments)
        for start in dict.fromkeys(one[2] // WINDOW_MS for one in (*orders, *payments)):
            inside = [one for one in payments if one[2] // WINDOW_MS == start]
            count = sum(one[2] // WINDOW_MS == start for one in orders)
            yield "window", account, count, sorted(one[1] for one in inside)
            if inside:
                top = sorted(inside, key=lambda one: one[3:0:-1], reverse=True)[:2]
                yield "largest", *(one[1] for one in top)
        for before, after in pairwise(payments):
            if _is_small(before) and not _is_small(after):
                yield "raise", before[1], after[1]
