"""What a sink that writes to a log in memory says that readers see, asked again and again."""

from __future__ import annotations

from operators.log.log_sink import LogSink
from operators.log.memory_transaction_log import MemoryTransactionLog


def test_rows_are_those_of_the_log_at_this_moment() -> None:
    """Rows asked for before a commit, after it, and behind an abort are what is committed then, in every partition."""
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
    """Who changes the rows that he was given does not change what the next one sees."""
    sink = LogSink("rows")
    log = sink.log
    producer = log.init_transactions("a", 1_000_000, 0)
    log.begin(producer, 0)
    log.append(producer, "rows", 0, ["x"], 0, 0)
    log.commit(producer, 0)
    sink.committed_rows().clear()
    assert sink.committed_rows() == ["'x'"]
