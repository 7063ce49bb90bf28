"""The job that the crash tests kill: a running count per key, written to files, one directory per partition.

A job file like any other: ``weir run tests/crash/jobs/killed_job.py --storage DIR --out DIR``. Two sources race for the
counts, so compare only values that do not depend on their order: counts, not sums.
"""

from __future__ import annotations

from engine import FileSink, Job, SequenceSource, Stream

KEYS = 1_000


def job(records: str = "120000") -> Job:
    """Two sources, two counts, two sinks."""
    job = Job("killed", parallelism=2)
    numbers = job.source(SequenceSource(0, int(records), splits=4), name="numbers")
    return counted(numbers.map(lambda number: number * 7919 % KEYS, name="key"))


def counted(keys: Stream) -> Job:
    """Count the keys of a stream, into files."""
    pairs = keys.map(lambda key: (key, 1), name="pair")
    counts = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    return counts.sink(FileSink("counts", bucket=lambda count: f"remainder={count[0] % 3}"), name="files")
