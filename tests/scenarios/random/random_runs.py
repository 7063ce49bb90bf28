"""Random ways to run a random graph: modes, costs, capacities, intervals; and faults that strike at any time.

Kills come at times of the run, or a little after something that happens in it: a checkpoint is triggered, becomes
durable, an attempt begins. So checkpoints die before, while and after they are made, and attempts while they recover.
A run is data, like a graph: :func:`drive` carries it out, with all invariants checked as it goes.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.events import StopMode
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    SnapshotTaken,
    TraceEvent,
)
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.config.run_config import SNAPSHOTS
from engine.runtime.execution import JOB_MANAGER, Execution, ExecutionResult
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.scenarios.live_files import check_live_files
from tests.scenarios.random.random_graphs import Graph, Rows, build

EXACTLY_ONCE = ("aligned", "unaligned", "aligned-timeout")
MOST_EVENTS = 100_000
STATE_BACKENDS = ("heap", "heap", "lsm", "changelog", "changelog:lsm")
FEW_SUBTASKS = 6
FOREVER_NS = 600 * 10**9
JOB, CHECKPOINTS, SAVEPOINTS = "random", "/checkpoints", "/savepoints"

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


@dataclass(frozen=True)
class Run:
    """A graph, the settings of its run, and the faults."""

    graph: Graph
    config: RunConfig
    kills: tuple[Kill, ...] = ()
    savepoints_ns: tuple[int, ...] = ()
    stop_ns: int | None = None
    """When it is stopped with a savepoint, if it is."""
    faults: tuple[FaultRule, ...] = ()
    """Of the file system that snapshots are written to."""


# --- drawing ----------------------------------------------------------------------------------------------------------


@st.composite
def _costs(draw: st.DrawFn, names: tuple[str, ...]) -> CostModel:
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
        host_bytes_per_s=draw(st.sampled_from((None, None, 50_000_000))),
    )


@st.composite
def _configs(draw: st.DrawFn, mode: str, names: tuple[str, ...], fixed: Mapping[str, Any]) -> RunConfig:
    stores_records = mode in ("unaligned", "aligned-timeout")
    intervals = [CheckpointInterval(time_ns=ns) for ns in (5_000, 12_000, 40_000)]
    settings: dict[str, Any] = {
        "mode": mode,
        "seed": str(draw(st.integers(0, 10**6))),
        "seeded_schedule": draw(st.booleans()),
        "batch_size": draw(st.sampled_from((1, 2, 7, 64))),
        "channel_capacity": draw(st.sampled_from((None, 1, 3, 50))),
        "output_capacity": draw(st.sampled_from((0, 0, 2, 30))),
        "debloat_target_ns": draw(st.sampled_from((None, None, None, 4_000, 40_000))),
        "checkpoint_interval": draw(st.sampled_from((None, CheckpointInterval(records=11), *intervals))),
        "random_first_delay": draw(st.booleans()),
        "max_concurrent": 1 if stores_records else draw(st.sampled_from((1, 1, 2, 4))),
        "min_pause_ns": draw(st.sampled_from((0, 0, 2_000))),
        "retained": draw(st.integers(1, 3)),
        "tolerable_failures": draw(st.sampled_from((10**6, 10**6, 0, 2))),
        "checkpoint_timeout_ns": draw(st.sampled_from((300_000, FOREVER_NS))),
        "checkpoints_after_tasks_finish": draw(st.sampled_from((True, True, False))),
        "restart": FixedDelayRestart(None, draw(st.sampled_from((0, 1_000, 50_000)))),
        "failover": draw(st.sampled_from(("full", "region"))),
        "master_recovery_ns": draw(st.sampled_from((0, 3_000, 40_000))),
        "inline_state_bytes": draw(st.sampled_from((0, 20 * 1024))),
        "cost": draw(_costs(names)),
        "state_backend": draw(st.sampled_from(STATE_BACKENDS)),
        "snapshot": draw(st.sampled_from(SNAPSHOTS)),
        "snapshot_compression": draw(st.sampled_from(("none", "none", "zlib"))),
        "local_recovery": draw(st.sampled_from((False, False, True))),
    }
    if mode == "aligned-timeout":
        settings["aligned_timeout_ns"] = draw(st.sampled_from((1, 500, 3_000, 20_000)))
    if settings["tolerable_failures"] < 10**6:
        # A job that tolerates few failures restarts for each expired checkpoint, and may never come to its end.
        settings["checkpoint_timeout_ns"] = FOREVER_NS
    settings.update(fixed)
    if not settings["checkpoints_after_tasks_finish"]:
        # A region that has finished cannot be part of the last checkpoint that another one needs after a failure.
        settings["failover"] = "full"
    return RunConfig(**settings)


@st.composite
def _kills(draw: st.DrawFn, names: tuple[str, ...], most: int) -> tuple[Kill, ...]:
    found = []
    for _ in range(draw(st.integers(min(1, most), most))):
        target = draw(st.sampled_from((*names, JOB_MANAGER)))
        moment = draw(st.sampled_from((None, "a checkpoint is durable", *MOMENTS)))
        if moment is None:
            found.append(Kill(target, draw(st.integers(0, 120_000))))
        else:
            delay_ns = draw(st.sampled_from((0, 1, 700, 2_500, 9_000)))
            found.append(Kill(target, delay_ns, moment, draw(st.integers(1, 4))))
    return tuple(found)


_FAULTS = st.builds(
    FaultRule,
    st.sampled_from((FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER, FileFault.DISK_FULL)),
    st.sampled_from(("make_dirs", "open_write", "write", "fsync", "rename", "fsync_dir")),
    st.sampled_from(("*/chk-*", "*/chk-2*", "*_metadata*", "*savepoint*")),
    st.integers(1, 6),
)


@st.composite
def runs(
    draw: st.DrawFn,
    mode: str,
    graph: Graph,
    *,
    most_kills: int = 3,
    most_savepoints: int = 0,
    most_faults: int = 0,
    may_stop: bool = False,
    **fixed: Any,
) -> Run:
    """A way to run ``graph``. ``fixed``: settings of the run that are not drawn."""
    names = tuple(subtask.name for subtask in build(graph, empty_results(graph), JOB).plan().subtasks)
    faults, kills = draw(st.lists(_FAULTS, max_size=most_faults)), draw(_kills(names, most_kills))
    if faults:
        fixed = {"checkpoint_interval": CheckpointInterval(time_ns=40_000), **fixed}
    if faults or kills:
        # The last checkpoint of a job is tried again after 10 ms: not too much shall happen until then.
        fixed = {"debloat_target_ns": None, **fixed}
    return Run(
        graph,
        draw(_configs(mode, names, fixed)),
        kills,
        tuple(draw(st.lists(st.integers(0, 60_000), max_size=most_savepoints))),
        draw(st.none() | st.none() | st.integers(0, 60_000)) if may_stop else None,
        tuple(faults),
    )


# --- running ----------------------------------------------------------------------------------------------------------


class Killer:
    name = "killer"

    def __init__(self) -> None:
        self._waiting: dict[type[Any], dict[int, list[Kill]]] = {}
        self._seen: dict[type[Any], int] = {}

    def arm(self, execution: Execution, planned: tuple[Kill, ...]) -> None:
        self._execution = execution
        for kill in planned:
            if kill.moment is None:
                execution.kill(kill.target, kill.delay_ns)
            else:
                self._waiting.setdefault(MOMENTS[kill.moment], {}).setdefault(kill.number, []).append(kill)

    def __call__(self, event: TraceEvent) -> None:
        """Count moments, and strike after the chosen one."""
        kind = type(event)
        if kind in self._waiting:
            number = self._seen[kind] = self._seen.get(kind, 0) + 1
            for kill in self._waiting[kind].pop(number, ()):
                kernel = self._execution.kernel
                kernel.schedule(kernel.now_ns + kill.delay_ns, "strike", self, kill.target)

    def strike(self, target: str) -> None:
        manager = self._execution.manager
        if target == JOB_MANAGER:
            manager.kill_master("killed")
        else:
            manager.kill((self._execution._tasks_named(target), "killed"))


@dataclass
class Ledger:
    """An instrument that follows every snapshot from its trigger to its end, and knows the output at that time."""

    results: Mapping[int, CollectedResults]
    triggered: list[int] = field(default_factory=list)
    completed: dict[int, dict[int, CollectedResults]] = field(default_factory=dict)
    """By id: what the sinks had committed when it became durable."""
    aborted: set[int] = field(default_factory=set)

    def __call__(self, event: TraceEvent) -> None:
        """Take in one event: ids grow, and there is one ending for each."""
        match event:
            case CheckpointTriggered(checkpoint_id=number):
                assert not self.triggered or number > self.triggered[-1], f"{number} was used twice"
                self.triggered.append(number)
            case CheckpointCompleted(checkpoint_id=number):
                assert number in self.triggered, number
                assert number not in self.completed, f"{number} became durable twice"
                assert number not in self.aborted, f"{number} was given up before it became durable"
                self.completed[number] = copy.deepcopy(dict(self.results))
            case CheckpointAborted(checkpoint_id=number):
                assert number not in self.completed, f"{number} was given up after it had become durable"
                if number in self.triggered:
                    self.aborted.add(number)
                # Otherwise neither a task nor the storage has heard of it: the next job manager may take the number.


@dataclass
class Driven:
    """The result of a run."""

    run: Run
    files: FileSystem
    results: dict[int, CollectedResults]
    oracle: CutOracle
    ledger: Ledger
    execution: Execution
    result: ExecutionResult

    @property
    def committed(self) -> dict[int, Rows]:
        return {at: Counter(map(tuple, results.records)) for at, results in self.results.items()}

    def in_flight_bytes(self, checkpoint_id: int | None) -> int:
        """Records in flight in a snapshot of this run."""
        row = None if checkpoint_id is None else self.result.checkpoints.history.get(checkpoint_id)
        return 0 if row is None else row.persisted_bytes


def empty_results(graph: Graph) -> dict[int, CollectedResults]:
    return {at: CollectedResults() for at in graph.sinks}


def drive(
    run: Run,
    *,
    results: dict[int, CollectedResults] | None = None,
    files: FileSystem | None = None,
    storage: str = CHECKPOINTS,
    restore_from: SavepointRestore | None = None,
    instruments: tuple[Any, ...] = (),
) -> Driven:
    """Carry out a run, with all invariants checked on the way; raises its error if it fails. What is left in storage in
    the end is what its checkpoints refer to."""
    files = MemoryFileSystem() if files is None else files
    results = empty_results(run.graph) if results is None else results
    faulty = FaultInjectingFileSystem(files, run.faults) if run.faults else files
    oracle, ledger, killer = CutOracle(), Ledger(results), Killer()
    execution = Execution(
        build(run.graph, results, JOB).plan(),
        run.config,
        storage=CheckpointStorage(faulty, storage, JOB, inline_threshold_bytes=run.config.inline_state_bytes),
        file_system=faulty,
        restore_from=restore_from,
        instruments=[oracle, ledger, killer, *instruments],
    )
    killer.arm(execution, run.kills)
    for at_ns in run.savepoints_ns:
        execution.savepoint(at_ns, SAVEPOINTS)
    if run.stop_ns is not None:
        execution.savepoint(run.stop_ns, SAVEPOINTS, stop=StopMode.SUSPEND)
    result = run_checked(execution).raise_on_failure()
    if not run.faults:
        check_live_files(files, CheckpointStorage(files, storage, JOB))
    return Driven(run, files, results, oracle, ledger, execution, result)


def run_checked(execution: Execution) -> ExecutionResult:
    """Run to the end with all invariants checked, in small jobs after every event."""
    every = 1 if len(execution.plan.subtasks) <= FEW_SUBTASKS else 13

    def step(_progress: Any) -> None:
        while execution.kernel.run(every) == every and not execution.kernel.stopped:
            execution.manager.validate()
            assert execution.kernel.executed < MOST_EVENTS, "the job comes to no end"

    execution._run_kernel = step  # type: ignore[method-assign, assignment]
    return execution.run()


def left_in_storage(driven: Driven) -> set[int]:
    """Numbers of the checkpoints whose directories are there, but for those that the disk would not delete (which was
    noted: the next start of the storage directory does)."""
    directory = CheckpointStorage(driven.files, CHECKPOINTS, JOB).job_dir
    names = [path[len(directory) + 1 :].split("/")[0] for path in driven.files.walk_files(directory)]
    left = {int(name.removeprefix("chk-")) for name in names if name.startswith("chk-")}
    return {one for one in left if f"checkpoint {one} could not be deleted" not in "".join(driven.result.notes)}
