"""V6, V12 and V10: the parts of a completed checkpoint, and its restore."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import Any

import pytest

from engine.explore.cases import Case
from engine.explore.invariants import base
from engine.explore.run import World
from engine.faults.fault import parse_fault
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    SnapshotAcknowledged,
    TaskState,
)
from engine.runtime.storage import RestoredJob, restored_channels
from state_backends.base import KeyGroupRange
from state_backends.files import TEMPORARY_SUFFIX
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import CheckpointMetadata, CheckpointStorage, checkpoint_location, checkpoint_streams
from tests.explore.invariants.support import carried_out, found, healthy, subject, texts, told, usual


def tasks() -> list[str]:
    return [one.name for one in healthy().view.plan.subtasks]


def acknowledged(number: int, *tasks: str) -> list[Any]:
    return [SnapshotAcknowledged(1, 1, number, task, 0) for task in tasks]


def newest() -> int:
    """The newest checkpoint in the storage of the healthy case."""
    view = healthy().view
    return max(CheckpointStorage(view.world.checkpoints, "/checkpoints", view.plan.job_name).list_checkpoints())


def completed(number: int) -> CheckpointCompleted:
    return CheckpointCompleted(2, 1, number, 0)


# --- V6 ---------------------------------------------------------------------------------------------------------------


def test_complete_means_that_every_task_has_acknowledged_or_finished() -> None:
    """The message names a task that has done neither."""
    number = newest()
    assert texts(told("V6", *acknowledged(number, *tasks()), completed(number))) == []
    finished = TaskState(1, 1, tasks()[0], "finished", None)
    assert texts(told("V6", finished, *acknowledged(number, *tasks()[1:]), completed(number))) == []
    assert texts(told("V6", *acknowledged(number, *tasks()[1:]), completed(number))) == [
        f"checkpoint {number} is complete, but these have not acknowledged it: {tasks()[0]}"
    ]


def test_a_task_that_runs_again_has_to_acknowledge_again() -> None:
    """A task that finished in an older attempt does not count as finished."""
    number = newest()
    again = [TaskState(1, 1, tasks()[0], "finished", None), TaskState(2, 2, tasks()[0], "running", None)]
    assert len(texts(told("V6", *again, *acknowledged(number, *tasks()[1:]), completed(number)))) == 1


def test_an_aborted_checkpoint_is_neither_completed_nor_restored() -> None:
    """Except one that was aborted while it was made durable: it may exist until it is deleted."""
    number = newest()
    triggered = CheckpointTriggered(1, 1, number)
    aborted = CheckpointAborted(1, 1, number, "CHECKPOINT_EXPIRED")
    events = [triggered, aborted, *acknowledged(number, *tasks()), completed(number)]
    assert texts(told("V6", *events)) == [f"checkpoint {number} is complete, but was aborted before"]
    assert texts(told("V6", triggered, aborted, AttemptStarted(3, 2, number))) == [
        f"attempt 2 goes on from checkpoint {number}, which was aborted (CHECKPOINT_EXPIRED)"
    ]
    aborted = CheckpointAborted(1, 1, number, "FINALIZE_CHECKPOINT_FAILURE")
    assert texts(told("V6", triggered, aborted, AttemptStarted(3, 2, number))) == []
    # The number of a checkpoint that never became known is free.
    assert texts(told("V6", aborted, *acknowledged(number, *tasks()), completed(number))) == []


def test_an_attempt_goes_on_from_the_newest_completed_checkpoint() -> None:
    """From nothing, or from an older one, is wrong, unless files may have been damaged."""
    number = newest()
    events = [*acknowledged(number, *tasks()), completed(number)]
    assert texts(told("V6", *events, AttemptStarted(3, 2, number))) == []
    assert texts(told("V6", *events, AttemptStarted(3, 2, None))) == [
        f"attempt 2 begins from nothing, but checkpoint {number} is complete"
    ]
    assert f"begins from checkpoint {number - 1}" in texts(told("V6", *events, AttemptStarted(3, 2, number - 1)))[0]
    view = healthy().view
    damaged = replace(view, case=Case(faults=(parse_fault("missing:*/_metadata#9"),)))
    assert texts(told("V6", *events, AttemptStarted(3, 2, None), view=damaged)) == []


def test_a_checkpoint_without_a_part_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata that lacks a subtask is found although it is written without error."""
    to_bytes = CheckpointMetadata.to_bytes

    def lacking(metadata: CheckpointMetadata, *codec: Any) -> bytes:
        first, *others = metadata.operators
        part = {index: one for index, one in first.subtasks.items() if index != 1}
        return to_bytes(replace(metadata, operators=(replace(first, subtasks=part), *others)), *codec)

    subject("counting").reference()
    monkeypatch.setattr(CheckpointMetadata, "to_bytes", lacking)
    finished, _ = carried_out(only=("V6",))
    assert found(finished, "V6")[0] == "checkpoint 1 is complete, but holds no part of numbers[1]"


