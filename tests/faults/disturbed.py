"""How to run a small job with faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.faults.fault import Fault, FaultMix, parse_fault
from engine.faults.injector import FaultInjector
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import TraceEvent
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import ChoiceRecorder
from operators.basic import CollectedResults
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.faults.two_sources import counted_by_key, expected_by_key

RECORDS, KEYS = 24, 5
EXACTLY_ONCE = ("aligned", "unaligned", "aligned-timeout")
MODES = ("aligned", "unaligned", pytest.param("aligned-timeout", marks=pytest.mark.slow))
"""The same, for tests of many runs."""
EXPECTED = expected_by_key(RECORDS, KEYS)
VIRTUAL_BOUND_NS = 200_000_000
"""Within it every run of the small job has ended, whatever has struck: some 250 times what it takes undisturbed."""


class Disturbance(FaultInjector):
    """An injector that counts the opportunities. ``asked``: by message and task, or channel and element."""

    def __init__(
        self,
        faults: Sequence[Fault],
        mix: FaultMix,
        choices: ChoiceRecorder,
        *,
        unsound: bool = False,
        heal_after_ns: int | None = None,
    ) -> None:
        super().__init__(faults, mix, choices, unsound=unsound, heal_after_ns=heal_after_ns)
        self.asked: Counter[str] = Counter()

    @property
    def disturbs_messages(self) -> bool:
        return True

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        self.asked[f"{message} {task}"] += 1
        return super().fates(message, task)

    @property
    def disturbs_elements(self) -> bool:
        return True

    def element_delay_ns(self, channel: str, kind: str) -> int:
        self.asked[f"{channel} {kind}"] += 1
        return super().element_delay_ns(channel, kind)


@dataclass
class Disturbed:
    """The outcome of a run."""

    result: ExecutionResult
    records: Counter[Any]
    oracle: CutOracle
    disturbance: Disturbance
    trace: list[TraceEvent]

    @property
    def struck(self) -> tuple[Fault, ...]:
        return self.disturbance.struck

    @property
    def took_ns(self) -> int:
        return self.result.ended_ns - self.result.started_ns


def counting(results: CollectedResults) -> Job:
    return counted_by_key(results, RECORDS, KEYS)


def config(mode: str = "aligned", seed: str = "0", **settings: Any) -> RunConfig:
    """Short intervals, slow records and a checkpoint timeout of a few intervals."""
    if mode == "aligned-timeout":
        settings.setdefault("aligned_timeout_ns", 4_000)
    merged: dict[str, Any] = {
        "batch_size": 4,
        "channel_capacity": 8,
        "output_capacity": 20,
        "checkpoint_interval": CheckpointInterval(time_ns=17_000),
        "checkpoint_timeout_ns": 60_000,
        "restart": FixedDelayRestart(None, 1_000),
        "tolerable_failures": 1_000,
        "cost": CostModel(record_ns=700, storage_latency_ns=900, slow_links={"far": 6_000}),
        "inline_state_bytes": 0,
    }
    return RunConfig(mode=mode, seed=seed, **{**merged, **settings})


def disturbed(
    *faults: str | Fault,
    mode: str = "aligned",
    seed: str = "2",
    mix: FaultMix | None = None,
    unsound: bool = False,
    heal_after_ns: int | None = None,
    checkpoints: FileSystem | None = None,
    kills: Sequence[tuple[str, int]] = (),
    **settings: Any,
) -> Disturbed:
    """Run the job to its end under these faults."""
    results, oracle, trace = CollectedResults(), CutOracle(), []  # type: ignore[var-annotated]
    choices = ChoiceRecorder(seed)
    exact = [parse_fault(one) if isinstance(one, str) else one for one in faults]
    mix = FaultMix() if mix is None else mix
    disturbance = Disturbance(exact, mix, choices, unsound=unsound, heal_after_ns=heal_after_ns)
    disk = disturbance.wrap(MemoryFileSystem() if checkpoints is None else checkpoints, "checkpoints")
    execution = Execution(
        counting(results).plan(),
        config(mode, seed, **settings),
        storage=CheckpointStorage(disk, "/checkpoints", "counting", inline_threshold_bytes=0),
        instruments=[oracle, trace.append],
        choices=choices,
        interference=disturbance,
    )
    disturbance.install(execution)
    for target, at_ns in kills:
        execution.kill(target, at_ns)
    return Disturbed(execution.run(), Counter(results.records), oracle, disturbance, trace)
