"""Random ways to run a job: modes, costs, capacities, intervals; and faults that strike at any time.

Kills come at times of the run, or a little after something that happens in it: a checkpoint is triggered, becomes
durable, an attempt begins. So checkpoints die before, while and after they are made, and attempts while they recover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from engine.checkpoint.messages import TaskId
from engine.checkpoint.restart import FixedDelayRestart
from engine.elements.batch import Batch
from engine.graph.plan import ExecutionPlan
from engine.observe.events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointCut,
    CheckpointTriggered,
    SnapshotTaken,
    TraceEvent,
)
from engine.runtime.channel import Channel
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.cost import CostModel
from engine.runtime.execution import JOB_MANAGER, Execution, ExecutionResult
from tests.scenarios.random_graphs import Graph, Rows

EXACTLY_ONCE = ("aligned", "unaligned", "aligned-timeout")
MOST_EVENTS = 100_000

MOMENTS: dict[str, type[Any]] = {
    "an attempt begins": AttemptStarted,
    "a checkpoint is triggered": CheckpointTriggered,
    "a snapshot is taken": SnapshotTaken,
    "a checkpoint is durable": CheckpointCompleted,
}


@dataclass(frozen=True)
class Kill:
    """A task dies ``delay_ns`` after the start of the run, or after a moment comes for the ``number``-th time."""

    target: str
    delay_ns: int
    moment: str | None = None
    number: int = 1


@st.composite
def costs(draw: st.DrawFn, names: tuple[str, ...]) -> CostModel:
    """Records, links and storage take some time or none; some tasks and some links are slow."""
    some = st.sampled_from(names)
    return CostModel(
        source_record_ns=draw(st.sampled_from((0, 1_000, 1_000, 3_000))),
        record_ns=draw(st.sampled_from((0, 0, 300, 1_500))),
        link_latency_ns=draw(st.sampled_from((0, 0, 700))),
        link_bytes_per_s=draw(st.sampled_from((None, None, 50_000_000, 400_000_000))),
        storage_latency_ns=draw(st.sampled_from((0, 0, 2_000, 15_000))),
        storage_bytes_per_s=draw(st.sampled_from((None, None, 100_000_000))),
        stragglers=draw(st.dictionaries(some, st.sampled_from((0.0, 0.5, 4.0)), max_size=2)),
        slow_links=draw(st.dictionaries(some, st.sampled_from((500, 3_000, 20_000)), max_size=2)),
    )


@st.composite
def configs(draw: st.DrawFn, mode: str, names: tuple[str, ...], **fixed: Any) -> RunConfig:
    """Everything about a run but its faults. ``fixed``: settings that are not drawn."""
    stores_records = mode in ("unaligned", "aligned-timeout")
    intervals = [CheckpointInterval(time_ns=ns) for ns in (5_000, 12_000, 40_000)]
    settings: dict[str, Any] = {
        "mode": mode,
        "seed": str(draw(st.integers(0, 10**6))),
        "seeded_schedule": draw(st.booleans()),
        "batch_size": draw(st.sampled_from((1, 2, 7, 64))),
        "channel_capacity": draw(st.sampled_from((None, 1, 3, 50))),
        "output_capacity": draw(st.sampled_from((0, 0, 2, 30))),
        "checkpoint_interval": draw(st.sampled_from((None, CheckpointInterval(records=11), *intervals))),
        "max_concurrent": 1 if stores_records else draw(st.sampled_from((1, 1, 2, 4))),
        "retained": draw(st.integers(1, 3)),
        "tolerable_failures": draw(st.sampled_from((10**6, 10**6, 0, 2))),
        "checkpoint_timeout_ns": draw(st.sampled_from((300_000, 600 * 10**9))),
        "min_pause_ns": draw(st.sampled_from((0, 0, 2_000))),
        "restart": FixedDelayRestart(None, draw(st.sampled_from((0, 1_000, 50_000)))),
        "inline_state_bytes": draw(st.sampled_from((0, 20 * 1024))),
        "checkpoints_after_tasks_finish": draw(st.sampled_from((True, True, False))),
        "random_first_delay": draw(st.booleans()),
        "failover": draw(st.sampled_from(("full", "region"))),
        "master_recovery_ns": draw(st.sampled_from((0, 3_000, 40_000))),
        "debloat_target_ns": draw(st.sampled_from((None, None, 4_000, 40_000))),
        "cost": draw(costs(names)),
    }
    if mode == "aligned-timeout":
        settings["aligned_timeout_ns"] = draw(st.sampled_from((1, 500, 3_000, 20_000)))
    if settings["tolerable_failures"] < 10**6:
        # A job that tolerates few failures restarts for each expired checkpoint, and may never come to its end.
        settings["checkpoint_timeout_ns"] = 600 * 10**9
    return RunConfig(**{**settings, **fixed})


@st.composite
def kills(draw: st.DrawFn, names: tuple[str, ...], most: int = 3) -> tuple[Kill, ...]:
    """Up to ``most`` kills."""
    found = []
    for _ in range(draw(st.integers(0, most))):
        target = draw(st.sampled_from((*names, JOB_MANAGER)))
        moment = draw(st.sampled_from((None, *MOMENTS)))
        if moment is None:
            found.append(Kill(target, draw(st.integers(0, 120_000))))
        else:
            delay_ns = draw(st.sampled_from((0, 1, 700, 2_500, 9_000)))
            found.append(Kill(target, delay_ns, moment, draw(st.integers(1, 4))))
    return tuple(found)


class Killer:
    """An instrument that carries out kills, each once."""

    name = "killer"

    def __init__(self, execution: Execution, planned: tuple[Kill, ...]) -> None:
        self._execution = execution
        self._waiting: dict[type[Any], dict[int, list[Kill]]] = {}
        self._seen: dict[type[Any], int] = {}
        for kill in planned:
            if kill.moment is None:
                execution.kill(kill.target, kill.delay_ns)
            else:
                self._waiting.setdefault(MOMENTS[kill.moment], {}).setdefault(kill.number, []).append(kill)

    def __call__(self, event: TraceEvent) -> None:
        """Count moments, and strike after the one that was meant."""
        kind = type(event)
        if kind in self._waiting:
            number = self._seen[kind] = self._seen.get(kind, 0) + 1
            for kill in self._waiting[kind].pop(number, ()):
                kernel = self._execution.kernel
                kernel.schedule(kernel.now_ns + kill.delay_ns, "strike", self, kill.target)

    def strike(self, target: str) -> None:
        """Kill (kernel event)."""
        manager = self._execution.manager
        if target == JOB_MANAGER:
            manager.kill_master("killed")
        else:
            manager.kill((self._execution._tasks_named(target), "killed"))


@dataclass
class Ledger:
    """An instrument that checks the life of every checkpoint: ids grow, and there is one ending for each."""

    triggered: list[int] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)

    def __call__(self, event: TraceEvent) -> None:
        """Take in one event."""
        if isinstance(event, CheckpointTriggered):
            assert not self.triggered or event.checkpoint_id > self.triggered[-1], "an id was used twice"
            self.triggered.append(event.checkpoint_id)
        elif isinstance(event, CheckpointCompleted | CheckpointAborted):
            ending = type(event).__name__
            known = self.ended.setdefault(event.checkpoint_id, ending)
            assert known == ending == "CheckpointAborted" or event.checkpoint_id not in self.ended or known == ending
            assert isinstance(event, CheckpointCompleted) or known != "CheckpointCompleted", event


def task_names(plan: ExecutionPlan) -> tuple[str, ...]:
    """Every subtask, as faults and costs call it."""
    return tuple(subtask.name for subtask in plan.subtasks)


def all_tasks(plan: ExecutionPlan) -> Mapping[str, TaskId]:
    """Every subtask by name."""
    return {subtask.name: (subtask.vertex, subtask.subtask) for subtask in plan.subtasks}


def run_checked(execution: Execution, every: int = 1) -> ExecutionResult:
    """Run to the end with all invariants checked after every so many events."""

    def step(_progress: Any) -> None:
        while execution.kernel.run(every) == every and not execution.kernel.stopped:
            execution.manager.validate()
            assert execution.kernel.executed < MOST_EVENTS, "the job comes to no end"

    execution._run_kernel = step  # type: ignore[method-assign, assignment]
    return execution.run()


def describe(graph: Graph) -> str:
    """A graph in a few lines, for whoever has to understand a failure."""
    lines = []
    for at, node in enumerate(graph.nodes):
        inputs = ", ".join(f"{one.node}{'/' + one.tag if one.tag else ''} {one.spread}" for one in node.inputs)
        lines.append(f"{graph.name(at)} x{node.parallelism}{'' if node.chain else ' unchained'} <- {inputs}")
    return "\n".join(lines)


class SentRecords:
    """What every channel of every attempt carried, in order, and which records a restore sends a second time.

    At-least-once barriers block nothing, so a receiver's snapshot may hold records that its sender had not sent before
    its own snapshot: the restored sender sends them again. Of a restore they are the records between the sender's and
    the receiver's counter in the cut that it starts from. A restore from a cut of an attempt that was itself restored
    repeats what that one repeated, and so on back to the start.
    """

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan = plan
        self._sent: dict[tuple[int, int], list[Any]] = {}
        self._cuts: dict[int, CheckpointCut] = {}
        self._restored: dict[int, int | None] = {}

    def __call__(self, event: TraceEvent) -> None:
        """Remember cuts, and what each attempt starts from."""
        if isinstance(event, CheckpointCut):
            self._cuts[event.checkpoint_id] = event
        elif isinstance(event, AttemptStarted):
            self._restored[event.attempt] = event.restored_checkpoint

    def put_batch(self, channel: Channel, batch: Batch) -> None:
        """Write down, then send: what takes the place of ``Channel.put_batch``."""
        self._sent.setdefault((channel.attempt, channel.index), []).extend(batch.values)
        _put_batch(channel, batch)

    def sent_again(self) -> dict[str, Rows]:
        """By operator: the records that came to it twice on the way to the state in which the run has ended."""
        repeated: dict[str, Rows] = {}
        attempt = max(self._restored)
        while (checkpoint_id := self._restored[attempt]) is not None:
            cut = self._cuts[checkpoint_id]
            attempt = cut.attempt
            for index, sent, received in cut.differences:
                assert received > sent, f"checkpoint {checkpoint_id} loses records on channel {index}"
                receiver = self._plan.vertices[self._plan.channels[index].receiver_vertex].operators[0].name
                repeated.setdefault(receiver, Counter()).update(self._sent[attempt, index][sent:received])
        return repeated


_put_batch = Channel.put_batch
