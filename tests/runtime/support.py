"""Small jobs and observers for the tests of this directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.observe.trace_events import Instrument, TraceEvent
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from operators.basic import CollectedResults, SinkOperator
from operators.sources import SequenceSource
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage

US = 1_000
MS = 1_000_000
BASE_DIR = "/checkpoints"

EventT = TypeVar("EventT")


class Trace:
    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def __call__(self, event: TraceEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]


class RecordingSink:
    """A sink that records every call with its attempt: all calls, not only what was committed."""

    name = "recording"

    def __init__(self) -> None:
        self.calls: list[tuple[int, str, Any]] = []
        self.at_notify: Callable[[int], None] = lambda checkpoint_id: None

    def create_operator(self) -> Operator:
        return _Recording(self)

    def of(self, what: str) -> list[Any]:
        return [argument for _, kind, argument in self.calls if kind == what]

    def records_of_attempt(self, attempt: int) -> list[Any]:
        """The records that one attempt processed, in order."""
        return [value for found, what, value in self.calls if found == attempt and what == "record"]


class _Recording(SinkOperator):
    def __init__(self, sink: RecordingSink) -> None:
        self._sink = sink

    def _note(self, what: str, argument: Any = None) -> None:
        self._sink.calls.append((self.context.attempt, what, argument))

    def process_batch(self, batch: Batch) -> None:
        for value in batch.values:
            self._note("record", value)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        self._note("pre-barrier", checkpoint_id)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._note("snapshot", checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._sink.at_notify(checkpoint_id)
        self._note("complete", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._note("aborted", checkpoint_id)

    def finish(self) -> None:
        self._note("finish")

    def close(self) -> None:
        self._note("close")


def running_count(job: Job, records: int, into: Any, *, keys: int = 3, name: str = "count", **source: Any) -> Job:
    """``records`` numbers, counted per key: the output is ``(key, 1) .. (key, n)`` for every key, in any order of
    keys, so it shows for each record whether it was counted never, once or twice."""
    stream = job.source(SequenceSource(0, records), name="numbers", **source).map(
        lambda number: (number % keys, 1), name="pair"
    )
    counted = stream.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name=name)
    return counted.collect(into, name="out")


def expected_counts(records: int, keys: int = 3) -> Counter[tuple[int, int]]:
    """The output of ``running_count`` when each record is counted exactly once."""
    sizes = Counter(number % keys for number in range(records))
    return Counter((key, count) for key, size in sizes.items() for count in range(1, size + 1))


def every(*, ns: int | None = None, records: int | None = None) -> CheckpointInterval:
    return CheckpointInterval(time_ns=ns, records=records)


def execution(
    job: Job,
    *,
    kills: Iterable[tuple[str, int]] = (),
    instruments: Sequence[Instrument] = (),
    file_system: FileSystem | None = None,
    restore: bool = False,
    incarnation: int = 1,
    output_dir: str = "/out",
    **config: Any,
) -> Execution:
    """A run of ``job`` in memory, checkpoints below ``BASE_DIR`` of ``file_system``; ``config`` is ``RunConfig``'s."""
    files = MemoryFileSystem() if file_system is None else file_system
    run_config = RunConfig(**config)
    made = Execution(
        job.plan(),
        run_config,
        storage=storage_in(files, job.name, run_config),
        file_system=files,
        output_dir=output_dir,
        incarnation=incarnation,
        instruments=instruments,
        restore=restore,
    )
    for target, at_ns in kills:
        made.kill(target, at_ns)
    return made


def storage_in(files: FileSystem, job_name: str, config: RunConfig | None = None) -> CheckpointStorage:
    inline = RunConfig().inline_state_bytes if config is None else config.inline_state_bytes
    return CheckpointStorage(files, BASE_DIR, job_name, inline_threshold_bytes=inline)


def run(job: Job, **settings: Any) -> ExecutionResult:
    """Run and raise the job's error if there is one."""
    return execution(job, **settings).run().raise_on_failure()


def checked(made: Execution, *, at_most: int = 200_000) -> ExecutionResult:
    """Run event by event with all invariants checked after each; more than ``at_most`` events are taken for a run
    without end."""

    def step(_progress: Any) -> None:
        for _ in range(at_most):
            if not made.kernel.run(1) or made.kernel.stopped:
                return
            made.manager.validate()
        raise AssertionError(f"no end after {at_most} events; the job is {made.manager.job.state}")

    made._run_kernel = step  # type: ignore[method-assign, assignment]
    return made.run()


def files_below(files: FileSystem, directory: str = BASE_DIR) -> dict[str, bytes]:
    return {path: files.read_bytes(path) for path in files.walk_files(directory)}


def collected() -> CollectedResults:
    return CollectedResults()
