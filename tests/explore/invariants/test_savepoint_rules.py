"""V18 to V20 find their mistakes: each is planted in the engine, and found under its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from engine.checkpoint.coordinator import RestoreMode
from engine.checkpoint.coordinator.checkpoint_ending import CheckpointEnding
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointOptions
from engine.explore import Case, parse_fault, parse_savepoint, run_case
from engine.explore.cases import Setting
from engine.explore.invariants import invariants_for
from engine.runtime.execution import Execution
from engine.runtime.storage import CheckpointFiles, SavepointRestore
from engine.runtime.storage.adopted_snapshot import AdoptedSnapshot
from engine.runtime.tasks import SourceTask
from engine.runtime.tasks.task_context import TaskOperatorContext
from state_backends.snapshots import CheckpointLocation, FileStateHandle, StreamStateHandle
from tests.explore.invariants.support import subject
from tests.explore.subjects import counting_subject

CONFIG: Mapping[str, Setting] = {"batch_size": 2, "checkpoint_interval": "3us", "inline_state_bytes": 0}


def found(savepoint: str, name: str, *faults: str, **settings: Setting) -> list[str]:
    """The kinds of breach that an invariant finds in a case with a savepoint."""
    case = Case(
        config={**CONFIG, **settings}, savepoints=(parse_savepoint(savepoint),), faults=tuple(map(parse_fault, faults))
    )
    finished = run_case(counting_subject(), case, invariants_for(only=[name]))
    kinds = dict.fromkeys(str(one.details.get("kind")) for one in finished.violations if one.invariant == name)
    return list(kinds)


def replaced(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a method; ``make`` receives the original."""
    monkeypatch.setattr(owner, name, make(getattr(owner, name)))


def test_a_savepoint_that_goes_with_a_subsumed_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job deletes it when a later checkpoint subsumes an earlier one."""

    def mistaken(discard: Any) -> Any:
        def discard_all(files: CheckpointFiles, checkpoint_id: int) -> None:
            discard(files, checkpoint_id)
            if files.storage.file_system.exists("/savepoints"):
                files.storage.file_system.delete_tree("/savepoints")

        return discard_all

    replaced(monkeypatch, CheckpointFiles, "discard", mistaken)
    assert found("savepoint@5us", "V18") == ["deleted"]


def test_a_savepoint_that_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The savepoint is there, but its content has changed."""

    def mistaken(discard: Any) -> Any:
        def discard_and_touch(files: CheckpointFiles, checkpoint_id: int) -> None:
            discard(files, checkpoint_id)
            disk = files.storage.file_system
            for path in disk.walk_files("/savepoints") if disk.exists("/savepoints") else ():
                with disk.open_append(path) as file:
                    file.write(b"!")

        return discard_and_touch

    replaced(monkeypatch, CheckpointFiles, "discard", mistaken)
    assert found("savepoint@5us", "V18") == ["changed"]


def test_a_savepoint_that_counts_as_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint among the newest two is deleted because of it."""

    def mistaken(complete: Any) -> Any:
        def count(ending: Any, pending: Any, pointer: object, now_ns: int, out: Any) -> None:
            complete(ending, pending, pointer, now_ns, out)
            if pending.is_savepoint:
                ending._retained.add(pending, pointer)
                ending._retained.delete_subsumed(out)

        return count

    replaced(monkeypatch, CheckpointEnding, "complete", mistaken)
    assert found("savepoint@8us", "V18", retained=2) == ["retained"]


def test_a_savepoint_that_subsumes_pending_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task has heard that anything newer is complete."""

    def mistaken(complete: Any) -> Any:
        def subsume(ending: Any, pending: Any, pointer: object, now_ns: int, out: Any) -> None:
            complete(ending, pending, pointer, now_ns, out)
            if pending.is_savepoint:
                for older in ending._pending.in_order:
                    ending.abort(older, CheckpointFailureReason.CHECKPOINT_SUBSUMED, now_ns, out)

        return subsume

    replaced(monkeypatch, CheckpointEnding, "complete", mistaken)
    slow: dict[str, Setting] = {"cost.storage_latency_ns": 4_000, "max_concurrent": 3, "checkpoint_interval": "1us"}
    assert "subsumes" in found("savepoint@8us", "V18", **slow)


