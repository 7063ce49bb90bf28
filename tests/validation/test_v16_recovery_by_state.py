"""V16: recovery time against the size of the state."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CountingSink, Job, RunResult
from engine.study import Arrivals, Trace
from tests.validation.targets import Figure, Size, assert_plausible, target

READING = 950_000_000
"""Bytes per second of all tasks together: fitted to the published pair of the first row."""


def recovered(tasks: int, weight: float, state_backend: str) -> RunResult:
    """A job whose state is read after a kill. A byte of it weighs ``weight`` bytes."""
    job = Job("state", parallelism=tasks)
    records = Arrivals(Trace(["0s"] * 40 * tasks + ["400s"]), splits=1)
    keyed = job.source(records, name="numbers", parallelism=1).key_by(lambda n: n)
    keyed.reduce(lambda a, b: b, name="latest").sink(CountingSink(), name="end")
    return job.run(
        checkpoint_interval="100s", latency=False, inline_state_bytes=0, state_backend=state_backend,
        cost={"shared_storage_bytes_per_s": READING, "restore_bytes_per_s": READING, "virtual_state": weight},
        kills=["latest[0]@190s"],
    )


@target(
    "V16", "how long does a recovery of so much state take?", study=[recovered],
    missed={
        "changelog, 25.2 GB: s (published: 35-65)":
        "reading the changes takes time here, applying them does not; the difference of 8 to 38 s is their replay",
    },
)  # fmt: skip
def reading(size: Size) -> Iterator[Figure]:
    """The state is made as large as the published one by its weight."""
    tasks = size.of(5, 50)
    for case, gigabytes, backend, seconds, tolerance in (
        ("RocksDB, 19.6 GB: s (published: 20-21; fit to published data)", 19.6, "heap", 20.5, 0.1),
        ("changelog, 25.2 GB: s (published: 35-65)", 25.2, "changelog", 50, 0.3),
    ):
        real_bytes = recovered(tasks, 1, backend).recoveries["remote_bytes"][0]
        found = recovered(tasks, gigabytes * 1e9 / real_bytes, backend).recoveries["recovery_ns"][0] / 1e9
        yield Figure(case, seconds, found, tolerance)


def test_recovery_is_reading_the_state() -> None:
    """Full state at 0.95 GB/s: 19.6 GB in 20.6 s. With the changelog, the changes since the last materialisation are
    replayed on top of that (Flink blog of 2022-05-30: recovery 20-21 s, with the changelog 35-65 s).
    """
    assert_plausible(reading)
