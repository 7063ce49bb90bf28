"""A job that reads one log on disk and writes another, exactly once: for tests that explore it.

The input is made by :func:`write_orders`: transactions of two producers, some of them aborted, between records without.
"""

from __future__ import annotations

from engine.graph.job import Job
from operators.log.connectors.log_sink import LogSink
from operators.log.connectors.log_source import LogSource
from operators.log.disk.disk_log import DiskLog
from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.disk.log_settings import LogSettings
from state_backends.files import FileSystem, LocalFileSystem

PARTITIONS = 2


def write_orders(fs: FileSystem, path: str, count: int = 12) -> None:
    """``count`` committed orders in each partition."""
    log = DiskTransactionLog(fs, path, LogSettings(segment_bytes=300))
    log.create_topic("orders", PARTITIONS)
    for start in range(0, count, 3):
        orders = list(range(start, min(start + 3, count)))
        for partition in range(PARTITIONS):
            producer = log.init_transactions(f"p{start % 2}", 1_000, 0)
            log.begin(producer, 0)
            log.append(producer, "orders", partition, [(partition, order) for order in orders], 0, 0)
            aborted = log.init_transactions("aborted", 1_000, 0)
            log.begin(aborted, 0)
            log.append(aborted, "orders", partition, ["never"], 0, 0)
            log.abort(aborted, 0)
            log.commit(producer, 0)
    log.close()


def chained(path: str, parallelism: int | None, group: str | None = "chain", fsync: str = "transaction") -> Job:
    """Running sums of the orders of each partition."""
    job = Job("chained", max_parallelism=4)
    source = LogSource(path, "orders", group=group)
    orders = job.source(source, name="orders", uid="orders", parallelism=parallelism or 2)
    sums = orders.key_by(lambda order: order[0]).reduce(
        lambda a, b: (a[0], a[1] + b[1]), name="sum", uid="sum", parallelism=parallelism or 2
    )
    log = DiskLog("sums", segment_bytes=300, journal_bytes=400, fsync=fsync)
    sink = LogSink("sums", log=log, partitions=PARTITIONS, partition=lambda row, _: row[0])
    sums.sink(sink, name="out", uid="out", parallelism=parallelism or 2, chain=False)
    return job


def job(path: str = "orders-log", parallelism: int | None = None, fsync: str = "transaction") -> Job:
    """For the command line; the input is written if it is not there."""
    if not LocalFileSystem().exists(path):
        write_orders(LocalFileSystem(), path)
    return chained(path, parallelism, fsync=fsync)
