"""A little language for scenarios: the story stands in the input, and the ending is asked for afterwards.

The records of each source are written as a list, with what happens in between::

    story = Story()
    a = story.source("a", "x", CHECKPOINT, "y")
    b = story.source("b", "x", Wait(3), "x", delay_ms=5)
    story.count(a.union(b))
    told = story.tell()
    assert told.counts_in(checkpoint=1) == {"x": 2}

Records cost nothing; only what the story says takes time. ``Wait(n)`` lets n ms pass before the next record.
``CHECKPOINT`` triggers a checkpoint and ``Kill("count[0]")`` kills a task when the source gets there; each takes a
millisecond of its own, so that it is clear what came before and what after. They act by the clock of the first
attempt and only once: what is read again after a restart does not repeat them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from engine.graph.stream import Stream
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import (
    ChannelBlocked,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    TaskState,
    TraceEvent,
)
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.sources import CollectionSource, Pause
from operators.time import WatermarkStrategy

MS = 1_000_000
HALF_MS = MS // 2


@dataclass(frozen=True, slots=True)
class Wait:
    """Lets ``ms`` pass."""

    ms: int


@dataclass(frozen=True, slots=True)
class Kill:
    target: str


class _Checkpoint:
    def __repr__(self) -> str:
        return "CHECKPOINT"


CHECKPOINT = _Checkpoint()
"""Triggers a checkpoint."""


class Story:
    """A job in the making, and the events planned for it."""

    def __init__(
        self,
        *,
        mode: str = "aligned",
        parallelism: int = 1,
        storage_ms: int = 0,
        restart_ms: int = 0,
        batch_size: int = 1,
        seed: str = "story",
    ) -> None:
        self.job = Job("story", parallelism=parallelism)
        self.committed = CollectedResults()
        self._config: dict[str, Any] = {"mode": mode, "batch_size": batch_size, "seed": seed, "retained": 100}
        self._restart = FixedDelayRestart(None, restart_ms * MS)
        self._storage_ms = storage_ms
        self._delays: dict[str, int] = {}
        self._checkpoints: list[int] = []
        self._kills: list[tuple[str, int]] = []
        self._sinks = 0

    # -- the job ------------------------------------------------------------------------------------------------

    def source(self, name: str, *story: Any, delay_ms: int = 0, watermarks: WatermarkStrategy | None = None) -> Stream:
        """A source that reads ``story``; its records take ``delay_ms`` to the next task."""
        items: list[Any] = []
        clock_ms = 0
        for step in story:
            if isinstance(step, Wait):
                items.append(Pause(step.ms))
                clock_ms += step.ms
            elif isinstance(step, (Kill, _Checkpoint)):
                self._plan(step, clock_ms * MS + HALF_MS)
                items.append(Pause(1))
                clock_ms += 1
            else:
                items.append(step)
        if delay_ms:
            self._delays[name] = delay_ms * MS
        return self.job.source(CollectionSource(items), name=name, parallelism=1, watermarks=watermarks)

    def _plan(self, step: Kill | _Checkpoint, at_ns: int) -> None:
        if isinstance(step, Kill):
            self._kills.append((step.target, at_ns))
        else:
            self._checkpoints.append(at_ns)

    def count(self, words: Stream, *, parallelism: int = 1) -> None:
        """Count the words of a stream and commit ``(word, count so far)``."""
        pairs = words.key_by(lambda word: word, value=lambda word: (word, 1))
        counted = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", parallelism=parallelism)
        self.commit(counted)

    def commit(self, stream: Stream) -> None:
        """End a stream in a transactional sink; all sinks of a story commit to one list."""
        self._sinks += 1
        stream.collect(self.committed, name="out" if self._sinks == 1 else f"out {self._sinks}")

    def also_kill(self, target: str, at_ms: float) -> None:
        self._kills.append((target, round(at_ms * MS)))

    # -- the telling --------------------------------------------------------------------------------------------

    def tell(self) -> Told:
        told = Told(self.committed)
        cost = CostModel(source_record_ns=0, slow_links=self._delays, storage_latency_ns=self._storage_ms * MS)
        settings: dict[str, Any] = {"inline_state_bytes": 0, "restart": self._restart, **self._config}
        config = RunConfig(checkpoint_interval=None, cost=cost, **settings)
        execution = Execution(self.job.plan(), config, instruments=[told.hear, told.oracle])
        for target, at_ns in self._kills:
            execution.kill(target, at_ns)
        for at_ns in self._checkpoints:
            execution.kernel.schedule(START_NS + at_ns, "strike", _Trigger(execution))
        told.result = execution.run().raise_on_failure()
        return told


class _Trigger:
    """Asks for a checkpoint as the periodic timer does."""

    name = "trigger"

    def __init__(self, execution: Execution) -> None:
        self._manager = execution.manager

    def strike(self, _payload: object) -> None:
        """Ask, in whichever attempt the job is by now."""
        self._manager.records_interval_over(self._manager.job.deployment)


class Told:
    """How the story went."""

    result: ExecutionResult

    def __init__(self, committed: CollectedResults) -> None:
        self.oracle = CutOracle()
        self.events: list[TraceEvent] = []
        self._committed = committed
        self._before: dict[int, list[Any]] = {}

    def hear(self, event: TraceEvent) -> None:
        self.events.append(event)
        if isinstance(event, CheckpointCompleted):
            self._before[event.checkpoint_id] = list(self._committed.records)

    @property
    def committed(self) -> list[Any]:
        return list(self._committed.records)

    def counts(self) -> dict[Any, int]:
        """The last committed count of each word. Every count up to it was committed, once."""
        assert max(Counter(self.committed).values(), default=1) == 1, "a count was committed twice"
        last = dict(sorted(self.committed))
        assert len(self.committed) == sum(last.values()), "a count is missing"
        return last

    def committed_before(self, checkpoint: int) -> list[Any]:
        """The rows committed before this checkpoint became durable."""
        return self._before[checkpoint]

    def committed_by(self, checkpoint: int) -> list[Any]:
        later = [one for one in sorted(self._before) if one > checkpoint]
        until = self._before[later[0]] if later else self.committed
        return until[len(self._before[checkpoint]) :]

    def counts_in(self, checkpoint: int) -> dict[Any, int]:
        """The words counted in a checkpoint, as far as its sink had them to commit."""
        known = [*self._before[checkpoint], *self.committed_by(checkpoint)]
        return dict(sorted(known))

    def attempts(self) -> list[int | None]:
        return [restore.checkpoint_id for restore in self.result.restores]

    def completed(self) -> list[int]:
        return self._ids(CheckpointCompleted)

    def triggered(self) -> list[int]:
        return self._ids(CheckpointTriggered)

    def aborted(self) -> list[int]:
        """The aborted checkpoints, in order."""
        return self._ids(CheckpointAborted)

    def _ids(self, kind: Any) -> list[int]:
        return [event.checkpoint_id for event in self.events if isinstance(event, kind)]

    def blocked_channels(self) -> int:
        """How often a channel was held back behind its barrier."""
        return sum(isinstance(event, ChannelBlocked) for event in self.events)

    def states_of(self, task: str) -> list[str]:
        """The states of a task, over all attempts."""
        return [event.state for event in self.events if isinstance(event, TaskState) and event.task == task]


def each(records: list[Any], by: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for record in records:
        groups.setdefault(by(record), []).append(record)
    return groups
