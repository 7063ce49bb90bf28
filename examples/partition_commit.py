"""When readers may trust a partition: files appear with checkpoints, success files when event time has passed.

Clicks of three hours are written to a table partitioned by day and hour. At any moment a reader sees only rows
of completed checkpoints; ``_SUCCESS`` says that the hour is complete. One click comes too late: the job committed its
hour long before, and commits it again. Run it with::

    python -m examples.partition_commit
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine import (
    CollectionSource,
    DefaultPartitionTimeExtractor,
    ExecutionResult,
    Job,
    PartitionCommit,
    PartitionedFileSink,
    WatermarkStrategy,
)
from state_backends import MemoryFileSystem

MINUTE_MS = 60_000
MIDNIGHT_MS = 1_588_464_000_000
"""2020-05-03 00:00 UTC."""
LATE = {"day": "2020-05-03", "hour": "07", "minute": 59, "page": "late"}


SCENARIO = {"params": {"late": "no", "readers": "2"}}
"""Without the late click: the rows of its hour at the first commit depend on the order of reads, and a search compares
them. With two readers: with a single one, only the committer would wait for a second barrier."""


def clicks(late: str = "yes") -> Iterator[dict[str, Any]]:
    """Every three minutes from 07:00 to 10:00; at 09:30 one of 07:59, unless ``late`` is ``no``."""
    for minute in range(7 * 60, 10 * 60, 3):
        yield {"day": "2020-05-03", "hour": f"{minute // 60:02d}", "minute": minute % 60, "page": f"p{minute % 7}"}
        if late == "yes" and minute == 9 * 60 + 30:
            yield LATE


def time_of(click: dict[str, Any]) -> int:
    """Its event time in ms."""
    return MIDNIGHT_MS + (int(click["hour"]) * 60 + click["minute"]) * MINUTE_MS


def job(late: str = "yes", readers: str = "1") -> Job:
    """One source, two writers, one committer. ``readers``: subtasks of the source."""
    made, number = Job("partition_commit", parallelism=2), int(readers)
    read = made.source(CollectionSource(list(clicks(late)), splits=number), name="clicks", parallelism=number)
    strategy = WatermarkStrategy.for_monotonous_timestamps(time_of).with_interval_ns(1_000)
    timed = read.assign_timestamps_and_watermarks(strategy, name="times", parallelism=number)
    commit = PartitionCommit(
        "partition-time", delay_ms=60 * MINUTE_MS, extractor=DefaultPartitionTimeExtractor("$day $hour:00:00")
    )
    table = PartitionedFileSink("clicks", partition_by=("day", "hour"), commit=commit)
    return timed.rebalance().sink(table, name="table")


class Reader:
    """Looks at the table after every event, and notes what has changed."""

    def __init__(self, files: MemoryFileSystem) -> None:
        self._files = files
        self._last: dict[str, str] = {}
        self.notes: list[str] = []

    def __call__(self, event: Any) -> None:
        """Handle one event of the job."""
        seen = self.look()
        for hour, what in seen.items():
            if self._last.get(hour) != what:
                self.notes.append(f"{(event.time_ns - START_NS) // 1_000:>4} us   hour={hour}   {what}")
        self._last = seen

    def look(self) -> dict[str, str]:
        """The visible state of each hour."""
        rows: dict[str, int] = {}
        complete: dict[str, None] = {}
        for path in self._files.walk_files("/out/clicks"):
            hour, name = path.split("hour=")[1].split("/")
            if name == "_SUCCESS":
                complete[hour] = None
            elif not name.startswith("."):
                rows[hour] = rows.get(hour, 0) + self._files.read_bytes(path).count(b"\n")
        marks = {hour: "  _SUCCESS" if hour in complete else "" for hour in rows}
        return {hour: f"{count:>2} rows{marks[hour]}" for hour, count in sorted(rows.items())}


START_NS = 10**18


def run() -> tuple[ExecutionResult, Reader, MemoryFileSystem]:
    """One run, watched by a reader; a checkpoint every 10 us, which is ten clicks."""
    files = MemoryFileSystem()
    reader = Reader(files)
    result = job().run(
        checkpoint_interval="10us", batch_size=1, file_system=files, output_dir="/out", instruments=[reader]
    ).execution
    return result, reader, files


def main() -> None:
    """Print what the reader saw, and what exists at the end."""
    result, reader, files = run()
    print("What a reader sees, and when:\n")
    print("\n".join(reader.notes))
    print("\nIn the end:\n")
    for path in sorted(files.walk_files("/out/clicks")):
        print(path.removeprefix("/out/clicks/"))
    print()
    for name in ("numPartitionsCommitted", "numPartitionsCommittedAgain"):
        print(f"{name}: {sum(counters.get(name, 0) for counters in result.counters.values())}")


if __name__ == "__main__":
    main()
