"""The rows that readers see of a sink into a log in memory, requested again and again; and the sink's options."""

from __future__ import annotations

from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from operators.log.connectors.log_sink import LogSink
from operators.log.disk.disk_log import DiskLog
from operators.log.memory_transaction_log import MemoryTransactionLog
from tests.operators.harness import Harness


def test_rows_are_those_of_the_log_at_this_moment() -> None:
    """Rows requested before a commit, after it, and after an abort are those committed then, in every partition."""
    sink = LogSink("rows", partitions=2)
    log = sink.log
    assert isinstance(log, MemoryTransactionLog)
    first = log.init_transactions("a", 1_000_000, 0)
    log.begin(first, 0)
    log.append(first, "rows", 1, ["x"], 0, 0)
    assert sink.committed_rows() == []
    second = log.commit(first, 0)
    assert sink.committed_rows() == ["'x'"]
    log.begin(second, 0)
    log.append(second, "rows", 0, ["y"], 0, 0)
    third = log.abort(second, 0)
    assert sink.committed_rows() == ["'x'"]
    log.begin(third, 0)
    log.append(third, "rows", 0, ["z"], 0, 0)
    log.commit(third, 0)
    assert sink.committed_rows() == ["'z'", "'x'"]


def test_rows_belong_to_whoever_asked() -> None:
    """Changing the returned rows does not change those of the next caller."""
    sink = LogSink("rows")
    log = sink.log
    producer = log.init_transactions("a", 1_000_000, 0)
    log.begin(producer, 0)
    log.append(producer, "rows", 0, ["x"], 0, 0)
    log.commit(producer, 0)
    sink.committed_rows().clear()
    assert sink.committed_rows() == ["'x'"]


def test_a_log_of_its_own_allows_the_timeout_that_the_sink_asks_for() -> None:
    """The log that the sink was made with allows it, too: its limit may be higher than the usual one."""
    timeout_ns = 3_600 * 1_000_000_000
    sink = LogSink("rows", log=MemoryTransactionLog(max_timeout_ns=timeout_ns), transaction_timeout_ns=timeout_ns)
    task = Harness(sink.fresh().create_operator())
    task.process([1])
    task.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": 5}, "topic is 5"),
        ({"partitions": 0}, "partitions is 0; it must be a whole number from 1"),
        ({"partitions": "2"}, "partitions is '2'"),
        ({"partitions": 0, "log": DiskLog("log")}, "partitions is 0"),
        ({"partition": 1}, "partition is 1; it must be a function"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    """They are refused when the sink is described, wherever its log lies."""
    with pytest.raises(ConfigurationError, match=words):
        LogSink(**options)


@pytest.mark.parametrize(
    "option", ["segment_bytes", "journal_bytes", "max_timeout_ns", "retain_bytes", "retain_records", "retain_segments",
               "transactional_id_expiration_ns"],
)  # fmt: skip
def test_an_option_of_a_log_on_disk_is_called_by_its_name(option: str) -> None:
    """The error uses the option's name, not that of the field that keeps it."""
    with pytest.raises(ConfigurationError, match=f"^{option} of the log is 0"):
        DiskLog("log", **{option: 0})  # type: ignore[arg-type]