def test_a_savepoint_that_the_job_recovers_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the newest snapshot, but its user may have moved it away."""

    def completing(complete: Any) -> Any:
        def and_adopt(files: CheckpointFiles, *arguments: Any) -> str:
            directory: str = complete(files, *arguments)
            if "savepoint-" in directory:
                files.adopt(SavepointRestore(directory, RestoreMode.LEGACY))
            return directory

        return and_adopt

    replaced(monkeypatch, CheckpointFiles, "complete", completing)
    replaced(
        monkeypatch, CheckpointFiles, "latest",
        lambda latest: lambda files, known=None: latest(files, known and {*known, *files._adopted}),
    )  # fmt: skip
    assert found("savepoint@8us", "V18", "crash:count[0]@8500ns", checkpoint_interval="7us")[0] == "recovered"


def _as(mode: RestoreMode) -> Callable[[Any], Any]:
    """A snapshot that counts as given with another claim mode."""
    return lambda entry: lambda adopted: entry(dataclasses.replace(adopted, mode=mode))


@pytest.mark.parametrize("mode", ["no-claim", "legacy"])
def test_a_savepoint_that_is_claimed_though_nobody_gave_it_away(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim mode is not looked at: it is deleted once it is subsumed."""
    replaced(monkeypatch, AdoptedSnapshot, "entry", _as(RestoreMode.CLAIM))
    assert found(f"stop@5us->{mode}", "V18") == ["deleted"]


def test_a_savepoint_that_is_left_though_it_was_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim mode is not looked at: the savepoint is never deleted."""
    replaced(monkeypatch, AdoptedSnapshot, "entry", _as(RestoreMode.NO_CLAIM))
    assert found("stop@5us->claim", "V18") == ["left"]


def _absolute(location: CheckpointLocation, stream: StreamStateHandle) -> StreamStateHandle:
    if not isinstance(stream, FileStateHandle):
        return stream
    return dataclasses.replace(stream, path=location.full_path(stream))


def test_a_checkpoint_that_refers_to_a_savepoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user deletes the savepoint, and the checkpoint is gone with it."""

    def mistaken(operators: Any) -> Any:
        def borrow(files: CheckpointFiles, *arguments: Any) -> Any:
            made = operators(files, *arguments)
            for _, adopted in sorted(files._adopted.items()):
                for operator in adopted.location.read_metadata().operators:
                    for subtask, snapshot in operator.subtasks.items():
                        mine = next(one for one in made if one.uid == operator.uid)
                        mine.subtasks[subtask] = snapshot.with_streams(partial(_absolute, adopted.location))
            return made

        return borrow

    replaced(monkeypatch, CheckpointFiles, "_operators", mistaken)
    assert "borrowed" in found("stop@5us->no-claim", "V18")


def test_a_job_that_starts_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job does not look at the savepoint that it was given."""
    monkeypatch.setattr(Execution, "_newest_state", lambda _execution: (None, ()))
    assert found("stop@5us->no-claim", "V19") == ["elsewhere"]


def test_a_source_that_starts_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source does not start at the positions of the savepoint."""

    def mistaken(restore: Any) -> Any:
        def forget(context: Any, restored: Any) -> Any:
            backend = restore(context, restored)
            for name in backend.split_lists():
                del backend.list_state(name)._elements[:1]
            return backend

        return forget

    replaced(monkeypatch, TaskOperatorContext, "_restore_operator_backend", mistaken)
    assert found("stop@5us->no-claim", "V19") == ["list"]


def test_a_savepoint_with_records_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its barriers overtake, as those of checkpoints do."""

    def unchanged(options: CheckpointOptions, _kind: Any, stop: Any, savepoint_format: Any) -> CheckpointOptions:
        return dataclasses.replace(options, stop=stop, savepoint_format=savepoint_format)

    monkeypatch.setattr(CheckpointOptions, "for_snapshot", unchanged)
    slow: dict[str, Setting] = {"mode": "unaligned", "cost.record_ns": 3_000, "checkpoint_interval": "60us"}
    assert found("savepoint@8us", "V19", **slow) == ["in flight"]


def test_a_drain_that_leaves_windows_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The input ends, and event time does not: the last watermark is never sent."""
    monkeypatch.setattr(SourceTask, "end_stream", lambda task: task.end.end_input())
    case = Case(config=CONFIG, savepoints=(parse_savepoint("drain@12us->no-claim"),))
    finished = run_case(subject("windows"), case, invariants_for(only=["V20"]))
    assert [one.details["kind"] for one in finished.violations if one.invariant == "V20"] == ["open"]
