"""One job, killed at every step that its checkpoints take, in every mode: systematically where other tests draw.

An undisturbed run tells which steps there are: triggers, blocked channels, snapshots, captured records,
acknowledgements, metadata, one after the other. Then the job is run once for each of them and for each victim, which
dies right then: before a checkpoint, in the middle of an alignment, between the synchronous part and the upload, after
the last acknowledgement, after the metadata and before the commit, after the last record, and while the next
attempt recovers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import (
    AttemptStarted,
    ChannelBlocked,
    ChannelResumed,
    CheckpointCompleted,
    CheckpointTriggered,
    RecordsCaptured,
    SnapshotAcknowledged,
    SnapshotTaken,
    TaskState,
    TraceEvent,
)
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import JOB_MANAGER, Execution, ExecutionResult
from operators.basic import CollectedResults
from tests.faults.two_sources import counted_by_key, expected_by_key

RECORDS, KEYS = 40, 3
EXACTLY_ONCE = ("aligned", "unaligned", "aligned-timeout")
STEPS = (
    AttemptStarted,
    CheckpointTriggered,
    SnapshotTaken,
    RecordsCaptured,
    ChannelBlocked,
    ChannelResumed,
    SnapshotAcknowledged,
    CheckpointCompleted,
    TaskState,
)
VICTIMS = (
    "count[1]",
    pytest.param(JOB_MANAGER, marks=pytest.mark.slow),
    pytest.param("near[0]", marks=pytest.mark.slow),
    pytest.param("out[0]", marks=pytest.mark.slow),
)
EXPECTED = expected_by_key(RECORDS, KEYS)


class Striker:
    """An instrument that has its victim killed at the ``number``-th step."""

    def __init__(self, number: int | None = None, victim: str = "") -> None:
        self.steps = 0
        self._number, self._victim = number, victim
        self.execution: Execution

    def __call__(self, event: TraceEvent) -> None:
        if isinstance(event, STEPS):
            self.steps += 1
            if self.steps == self._number:
                kernel, manager = self.execution.kernel, self.execution.manager
                if self._victim == JOB_MANAGER:
                    kernel.schedule(kernel.now_ns, "kill_master", manager, "killed")
                else:
                    order = (self.execution._tasks_named(self._victim), "killed")
                    kernel.schedule(kernel.now_ns, "kill", manager, order)


def ran(mode: str, striker: Striker, seed: int = 0) -> tuple[ExecutionResult, CollectedResults, CutOracle]:
    results, oracle = CollectedResults(), CutOracle()
    settings: dict[str, Any] = {"aligned_timeout_ns": 4_000} if mode == "aligned-timeout" else {}
    config = RunConfig(
        mode=mode,
        seed=str(seed),
        batch_size=4,
        channel_capacity=8,
        output_capacity=20,
        checkpoint_interval=CheckpointInterval(time_ns=17_000),
        restart=FixedDelayRestart(None, 1_000),
        master_recovery_ns=1_000,
        cost=CostModel(record_ns=700, storage_latency_ns=900, slow_links={"far": 6_000}),
        inline_state_bytes=0,
        **settings,
    )
    execution = Execution(counted_by_key(results, RECORDS, KEYS).plan(), config, instruments=[oracle, striker])
    striker.execution = execution
    return execution.run().raise_on_failure(), results, oracle


def number_of_steps(mode: str) -> int:
    striker = Striker()
    ran(mode, striker)
    return striker.steps


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_killed_at_any_step_each_record_is_counted_once(mode: str, victim: str) -> None:
    """Any victim, any step: the committed counts are those of one pass, and every checkpoint was consistent."""
    steps, restored = number_of_steps(mode), 0
    for number in range(1, steps + 1):
        result, results, oracle = ran(mode, Striker(number, victim), number)

        assert Counter(results.records) == EXPECTED, number
        assert oracle.held, number
        restored += result.restores[-1].checkpoint_id is not None
    assert restored > steps // 4


@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_at_any_step_at_least_once_loses_nothing(victim: str) -> None:
    """Every count of one pass is committed, and the sums are too high by exactly the orphans of the restored cut."""
    steps, repeated = number_of_steps("at-least-once"), 0
    for number in range(1, steps + 1):
        result, results, oracle = ran("at-least-once", Striker(number, victim), number)

        restored = result.restores[-1].checkpoint_id
        verdict = None if restored is None else oracle.verdict(restored)
        orphans = 0 if verdict is None else verdict.orphans
        committed = Counter(results.records)
        highest = {key: max(count for found, count in committed if found == key) for key in range(KEYS)}
        assert committed >= EXPECTED, number
        assert sum(highest.values()) == 2 * RECORDS + orphans, number
        repeated += orphans
    assert repeated


@pytest.mark.parametrize("mode", [*EXACTLY_ONCE, "at-least-once"])
def test_killed_again_while_it_recovers(mode: str) -> None:
    """The second kill comes at each of the first steps of the next attempt."""

    class Twice(Striker):
        """Strikes in the middle, and again ``later`` steps after the start of the next attempt."""

        def __init__(self, later: int) -> None:
            super().__init__(half, "count[1]")
            self._later = later

        def __call__(self, event: TraceEvent) -> None:
            super().__call__(event)
            if isinstance(event, AttemptStarted) and event.attempt == 2:
                self._number, self._victim = self.steps + self._later, "out[0]"

    half = number_of_steps(mode) // 2
    for later in range(1, 16):
        result, results, oracle = ran(mode, Twice(later), later)

        assert result.attempts == 3
        if mode == "at-least-once":
            assert Counter(results.records) >= EXPECTED
        else:
            assert Counter(results.records) == EXPECTED
            assert oracle.held