def test_a_rename_without_fsync_is_found_without_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The invariant also reads the files that a crash at the moment of completion would leave."""

    def write_atomically(fs: Any, path: str, data: bytes) -> None:
        with fs.open_write(path + TEMPORARY_SUFFIX) as file:
            file.write(data)
        fs.rename(path + TEMPORARY_SUFFIX, path)
        fs.fsync_dir(posixpath.dirname(path))

    monkeypatch.setattr(checkpoint_location, "write_atomically", write_atomically)
    finished, _ = carried_out(only=("V6",))
    assert "checkpoint 1 is complete, but would not survive a crash now" in found(finished, "V6")[0]


def test_state_that_is_not_durable_is_found_without_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata before data: the files of state are only in the cache."""
    stream: Any = checkpoint_streams.FsCheckpointStream
    create = stream._create_file

    class _File:
        def __init__(self, file: Any) -> None:
            self._file = file

        def fsync(self) -> None:
            """Claim to make the file durable, without doing it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    monkeypatch.setattr(stream, "_create_file", lambda self: _File(create(self)))
    finished, _ = carried_out(case=usual(inline_state_bytes=0), only=("V6",))
    assert "would not survive a crash now" in found(finished, "V6")[0]


def test_a_file_that_is_deleted_while_a_checkpoint_needs_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retained checkpoints are read again when the next one completes, and at the end."""
    discard = CheckpointStorage.discard

    def too_much(self: Any, checkpoint_id: int) -> None:
        for path in list(self.file_system.walk_files(f"{self.job_dir}/shared"))[:1]:
            self.file_system.delete(path)
        discard(self, checkpoint_id)

    monkeypatch.setattr(CheckpointStorage, "discard", too_much)
    case = usual(state_backend="lsm", snapshot="incremental", inline_state_bytes=0)
    finished, _ = carried_out(case=case, only=("V6",))
    assert any("is retained, but cannot be restored" in text for text in found(finished, "V6"))


# --- V12 --------------------------------------------------------------------------------------------------------------


def test_metadata_that_is_read_otherwise_than_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and writing it again gives other bytes."""
    from_file: Any = CheckpointMetadata.from_file.__func__  # type: ignore[attr-defined]

    def forgetful(kind: Any, *arguments: Any) -> Any:
        return replace(from_file(kind, *arguments), properties={})

    monkeypatch.setattr(subject("counting"), "kept", {})  # What healthy runs have read does not count.
    monkeypatch.setattr(CheckpointMetadata, "from_file", classmethod(forgetful))
    finished, _ = carried_out(only=("V12",))
    assert "the metadata of checkpoint 1 is not what is written for what was read from it" in found(finished, "V12")


def test_equal_metadata_is_read_once_for_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two equal cases reads nothing again; no more than a fixed number is kept."""
    monkeypatch.setattr(subject("counting"), "kept", {})
    paths: list[str] = []
    from_file: Any = CheckpointMetadata.from_file.__func__  # type: ignore[attr-defined]

    def counted(kind: Any, file: Any, path: str) -> Any:
        paths.append(path)
        return from_file(kind, file, path)

    monkeypatch.setattr(CheckpointMetadata, "from_file", classmethod(counted))
    carried_out(only=("V6", "V12"))
    assert len(paths) == len(set(paths)) > 1
    first, paths[:] = list(paths), []
    carried_out(only=("V6", "V12"))
    assert not paths
    monkeypatch.setattr(base, "MOST_METADATA_KEPT", 1)
    subject("counting").kept.clear()
    carried_out(only=("V6", "V12"))
    assert set(paths) == set(first)
    (kept,) = subject("counting").kept.values()
    assert len(kept) == 1


