"""Operator coordinators in whole jobs: elements that they hand out are processed exactly once, despite any death."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.errors import JobFailedError, JobGraphError
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import JOB_MANAGER, Execution
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import locate_snapshot
from tests.cases import crossed
from tests.runtime.job.coordinated_jobs import Dealt, asking, dealing
from tests.runtime.support import US, checked, every, execution, storage_in

MODES = ("aligned", "unaligned")
TOTAL = 60
SETTINGS: dict[str, Any] = {
    "batch_size": 2,
    "checkpoint_interval": every(ns=9 * US),
    "restart": FixedDelayRestart(None, 2 * US),
    "cost": CostModel(record_ns=1 * US, link_latency_ns=2 * US, storage_latency_ns=1 * US),
    "inline_state_bytes": 0,
}
INSTANTS = range(1, 70, 4)


def deal(*, keyed: bool = True, numbers: Dealt | None = None, **settings: Any) -> tuple[Dealt, list[int]]:
    """Run the job of dealt numbers with all invariants checked; returns the dealer's calls and the output."""
    numbers, results = Dealt(TOTAL) if numbers is None else numbers, CollectedResults()
    made = execution(dealing(numbers, results, keyed=keyed), **{**SETTINGS, **settings})
    checked(made).raise_on_failure()
    return numbers, results.records


@crossed(quick=2, target=["reader[1]", "spread", JOB_MANAGER], at_us=INSTANTS, mode=MODES)
def test_dealt_numbers_are_processed_once_after_a_global_failure(target: str, at_us: int, mode: str) -> None:
    """Coordinator and subtasks go back together, when a task dies as when the job manager does."""
    kills = [(target, at_us * US), ("reader[0]", (at_us + 21) * US)]
    numbers, records = deal(kills=kills, mode=mode, seed=f"{target} {at_us}", seeded_schedule=True)

    assert sorted(records) == list(range(TOTAL))
    assert not numbers.told("subtask reset")


@crossed(quick=2, at_us=INSTANTS, mode=MODES)
def test_dealt_numbers_are_processed_once_after_a_regional_failure(at_us: int, mode: str) -> None:
    """The coordinator goes on, and takes back the elements that the reset subtask had got since its checkpoint."""
    kills = [("reader[1]", at_us * US), ("reader[0]", (at_us + 1) * US), ("reader[1]", (at_us + 17) * US)]
    settings: dict[str, Any] = {"kills": kills, "mode": mode, "seed": f"{at_us}", "seeded_schedule": True}
    numbers, records = deal(keyed=False, failover="region", **settings)

    assert sorted(records) == list(range(TOTAL))
    assert not numbers.told("reset")
    assert {subtask for subtask, _ in numbers.told("subtask reset")} <= {0, 1}


@crossed(quick=2, at_us=INSTANTS, target=["worker[1]", "worker", "ticks", JOB_MANAGER], mode=MODES)
def test_operators_behind_channels_get_each_number_once(at_us: int, target: str, mode: str) -> None:
    """The barrier comes on their inputs: events sent before it are in their state, events held back are not."""
    numbers, results = Dealt(50, ask=12), CollectedResults()
    made = execution(
        asking(numbers, results, records=60),
        kills=[(target, at_us * US)],
        **{**SETTINGS, "mode": mode, "seed": f"{target} {at_us}", "seeded_schedule": True},
    )
    checked(made).raise_on_failure()

    assert sorted(results.records) == list(range(24))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("at_us", [8, 19, 33])
def test_a_savepoint_goes_on_with_another_parallelism(at_us: int, parallelism: int, mode: str) -> None:
    """Numbers in the state of readers are redistributed, and the dealer goes on with those it had left."""
    files, first, second = MemoryFileSystem(), Dealt(TOTAL), Dealt(TOTAL)
    results = CollectedResults()
    made = execution(dealing(first, results), file_system=files, **{**SETTINGS, "mode": mode})
    made.savepoint(at_us * US, "/savepoints", stop=None)
    path = made.run().raise_on_failure().savepoints[0].path
    assert path is not None
    location, metadata = locate_snapshot(files, path)

    config = RunConfig(**{**SETTINGS, "mode": mode})
    again = CollectedResults()
    job = dealing(second, again, parallelism=parallelism)
    storage = storage_in(MemoryFileSystem(), job.name, config)
    restored = Execution(
        job.plan(), config, storage=storage, file_system=files, output_dir="/out", restore_from=SavepointRestore(path)
    )
    checked(restored).raise_on_failure()

    [(checkpoint_id, left)] = second.told("reset")
    assert checkpoint_id == metadata.checkpoint_id == location.checkpoint_id
    assert second.calls[0][0] == "reset"
    assert second.calls[1] == ("start", parallelism)
    assert set(range(TOTAL - left, TOTAL)) <= set(again.records)
    assert len(set(again.records)) == len(again.records)


def test_state_is_part_of_the_metadata() -> None:
    """The coordinator's state is stored under its operator; other operators have none."""
    files = MemoryFileSystem()
    made = execution(dealing(Dealt(TOTAL), CollectedResults()), file_system=files, **SETTINGS)
    made.savepoint(20 * US, "/savepoints")
    path = made.run().raise_on_failure().savepoints[0].path
    assert path is not None
    _, metadata = locate_snapshot(files, path)

    assert [one.uid for one in metadata.operators if one.coordinator_state is not None] == ["reader"]


