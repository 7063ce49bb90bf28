"""Whole jobs on every state backend: under any fault, the output is that of an undisturbed run on the heap.

After every run, all files below the job's directory are those that a retained checkpoint refers to; and whenever a
checkpoint becomes durable, all that are retained are whole.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.coordinator import CheckpointStatus
from engine.checkpoint.restore import NoRestart
from engine.elements.errors import JobFailedError
from engine.elements.events import SavepointFormat, StopMode
from engine.observe.trace_events import BackgroundWorkDone, CheckpointCompleted, TraceEvent
from engine.runtime.storage import SavepointRestore
from engine.runtime.storage.shared_files import StateFormError
from operators.basic import CollectedResults
from tests.cases import crossed
from tests.scenarios.live_files import check_live_files
from tests.scenarios.stateful_jobs import BACKENDS, FORMS, RECORDS, SNAPSHOTS, Ran, settings

KILLS = {
    "undisturbed": (),
    "tasks": (("everything[1]", 2_300_000), ("windows[0]", 4_700_000), ("everything[1]", 5_100_000)),
    "job manager": (("job manager", 3_400_000), ("count[0]", 5_000_000)),
    "at once": (("everything[0]", 650_000), ("job manager", 1_310_000), ("numbers[0]", 1_900_000)),
}


@functools.cache
def expected() -> Counter[Any]:
    ran = Ran(settings())
    ran.run()
    assert len(ran.committed) > 2 * RECORDS
    return ran.committed


class Watcher:
    """An instrument: whenever a checkpoint becomes durable, every retained one must be whole."""

    def __init__(self) -> None:
        self.ran: Ran
        self.background: Counter[str] = Counter()

    def __call__(self, event: TraceEvent) -> None:
        if isinstance(event, CheckpointCompleted):
            check_live_files(self.ran.files, self.ran.storage, is_over=False)
        elif isinstance(event, BackgroundWorkDone):
            self.background[event.work] += 1


def watched(config: Any, **how: Any) -> tuple[Ran, Watcher]:
    """A run to its end with files checked on the way and in the end."""
    watcher = Watcher()
    ran = watcher.ran = Ran(config, instruments=[watcher], **how)
    ran.run()
    check_live_files(ran.files, ran.storage)
    return ran, watcher


@crossed(quick=2, name=BACKENDS, snapshot=SNAPSHOTS, kills=KILLS)
def test_output_is_that_of_an_undisturbed_run_on_the_heap(name: str, snapshot: str, kills: str) -> None:
    """Killed tasks, a killed job manager, kills in a row: nothing is lost, doubled, or left in storage."""
    ran, _ = watched(settings(name, snapshot), kills=KILLS[kills])

    assert ran.committed == expected()
    assert ran.oracle.held


@pytest.mark.parametrize(("name", "snapshot"), FORMS)
def test_regions_fail_over_alone(name: str, snapshot: str) -> None:
    """A region is restored from a checkpoint that the other one, which goes on, was part of as well."""
    kills = [("count[1]", 2_500_000), ("everything[0]", 3_900_000)]
    ran, _ = watched(settings(name, snapshot, failover="region", retained=1), kills=kills)

    assert ran.committed == expected()
    assert any(restore.tasks is not None for restore in ran.execution.manager.deployment.restores)


@crossed(quick=2, name=BACKENDS, snapshot=SNAPSHOTS, retained=[1, 3])
def test_checkpoints_overlap_and_expire(name: str, snapshot: str, retained: int) -> None:
    """Up to three at once, each with so little time that many expire: uploads of those are cleared away."""
    config = settings(name, snapshot, max_concurrent=3, retained=retained, checkpoint_timeout_ns=900_000, batch_size=3)
    ran, _ = watched(config, kills=[("everything[0]", 4_000_000)])

    assert ran.committed == expected()
    statuses = Counter(row.status for row in ran.execution.manager.coordinator.statistics.rows())
    assert statuses[CheckpointStatus.COMPLETED]


@crossed(quick=2, name=BACKENDS, snapshot=SNAPSHOTS, mode=["unaligned", "aligned-timeout"])
def test_records_in_flight_and_incremental_state(name: str, snapshot: str, mode: str) -> None:
    """Modes that store records in flight do so beside any form of keyed state."""
    ran, _ = watched(settings(name, snapshot, mode=mode), kills=KILLS["tasks"])

    assert ran.committed == expected()
    assert ran.oracle.held


def test_a_store_compacts_while_the_job_runs() -> None:
    """Compactions are events of their own, between records; their results are restored like other files."""
    ran, watcher = watched(settings("lsm", "incremental"), kills=KILLS["tasks"])

    assert ran.committed == expected()
    assert watcher.background, "no compaction was done"


def test_a_changelog_is_materialised_in_virtual_time() -> None:
    """Every two virtual ms; checkpoints after it refer to fewer log segments than without."""
    ran, watcher = watched(settings("changelog", "full"))

    assert ran.committed == expected()
    assert watcher.background, "nothing was materialised"


@pytest.mark.parametrize("name", BACKENDS)
def test_an_incremental_checkpoint_writes_less_than_it_refers_to(name: str) -> None:
    """The table shows both sizes: the bytes written for the checkpoint, and the state that it stands for."""
    ran, _ = watched(settings(name, "incremental"))

    rows = [row for row in ran.execution.manager.coordinator.statistics.rows() if row.full_bytes]
    assert any(row.checkpointed_bytes < row.full_bytes for row in rows)
    assert all(row.checkpointed_bytes <= row.full_bytes for row in rows)


def stopped_with(name: str, snapshot: str, form: SavepointFormat, parallelism: int = 2) -> tuple[Ran, str]:
    """A run that stops with a savepoint in the middle; its path."""
    how = {"savepoint_format": form, "stop": StopMode.SUSPEND}
    ran = Ran(settings(name, snapshot), savepoints=[(3_100_000, how)], parallelism=parallelism)
    result = ran.run()
    assert result.state == "stopped"
    path = result.savepoints[0].path
    assert path is not None
    check_live_files(ran.files, ran.storage)
    return ran, path


def go_on(before: Ran, path: str, name: str, snapshot: str, parallelism: int) -> CollectedResults:
    """Start from a savepoint, in another storage directory, and be killed on the way."""
    ran, _ = watched(
        settings(name, snapshot),
        files=before.files,
        directory="/elsewhere",
        results=before.results,
        restore_from=SavepointRestore(path),
        parallelism=parallelism,
        kills=[("everything[0]", 1_900_000)],
    )
    return ran.results


@pytest.mark.parametrize("after", BACKENDS)
@pytest.mark.parametrize("before", BACKENDS)
def test_a_canonical_savepoint_goes_from_any_backend_to_any_other(before: str, after: str) -> None:
    """At another parallelism, up and down."""
    wider, narrower = (2, 3) if after != "lsm" else (3, 1)
    stopped, path = stopped_with(before, "incremental", SavepointFormat.CANONICAL, wider)

    results = go_on(stopped, path, after, "incremental", narrower)

    assert Counter(results.records) == expected()


@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize("name", ["heap", "lsm", "changelog:lsm"])
def test_a_native_savepoint_is_read_by_its_own_backend(name: str, parallelism: int) -> None:
    """In the store's own files, which lie in the directory of the savepoint; at another parallelism too."""
    stopped, path = stopped_with(name, "incremental", SavepointFormat.NATIVE)

    results = go_on(stopped, path, name.removeprefix("changelog:"), "incremental", parallelism)

    assert Counter(results.records) == expected()


def test_a_native_savepoint_is_refused_by_another_backend() -> None:
    """The error names both and says what to do; no restart is tried."""
    stopped, path = stopped_with("lsm", "incremental", SavepointFormat.NATIVE)
    ran = Ran(settings("heap"), files=stopped.files, directory="/elsewhere", restore_from=SavepointRestore(path))

    with pytest.raises(StateFormError, match="written by state backend lsm, in a form that heap does not") as info:
        ran.run()

    assert "savepoint in canonical format" in str(info.value)


def test_a_checkpoint_of_another_form_is_refused_at_resume() -> None:
    """Going on with another state backend from incremental checkpoints is an error, and changes nothing."""
    first = Ran(settings("lsm", "incremental", restart=NoRestart()), kills=[("everything[0]", 3_500_000)])
    with pytest.raises(JobFailedError):
        first.run()
    before = first.checkpoint_files()

    with pytest.raises(StateFormError, match="go on with lsm"):
        Ran(settings("changelog"), files=first.files, restore=True, incarnation=2).run()

    assert first.checkpoint_files() == before
