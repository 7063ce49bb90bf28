"""A job of some sources and one slow sink, and what its checkpoints hold: records processed and records in flight.

Sources emit a record per µs, numbered from 0 and named after their source: ``a0``, ``a1``, ... The sink takes
``SINK_NS`` for each. It logs its work, so a test can tell for a checkpoint which records were processed before it,
which were stored on the receiver's side and which on the sender's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.checkpoint.restore import FixedDelayRestart, RestartStrategy
from engine.graph.job import Job
from engine.graph.stream import Stream
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import CheckpointAborted, CheckpointCompleted, CheckpointTriggered, SnapshotTaken
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import START_NS
from operators.sources import GeneratorSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, MemoryFileSystem
from state_backends.snapshots import ChannelStateHandle, read_channel_state
from tests.runtime.support import US, RecordingSink, Trace, storage_in

SINK_NS = 3 * US


def named(source: str, *numbers: int) -> list[str]:
    return [f"{source}{number}" for number in numbers]


class TriggerAt:
    """Asks for checkpoints at given times, as the periodic timer does."""

    name = "trigger"

    def __init__(self, execution: Execution, times_ns: Sequence[int]) -> None:
        self._manager = execution.manager
        for at_ns in times_ns:
            execution.kernel.schedule(START_NS + at_ns, "strike", self)

    def strike(self, _payload: None = None) -> None:
        """Ask, in the current attempt (kernel event)."""
        self._manager.records_interval_over(self._manager.job.deployment)


@dataclass
class InFlight:
    """The trace and the files of a run."""

    result: ExecutionResult
    sink: RecordingSink
    trace: Trace
    files: MemoryFileSystem
    job: Job

    def stored(self, checkpoint_id: int) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Records in flight of a retained checkpoint, of receivers and of senders, by channel."""
        storage = storage_in(self.files, self.job.name)
        reader = storage.reader(checkpoint_id)
        inputs: dict[str, list[Any]] = {}
        outputs: dict[str, list[Any]] = {}
        for operator in storage.read_metadata(checkpoint_id).operators:
            for subtask in operator.subtasks.values():
                for handle, into in ((subtask.input_channels, inputs), (subtask.output_channels, outputs)):
                    self._read(reader, handle, into)
        return inputs, outputs

    def _read(self, reader: Any, handle: ChannelStateHandle | None, into: dict[str, list[Any]]) -> None:
        if handle is not None:
            for name, columns in read_channel_state(reader, handle).items():
                sender, _, receiver = name.edge.partition(">>")
                channel = f"{sender}[{name.sender}] {receiver.partition('#')[0]}[{name.receiver}]"
                into[channel] = [value for one in columns for value in one.values]

    def processed(self, checkpoint_id: int) -> list[Any]:
        """Records that the sink had taken when its snapshot was taken, in order, in that attempt."""
        at = next(
            at for at, (_, what, value) in enumerate(self.sink.calls) if (what, value) == ("snapshot", checkpoint_id)
        )
        attempt = self.sink.calls[at][0]
        return [value for found, what, value in self.sink.calls[:at] if (found, what) == (attempt, "record")]

    def at_ns(self, kind: type[CheckpointTriggered | CheckpointCompleted], checkpoint_id: int) -> int:
        """When the checkpoint reached this step, from the start of the run."""
        event = next(event for event in self.trace.of(kind) if event.checkpoint_id == checkpoint_id)
        return event.time_ns - self.result.started_ns

    def ids(self, kind: type[CheckpointTriggered | CheckpointCompleted | CheckpointAborted]) -> list[int]:
        return [event.checkpoint_id for event in self.trace.of(kind)]

    def snapshot_ns(self, checkpoint_id: int, task: str = "sink[0]") -> int:
        """When a task took its snapshot, from the start of the run."""
        taken = next(one for one in self.trace.of(SnapshotTaken) if one[2:4] == (checkpoint_id, task))
        return taken.time_ns - self.result.started_ns


@dataclass
class Flight:
    """The job to be run, and its settings."""

    sources: Mapping[str, int] = field(default_factory=lambda: {"a": 20})
    """Names, and how many records each has."""
    mode: str = "unaligned"
    at_ns: Sequence[int] = ()
    """When checkpoints are asked for."""
    kills: Sequence[tuple[str, int]] = ()
    savepoints_ns: Sequence[int] = ()
    batch_size: int = 1
    input_capacity: int = 4
    output_capacity: int = 100
    slow_links: Mapping[str, int] = field(default_factory=dict)
    stragglers: Mapping[str, float] = field(default_factory=dict)
    link_bytes_per_s: int | None = None
    sink_ns: int = SINK_NS
    source_ns: int = US
    settings: Mapping[str, Any] = field(default_factory=dict)
    restart: RestartStrategy = field(default_factory=lambda: FixedDelayRestart(None, 0))
    make: Callable[[str, int], Any] = field(default=lambda source, number: f"{source}{number}")
    spread: Callable[[Stream], Stream] = field(default=Stream.rebalance)
    faults: Sequence[FaultRule] = ()
    """Of the file system that checkpoints are written to."""

    def run(self) -> InFlight:
        """Run to the end; the job's error is in the result. Every checkpoint must have been a consistent cut."""
        job, sink = Job("flight"), RecordingSink()
        streams = [
            job.source(
                GeneratorSource(
                    lambda first, last, name=name: [self.make(name, number) for number in range(first, last)], count
                ),
                name=name,
                uid=name,
            )
            for name, count in self.sources.items()
        ]
        merged = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
        self.spread(merged).sink(sink, name="sink", uid="sink", chain=False)
        cost = CostModel(
            source_record_ns=self.source_ns,
            record_ns=self.sink_ns,
            record_bytes=100,
            link_bytes_per_s=self.link_bytes_per_s,
            slow_links=self.slow_links,
            stragglers=self.stragglers,
        )
        config: dict[str, Any] = {
            "mode": self.mode,
            "batch_size": self.batch_size,
            "channel_capacity": self.input_capacity,
            "output_capacity": self.output_capacity,
            "checkpoint_interval": None,
            "retained": 100,
            "seeded_schedule": False,
            "tolerable_failures": 100,
            "cost": cost,
            "restart": self.restart,
        }
        trace, oracle, memory = Trace(), CutOracle(), MemoryFileSystem()
        files = FaultInjectingFileSystem(memory, self.faults)
        run_config = RunConfig(**{**config, **self.settings})
        execution = Execution(
            job.plan(),
            run_config,
            storage=storage_in(files, job.name, run_config),
            file_system=files,
            instruments=[trace, oracle],
        )
        for target, at_ns in self.kills:
            execution.kill(target, at_ns)
        for at_ns in self.savepoints_ns:
            execution.savepoint(at_ns, "/savepoints")
        TriggerAt(execution, self.at_ns)
        result = execution.run()
        assert oracle.held, oracle.verdicts
        return InFlight(result, sink, trace, memory, job)