def test_a_restart_without_a_checkpoint_resets_to_nothing() -> None:
    """A global failure before any checkpoint: the coordinator is reset to no checkpoint, and is not started twice."""
    numbers, records = deal(kills=[("reader", 4 * US)])

    assert numbers.told("reset") == [[None, None]]
    assert numbers.told("start") == [[3]]
    assert sorted(records) == list(range(TOTAL))


def test_a_new_job_manager_makes_a_new_coordinator() -> None:
    """The old one is closed; the new one is reset before it is started, if there is a checkpoint."""
    numbers, _ = deal(kills=[(JOB_MANAGER, 4 * US), (JOB_MANAGER, 40 * US)], master_recovery_ns=1 * US)

    life = [call for call in numbers.calls if call[0] in ("start", "reset", "close")]
    assert [call[0] for call in life] == ["start", "close", "start", "close", "reset", "start", "close"]


def test_a_checkpoint_is_told_complete_or_aborted_but_never_both() -> None:
    """A checkpoint under way when a reader dies is told aborted; others, before and after it, are told complete."""
    numbers, _ = deal(kills=[("reader", 14 * US)], checkpoint_interval=every(ns=3 * US), max_concurrent=2)

    outcomes = [call for call in numbers.calls if call[0] in ("complete", "aborted")]
    aborted = {one for kind, one in outcomes if kind == "aborted"}
    completed = {one for kind, one in outcomes if kind == "complete"}
    assert aborted
    assert completed
    assert aborted.isdisjoint(completed)


def test_a_coordinator_that_raises_fails_the_whole_job() -> None:
    """It gets no call until it is reset, and the job goes back to the newest checkpoint; without restarts it fails."""
    numbers, left = Dealt(TOTAL), [1, 0, 0, 0, 0, 0]

    def at_event(_dealer: object) -> None:
        if not left or left.pop():
            return
        left.clear()
        raise ValueError("no luck")

    numbers.at_event = at_event  # type: ignore[method-assign]
    _, records = deal(numbers=numbers)
    assert sorted(records) == list(range(TOTAL))
    assert len(numbers.told("reset")) == 1

    left += [0]
    with pytest.raises(JobFailedError, match="handle_event of the coordinator of operator 'reader' raised ValueError"):
        deal(numbers=numbers, restart=NoRestart())


def test_state_that_cannot_be_taken_fails_checkpoint_and_job() -> None:
    """The checkpoint never triggers a task, and the next attempt takes it anew."""
    numbers, failures = Dealt(TOTAL), [2]

    def at_checkpoint(checkpoint_id: int) -> None:
        if checkpoint_id in failures:
            raise ValueError("no state")

    numbers.at_checkpoint = at_checkpoint  # type: ignore[method-assign]
    _, records = deal(numbers=numbers)

    assert sorted(records) == list(range(TOTAL))
    assert [2] not in numbers.told("complete")
    assert [1] in numbers.told("complete")
    assert len(numbers.told("reset")) == 1


def test_only_operators_with_a_coordinator_may_send_to_it() -> None:
    """The error names the operator and tells how it gets a coordinator."""

    class Sends(Operator):
        def open(self) -> None:
            self.context.send_to_coordinator(1)

    job = Job("alone").source(SequenceSource(0, 3)).via(Sends, name="lonely").collect([])
    with pytest.raises(JobFailedError, match="'lonely' sends to its coordinator, but has none"):
        execution(job).run().raise_on_failure()
    assert JobGraphError.exit_code != JobFailedError.exit_code


def test_what_is_kept_back_for_a_task_dies_with_it() -> None:
    """Answers to requests after the cut wait for the barrier; those for the failed task are dropped at once."""
    made = execution(asking(Dealt(50, ask=12), CollectedResults(), records=60), **SETTINGS)
    kept = waiting_for(made)
    failed = next(subtask for subtask, events in enumerate(kept) if events)
    made.manager.coordinators.tasks_failed([(1, failed)])

    assert not gateways_of(made)[failed][0]


def waiting_for(made: Execution) -> list[tuple[Any, ...]]:
    """Run until events are held back; returns them by subtask."""
    found: list[tuple[Any, ...]] = []

    def step(_progress: object) -> None:
        while not found and made.kernel.run(1):
            kept = [tuple(event for _, events in one[0] for event in events) for one in gateways_of(made)]
            if any(kept):
                found.extend(kept)

    made._run_kernel = step  # type: ignore[method-assign, assignment]
    with pytest.raises(AssertionError, match="nothing is left to happen"):
        made.run()
    return found


def gateways_of(made: Execution) -> Any:
    return made.manager.coordinators.fingerprint()[0][3]  # type: ignore[index]


class Late(Operator):
    """Asks when its input has ended."""

    def process_batch(self, batch: Any) -> None:
        """Takes the records and emits none."""

    def finish(self) -> None:
        self.context.send_to_coordinator(1)

    def on_coordinator_event(self, event: Any) -> None:
        raise AssertionError(f"{event} came behind the end of the data")


def test_nothing_is_handed_to_an_operator_that_has_finished() -> None:
    """Its output would come after the end of the data; the request itself still counts."""
    numbers, asked = Dealt(5, ask=1), [0]
    numbers.at_event = lambda _dealer: asked.append(1)  # type: ignore[method-assign]
    job = Job("late").source(SequenceSource(0, 3), name="ticks").via(Owned(numbers), name="late").collect([])
    checked(execution(job, **SETTINGS)).raise_on_failure()

    assert sum(asked) == 1


class Owned:
    """Makes operators of another kind for a dealer."""

    name = "owned"

    def __init__(self, numbers: Dealt) -> None:
        self.create_coordinator = numbers.create_coordinator

    def create_operator(self) -> Operator:
        return Late()
