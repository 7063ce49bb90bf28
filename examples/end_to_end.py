"""From end to end: one job into every sink, two deaths on the way, and a reader that looks all the time.

Numbers are counted by key and written to the sink. One counter dies between two checkpoints. One writer dies after a
checkpoint is complete, before it has made its rows visible. A reader that knows nothing of the job opens all visible
files and tables, if possible with third-party libraries. Its books say which rows were lost, appeared twice,
appeared before a completed checkpoint covered them, or appeared and then vanished. Run it with::

    python -m examples.end_to_end                                  # all sinks, a line each
    python -m examples.end_to_end --sink parquet --sink sqlite     # what the reader saw, and when
    python -m examples.end_to_end --sink postgres --dsn 'host=localhost dbname=shop'

The last sinks make no such promise: they show that the books find errors.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine import CheckpointInterval, ConfigurationError, Job, RunConfig, SequenceSource
from engine.elements.errors import MissingDependencyError, WeirError
from engine.faults.fault import parse_fault
from engine.faults.injector import FaultInjector
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, RunStarted, Send, TaskState, TraceEvent
from engine.runtime.execution import Execution
from examples.end_to_end_sinks import KEYS, OVERWRITE, SINKS, TABLES, Row, Target
from state_backends import LocalFileSystem

RECORDS = 240
KILL = "count[1]", 100_000
"""A counter, at this many ns of virtual time: between the second checkpoint and the third."""
CRASH = "crash:table[0]@before:user.commit#4"
"""A writer that was notified of a completed checkpoint, before it acts on that."""
CRASHES = {
    "compacting": "crash:table-committer[0]@before:user.commit#4",
    **dict.fromkeys(("partitions", "partitions-compacted", "table-by-options"), "crash:table[0]@before:user.notify#4"),
    OVERWRITE: "crash:table finalizer[0]@before:sink.rename#5",
}
"""Sinks where another task publishes, or has further tasks after the writer. The last one publishes everything at the
end, and dies in the middle of that."""
CONFIG = RunConfig(checkpoint_interval=CheckpointInterval(records=40), batch_size=10)
_SEES = "    a reader sees"
COLUMNS = ("expected", "found", "twice", "early", "gone", "wrong")


def rows_by_number() -> list[Row]:
    """The rows that the job must write, in the order of its input, computed without the engine."""
    return [Row(number, KEYS[number % len(KEYS)], number // len(KEYS) + 1) for number in range(RECORDS)]


def pipeline(sink: Any) -> Job:
    """One source, two counters, and the sink, with two writers."""
    job = Job("end-to-end", parallelism=2)
    numbers = job.source(SequenceSource(0, RECORDS), name="numbers", parallelism=1)
    ones = numbers.map(lambda number: {"number": number, "key": KEYS[number % len(KEYS)], "seen": 1}, name="ones")
    counts = ones.key_by(lambda row: row["key"]).reduce(
        lambda before, row: {**row, "seen": before["seen"] + 1}, name="count"
    )
    return counts.disable_chaining().sink(sink, name="table", uid="table")


@dataclass(slots=True)
class Reader:
    """Reads the sink after every event of the job except sends, and keeps the books.

    ``found``: expected rows that are there at the end; ``twice``: rows of which more than one copy was seen at once;
    ``early``: rows seen before a completed checkpoint covered them; ``gone``: rows seen, and missing later, or in
    an older state; ``wrong``: unexpected rows at the end.
    """

    target: Target
    keeps_last: bool
    """Whether the sink is a table of the last row of each key."""
    source_channels: frozenset[int]
    notes: list[str] = field(default_factory=list)
    twice: set[Row] = field(default_factory=set)
    early: set[Row] = field(default_factory=set)
    gone: set[Row] = field(default_factory=set)
    _shown: Counter[Row] = field(default_factory=Counter)
    _started_ns: int = 0
    _sent: int = 0
    """Records that the source has sent, counted from the beginning of the input."""
    _barriers: dict[int, int] = field(default_factory=dict)
    """Checkpoint -> records before its barrier."""
    _covered: int = 0

    def __call__(self, event: TraceEvent) -> None:
        """Handle one event of the job."""
        match event:
            case RunStarted():
                self._started_ns = event.time_ns
            case Send(channel=channel) if channel in self.source_channels:
                self._note_progress(event)
            case CheckpointCompleted():
                self._covered = self._barriers[event.checkpoint_id]
                self._note(event.time_ns, f"checkpoint {event.checkpoint_id} is complete: {self._covered} records")
            case AttemptStarted(attempt=attempt, restored_checkpoint=restored) if attempt > 1:
                self._sent = self._barriers[restored] if restored is not None else 0
                self._note(event.time_ns, f"attempt {attempt} starts from checkpoint {restored}")
            case TaskState(state="failed"):
                self._note(event.time_ns, f"{event.task} dies")
        if not isinstance(event, Send):
            self._look(event.time_ns)

    def _note_progress(self, event: Send) -> None:
        if event.kind == "records":
            self._sent += event.records
        elif event.kind == "CheckpointBarrier" and event.detail is not None:
            self._barriers.setdefault(event.detail, self._sent)

    def _note(self, time_ns: int, what: str) -> None:
        self.notes.append(f"{(time_ns - self._started_ns) // 1_000:>6,} us  {what}")

    def _look(self, time_ns: int) -> None:
        shown = Counter(row for row in self.target.rows() if row.number >= 0)
        if shown == self._shown:
            return
        self.twice.update(row for row, copies in shown.items() if copies > 1)
        self.early.update(row for row in shown if row.number >= self._covered and row not in self._shown)
        self.gone.update(self._missing(shown))
        if self.notes and _SEES in self.notes[-1]:
            self.notes.pop()
        different = f", {len(shown)} of them different" if len(shown) < shown.total() else ""
        self._note(time_ns, f"{_SEES} {shown.total()} rows{different}")
        self._shown = shown

    def _missing(self, shown: Counter[Row]) -> Iterable[Row]:
        if not self.keeps_last:
            return (row for row in self._shown if row not in shown)
        newest = {row.key: row.seen for row in shown}
        return (row for row in self._shown if newest.get(row.key, 0) < row.seen)

    def books(self) -> Mapping[str, int]:
        """The sums, when the job is over."""
        expected = rows_by_number()[-len(KEYS) :] if self.keeps_last else rows_by_number()
        there = Counter(self.target.rows())
        found = sum(row in there for row in expected)
        wrong = sum(copies for row, copies in there.items() if row not in set(expected))
        counts = (len(expected), found, len(self.twice), len(self.early), len(self.gone), wrong)
        return dict(zip(COLUMNS, counts, strict=True))


def watched(name: str, directory: str, dsn: str | None = None) -> Reader:
    """Run the job into the sink of that name, with its deaths and its reader.

    :raises ConfigurationError: when there is no such sink
    :raises WeirError: when the job has failed, other than by its two deaths
    """
    if name not in SINKS:
        raise ConfigurationError(f"there is no sink {name!r}; there are {', '.join(SINKS)}")
    target = Target(SINKS[name], directory, dsn)
    if name == OVERWRITE:
        target.leave_old_row()
    plan = pipeline(target.sink()).plan()
    of_source = frozenset(channel.index for channel in plan.channels if channel.sender_vertex == 0)
    reader = Reader(target, name in TABLES, of_source)
    injector = FaultInjector([parse_fault(CRASHES.get(name, CRASH))])
    files = injector.wrap(LocalFileSystem(), "files")
    execution = Execution(
        plan, CONFIG, file_system=files, output_dir=directory, instruments=[reader], interference=injector
    )
    injector.install(execution)
    execution.kill(*KILL)
    execution.run().raise_on_failure()
    return reader


def main(arguments: list[str] | None = None) -> None:
    """Run it into the requested sinks, or into all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sink", action="append", choices=list(SINKS), help="only this one, in detail; repeatable")
    parser.add_argument("--dsn", help="where PostgreSQL is; without it those sinks are left out")
    options = parser.parse_args(arguments)
    names = options.sink or [name for name, outlet in SINKS.items() if options.dsn or not outlet.needs_dsn]
    print(f"{RECORDS} records; count[1] dies between two checkpoints, table[0] between a checkpoint and its commit.\n")
    print(f"{'sink':<22}" + "".join(f"{column:>9}" for column in COLUMNS))
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            try:
                reader = watched(name, directory, options.dsn)
            except MissingDependencyError as error:
                print(f"{name:<22}  left out: {error}")
                continue
            except WeirError as error:
                raise SystemExit(f"{name}: {error}") from error
            print(f"{name:<22}" + "".join(f"{count:>9}" for count in reader.books().values()))
        if options.sink:
            print("\n" + "\n".join(reader.notes) + "\n")


if __name__ == "__main__":
    main()
