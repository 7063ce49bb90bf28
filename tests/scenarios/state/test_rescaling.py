"""A job goes on from a snapshot with other numbers of subtasks: nothing is lost, and nothing counted twice."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, note, settings, strategies as st

from engine.checkpoint.coordinator import RestoreMode
from engine.runtime.config.run_config import SNAPSHOTS
from engine.runtime.storage import SavepointRestore
from state_backends.snapshots import CheckpointStorage
from tests.scenarios.random.random_graphs import RESCALABLE, STATEFUL, describe, graphs, meaning, rescaled
from tests.scenarios.random.random_runs import CHECKPOINTS, EXACTLY_ONCE, JOB, STATE_BACKENDS, Driven, Run, drive, runs

FEW, MANY = 15, 250
ELSEWHERE = "/elsewhere"


@dataclass(frozen=True)
class Continued:
    """A run, and another one that goes on from its ``snapshot``-th snapshot."""

    before: Run
    after: Run
    snapshot: int
    restore_mode: RestoreMode


@st.composite
def continued_runs(draw: st.DrawFn, mode: str) -> Continued:
    """The second run has another plan, maybe another mode, and faults of its own."""
    graph = draw(graphs(keyed=STATEFUL, spreads=RESCALABLE))
    # A run whose tasks must not finish could never checkpoint the tasks that have finished in the snapshot.
    finish = draw(st.booleans())
    # Every state backend restores full snapshots of the heap; other snapshots are for their own backend.
    backend, snapshot = draw(st.sampled_from(STATE_BACKENDS)), draw(st.sampled_from(SNAPSHOTS))
    later = draw(st.sampled_from(STATE_BACKENDS)) if (backend, snapshot) == ("heap", "full") else backend
    before = runs(
        mode,
        graph,
        most_savepoints=2,
        may_stop=True,
        retained=10_000,
        checkpoints_after_tasks_finish=finish,
        state_backend=backend,
        snapshot=snapshot,
    )
    other = draw(st.sampled_from(EXACTLY_ONCE))
    after = runs(other, draw(rescaled(graph)), most_kills=1, checkpoints_after_tasks_finish=finish, state_backend=later)
    return Continued(draw(before), draw(after), draw(st.integers(0, 20)), draw(st.sampled_from(list(RestoreMode))))


def path_of(driven: Driven, snapshot: int) -> str:
    for report in driven.result.savepoints:
        if report.checkpoint_id == snapshot and report.path is not None:
            return report.path
    return f"{CheckpointStorage(driven.files, CHECKPOINTS, JOB).job_dir}/chk-{snapshot}"


def stopped_in_vain(driven: Driven) -> bool:
    """A task died after sinks had committed the savepoint: the job commits what comes after its checkpoint again."""
    is_complete = any(one.order.stop is not None and one.path is not None for one in driven.result.savepoints)
    return is_complete and driven.result.state != "stopped"


def go_on(continued: Continued) -> Counter[str]:
    """Run, resume from the snapshot with the output committed by then, and compare; returns the events met."""
    before = drive(continued.before)
    if stopped_in_vain(before):
        return Counter()
    # If a savepoint became durable while the job manager died, its path is unknown.
    snapshots = [one for one in sorted(before.ledger.completed) if before.files.exists(path_of(before, one))]
    snapshot = snapshots[continued.snapshot % len(snapshots)]
    restore = SavepointRestore(path_of(before, snapshot), continued.restore_mode)
    results = copy.deepcopy(before.ledger.completed[snapshot])
    after = drive(continued.after, results=results, files=before.files, storage=ELSEWHERE, restore_from=restore)

    assert after.committed == meaning(continued.after.graph)
    assert after.oracle.held
    is_other = continued.before.graph != continued.after.graph
    in_flight = is_other and before.in_flight_bytes(snapshot) > 0
    return Counter({"other parallelism": is_other, "records in flight moved": in_flight})


def rescale(mode: str, examples: int) -> Counter[str]:
    """Search for a run that does not go on as it should."""
    seen = Counter[str]()

    @settings(max_examples=examples)
    @given(continued_runs(mode))
    def search(continued: Continued) -> None:
        note(describe(continued.before.graph))
        note(describe(continued.after.graph))
        seen.update(go_on(continued))

    search()
    return seen


@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_any_snapshot_can_be_gone_on_from_with_other_subtasks(mode: str) -> None:
    """Keyed state, windows, split, union and broadcast state, positions and records in flight: all find their place."""
    seen = rescale(mode, FEW)

    assert seen["other parallelism"]
    assert bool(seen["records in flight moved"]) == (mode != "aligned")


@pytest.mark.slow
@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_any_snapshot_can_be_gone_on_from_with_other_subtasks_in_many_runs(mode: str) -> None:
    """The same, searched for longer."""
    seen = rescale(mode, MANY)

    assert seen["other parallelism"] > MANY // 4
    assert (seen["records in flight moved"] > MANY // 40) == (mode != "aligned")
