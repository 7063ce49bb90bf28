"""Requests to real databases, and the answers, get lost, and others interfere: jobs fare as they do with the model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.elements.errors import DataLossError, JobFailedError
from engine.faults.fault import parse_fault
from engine.faults.injector import FaultInjector
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from operators.databases import DatabaseSink, SinkDatabase, UpsertSink
from operators.sources import SequenceSource

RECORDS = 30
SURVIVED = (
    "answer-lost:take-over#3",
    "request-lost:begin#2",
    "request-lost:write rows:out/1/*#3",
    "expire:write#3",
    "fence:write#2",
    "expire:prepare*#2",
    "answer-lost:prepare#1",
    "fence:prepare*#1",
    "request-lost:commit rows:out/0*#1",
    "answer-lost:commit#2",
    "fence:commit#2",
    "late-marker:commit#1",
    "request-lost:upsert last:*#2",
    "answer-lost:upsert#1",
    "fence:upsert last:last/*#1",
)
EACH = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow))


class Ran:
    """A job with rows and upserts in a database to which one fault happens."""

    def __init__(self, database: SinkDatabase, *faults: str) -> None:
        job = Job("outside", max_parallelism=4)
        numbers = job.source(SequenceSource(0, RECORDS), name="numbers", uid="numbers")
        rows = numbers.rebalance().map(lambda number: (number,), name="keep", uid="keep", parallelism=2)
        self.rows = DatabaseSink(database, "rows", {"number": "BIGINT"}, batch_rows=2)
        rows.sink(self.rows, name="out", uid="out", parallelism=2, chain=False)
        last = rows.map(lambda row: (row[0] % 3, row[0])).key_by(lambda row: row[0])
        columns = {"key": "BIGINT", "number": "BIGINT"}
        self.last = UpsertSink(database, "last", columns, key=["key"], version="number", batch_rows=2)
        last.sink(self.last, name="last", uid="last", parallelism=2)
        self.injector = FaultInjector([parse_fault(text) for text in faults])
        config = RunConfig(batch_size=2, checkpoint_interval=CheckpointInterval(records=7))
        made = Execution(self.injector.in_run(job.plan()), config, interference=self.injector)
        self.injector.install(made)
        self.result: ExecutionResult = made.run()

    @property
    def told(self) -> tuple[Any, ...]:
        """The part of the result that must be the same with every database."""
        return (
            self.result.error and type(self.result.error),
            Counter(self.rows.committed_rows()),
            self.last.committed_rows(),
            [str(one) for one in self.injector.unused],
        )


ALL_OF_IT = (None, Counter(f"({number},)" for number in range(RECORDS)), ["(0, 27)", "(1, 28)", "(2, 29)"], [])


@pytest.mark.parametrize("fault", SURVIVED)
@pytest.mark.parametrize("database", EACH, indirect=True)
def test_what_befalls_a_request_is_survived(database: SinkDatabase, fault: str) -> None:
    """After the fault, the next attempt finds what was done and does the rest; every row is there once."""
    ran = Ran(database, fault)

    assert ran.told == ALL_OF_IT
    assert len(ran.injector.struck) == 1


def test_a_prepared_transaction_that_somebody_rolls_back_is_lost(database: SinkDatabase) -> None:
    """The rows are lost for good: the job says which, and no row is there twice."""
    ran = Ran(database, "expire:commit#2")

    error, rows, _, unused = ran.told
    assert error is JobFailedError
    assert isinstance(ran.result.error, JobFailedError)
    assert ran.result.error.exit_code == DataLossError.exit_code
    assert unused == []
    assert rows < ALL_OF_IT[1]


def test_what_arrives_late_is_an_end_that_was_there(database: SinkDatabase) -> None:
    """A commit and an abort arrive again while the next transaction is open; its rows are not touched."""
    ran = Ran(database, "late-marker:commit#1", "late-marker:abort#1", "request-lost:write#4")

    assert ran.told == ALL_OF_IT
