"""A Spark transform without Spark: a Python function runs where the batch would, and every batch is written down.

Which rows make a batch, when it runs and what remains after a failure are questions about rows, time and state; Spark
would only make the answers slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_bridge import transform
from spark_bridge.cuts import Cut, Period, event_time_cut
from spark_bridge.transform import SparkTransform, spark_transform
from tests.operators.harness import Checkpoint, Harness


def tens_of(timestamp_ms: int) -> Period:
    start_ms = timestamp_ms // 10 * 10
    return Period(start_ms, start_ms + 10, f"from {start_ms}")


TENS = event_time_cut(tens_of)


def kinds_of(results: Any) -> list[tuple[str, str]]:
    """The columns of results as Spark would tell them, without that of periods; none of what is no row."""
    first = results[0] if results and isinstance(results[0], dict) else {}
    return [(name, type(value).__name__) for name, value in first.items() if name != "period"]


def unseen(columns: Any) -> None:
    """Any columns are right."""


class Calls:
    """Stands in for ``run_batch``: calls the function on the list of rows and writes the call down."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[Any]]] = []
        self.options: list[dict[str, Any]] = []

    def __call__(self, fn: Callable[[list[Any]], list[Any]], rows: list[Any], schema: str, **options: Any) -> list[Any]:
        """Label and rows of one batch, then its results."""
        self.batches.append((options.pop("label"), list(rows)))
        see = options.pop("see")
        self.options.append({"schema": schema, **options})
        results = fn(rows)
        if columns := kinds_of(results):
            see(columns)
        return results

    @property
    def labels(self) -> list[str]:
        """The labels so far, without the operator's name."""
        return [label.removeprefix("op: ") for label, _ in self.batches]

    @property
    def rows(self) -> list[list[Any]]:
        return [rows for _, rows in self.batches]


@contextmanager
def without_spark() -> Iterator[Calls]:
    with pytest.MonkeyPatch.context() as patch:
        calls = Calls()
        patch.setattr(transform, "run_batch", calls)
        yield calls


def size_and_sum(rows: list[Any]) -> list[Any]:
    """One result per batch."""
    return [(len(rows), sum(rows))]


def spec(cut: Cut, fn: Any = size_and_sum, **options: Any) -> SparkTransform:
    return spark_transform(fn, schema="value int", cut=cut, **options)


def operator_of(cut: Cut, fn: Any = size_and_sum, *, restored: Checkpoint | None = None, **options: Any) -> Harness:
    return Harness(spec(cut, fn, **options).create_operator(), restored=restored)