def test_state_that_is_read_otherwise_than_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that loses part of the state: writing it again gives less."""
    restore: Any = HeapKeyedStateBackend.restore
    subject("counting").reference()
    monkeypatch.setattr(subject("counting"), "kept", {})
    monkeypatch.setattr(HeapKeyedStateBackend, "restore", lambda backend, handles, reader: restore(backend, [], reader))
    texts = [text for seed in "abcdefghij" for text in found(carried_out(case=usual(seed), only=("V12",))[0], "V12")]
    assert any("read and written again, is other bytes" in text for text in texts)


# --- V10 --------------------------------------------------------------------------------------------------------------


def restarted(**settings: Any) -> Case:
    """The usual case, with a task that dies after some checkpoints."""
    return replace(usual(**settings), faults=(parse_fault("crash:count[0]@17us"),))


@pytest.mark.parametrize("backend", ["heap", "lsm", "changelog"])
def test_lost_state_is_found_at_the_restore(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """A subtask does not get any of its keyed state back, whichever backend wrote it."""
    case = restarted(state_backend=backend)
    assert carried_out(case=case, only=("V10",))[0].violations == []
    for_task: Any = RestoredJob.for_task

    def losing(job: Any, subtask: int, uids: Any) -> Any:
        return {uid: replace(one, keyed=one.keyed[1:]) for uid, one in for_task(job, subtask, uids).items()}

    monkeypatch.setattr(RestoredJob, "for_task", losing)
    finished, _ = carried_out(case=case, only=("V10",))
    assert any("begins attempt 2 with other state of count than checkpoint" in text for text in found(finished, "V10"))


def test_state_for_other_key_groups_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subtask receives the key groups of another one."""
    view = healthy().view
    invariant: Any = told("V10", view=view)
    metadata = CheckpointStorage(view.world.checkpoints, "/checkpoints", "counting").read_metadata(newest())
    task = next(task for task in view.execution.manager.tasks.values() if task.name == "count[0]")
    monkeypatch.setattr(type(task.chain.contexts[0].keyed), "key_group_range", KeyGroupRange(4, 7))
    invariant._judge_state(metadata, view.plan.vertices[task.place.plan.vertex], task, 1)
    assert "count[0] owns key groups" in texts(invariant)[0]


def test_lost_records_in_flight_are_found_at_the_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records in flight of an unaligned checkpoint must all be in channels again."""
    case = restarted(mode="unaligned", **{"cost.slow_links.numbers[1]": 4_000})
    assert carried_out(case=case, only=("V10",))[0].violations == []
    spread: Any = restored_channels._Edge.spread

    def losing(*arguments: Any) -> Any:
        for pair, batches in spread(*arguments):
            yield pair, batches[1:]

    monkeypatch.setattr(restored_channels._Edge, "spread", losing)
    text, *_ = found(carried_out(case=case, only=("V10",))[0], "V10")
    assert "attempt 2 begins with other records in flight on" in text
    assert " 0 missing" not in text


def test_a_healthy_rescaling_is_whole() -> None:
    """More and fewer subtasks, in every mode that stores something."""
    for mode in ("aligned", "unaligned", "at-least-once"):
        for parallelism in (1, 3):
            fault = parse_fault(f"rescale:process@17us={parallelism}")
            finished, _ = carried_out("logged", replace(usual(mode=mode), faults=(fault,)), only=("V10", "V6", "V1"))
            assert finished.violations == []
            assert finished.incarnations == 2


def test_the_survivors_of_a_crash_are_a_copy() -> None:
    """Looking at the files that a crash would leave does not change the real ones."""
    world = World()
    files: Any = world.checkpoints
    files.make_dirs("/a")
    with files.open_write("/a/kept") as file:
        file.write(b"1")
        file.fsync()
    files.fsync_dir("/a")
    with files.open_append("/a/kept") as file:
        file.write(b"2")
    with files.open_write("/a/lost") as file:
        file.write(b"3")
    left = files.survivors()
    assert {path: left.read_bytes(path) for path in left.walk_files("/")} == {"/a/kept": b"1"}
    assert files.read_bytes("/a/kept") == b"12"
    left.delete("/a/kept")
    files.crash()
    assert list(files.walk_files("/")) == ["/a/kept"]
