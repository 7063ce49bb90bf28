"""Storage that fails: checkpoints are declined and counted, no half-written one is restored, older ones are used."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest

from engine.checkpoint.coordinator import CheckpointStatus
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.errors import JobFailedError, OutputAheadError, StateError, StorageError
from engine.graph.job import Job
from engine.observe.trace_events import CheckpointAborted, Send, TraceEvent
from engine.runtime.execution import Execution
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.files.sinks import FileSink, read_committed
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from tests.runtime.support import (
    BASE_DIR,
    US,
    RecordingSink,
    Trace,
    every,
    execution,
    expected_counts,
    files_below,
    running_count,
    storage_in,
)

RECORDS = 60
METADATA = "*/_metadata*"
STATE = f"{BASE_DIR}/*/chk-2/*-*"
AT_ONCE = FixedDelayRestart(None, 0)


def counting(into: Any, files: FileSystem, **settings: Any) -> Execution:
    """A count with checkpoints every 10 records, all state in files, on a file system that may fail."""
    defaults: dict[str, Any] = {"checkpoint_interval": every(records=10), "batch_size": 4, "inline_state_bytes": 0}
    return execution(running_count(Job("counted"), RECORDS, into), file_system=files, **(defaults | settings))


def rows_job(records: int = RECORDS) -> Job:
    """A count whose output goes to files."""
    job = Job("rows")
    pairs = job.source(SequenceSource(0, records), name="numbers").key_by(
        lambda number: number % 3, value=lambda number: (number % 3, 1)
    )
    return pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count").sink(FileSink("rows"), name="out")


def expected_rows(records: int = RECORDS) -> list[str]:
    return sorted(f"[{key},{count}]" for key, count in expected_counts(records).elements())


FAILURES = [
    pytest.param("write", STATE, CheckpointFailureReason.IO_EXCEPTION, id="writing state"),
    pytest.param("fsync", STATE, CheckpointFailureReason.IO_EXCEPTION, id="syncing state"),
    pytest.param("open_write", STATE, CheckpointFailureReason.IO_EXCEPTION, id="creating a state file"),
    pytest.param("make_dirs", "*/chk-2", CheckpointFailureReason.IO_EXCEPTION, id="creating the directory"),
    pytest.param(
        "write", "*/chk-2/_metadata*", CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE, id="writing metadata"
    ),
    pytest.param(
        "rename", "*/chk-2/_metadata*", CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE, id="renaming metadata"
    ),
    pytest.param(
        "fsync_dir", "*/chk-2", CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE, id="syncing the directory"
    ),
]


@pytest.mark.parametrize(("operation", "path", "reason"), FAILURES)
def test_a_tolerated_failure_costs_one_checkpoint(operation: str, path: str, reason: CheckpointFailureReason) -> None:
    """The checkpoint is aborted for the right reason and leaves no file; the next one completes, with all results."""
    results, trace, inner = CollectedResults(), Trace(), MemoryFileSystem()
    files = FaultInjectingFileSystem(inner, [FaultRule(FileFault.ERROR_BEFORE, operation, path, at_call=1)])

    result = counting(results, files, instruments=[trace], tolerable_failures=1).run().raise_on_failure()

    rows = {row.checkpoint_id: row for row in result.checkpoints.rows()}
    assert len(files.struck) == 1
    assert (rows[2].status, rows[2].failure_reason) == (CheckpointStatus.FAILED, reason)
    assert [row.status for row in rows.values()].count(CheckpointStatus.FAILED) == 1
    assert [(one.checkpoint_id, one.reason) for one in trace.of(CheckpointAborted)] == [(2, reason.name)]
    assert any("checkpoint 2" in note and "Input/output error" in note for note in result.notes)
    assert result.attempts == 1
    assert Counter(results.records) == expected_counts(RECORDS)
    assert all("/chk-2/" not in path for path in files_below(inner))


@pytest.mark.parametrize(("operation", "path", "reason"), FAILURES)
def test_a_failure_that_is_not_tolerated_fails_the_job(
    operation: str, path: str, reason: CheckpointFailureReason
) -> None:
    """Without tolerance the attempt ends, with an error that names checkpoint, reason and tolerance."""
    files = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.ERROR_BEFORE, operation, path)])

    result = counting([], files, tolerable_failures=0, restart=NoRestart()).run()

    assert result.state == "failed"
    assert isinstance(result.error, JobFailedError)
    for part in ("checkpoint 2", reason.name, "tolerates 0 failed checkpoints"):
        assert part in str(result.error)


def test_a_restart_may_cure_it() -> None:
    """A failure that is not tolerated costs a restart, from the checkpoint before it, and loses no record."""
    results = CollectedResults()
    rule = FaultRule(FileFault.DISK_FULL, "write", STATE, at_call=1)

    result = counting(results, FaultInjectingFileSystem(MemoryFileSystem(), [rule]), restart=AT_ONCE).run()

    assert [restore.checkpoint_id for restore in result.restores] == [None, 1]
    assert Counter(results.records) == expected_counts(RECORDS)


def test_failures_in_a_row_are_counted_and_a_success_clears_the_count() -> None:
    """Two tolerated failures do not add up when a checkpoint completed in between; two in a row do."""
    apart = [FaultRule(FileFault.ERROR_BEFORE, "rename", f"*/chk-{one}/*") for one in (2, 4)]
    in_a_row = [FaultRule(FileFault.ERROR_BEFORE, "rename", f"*/chk-{one}/*") for one in (2, 3)]

    def attempts(rules: list[FaultRule]) -> int:
        files = FaultInjectingFileSystem(MemoryFileSystem(), rules)
        return counting([], files, tolerable_failures=1, restart=AT_ONCE).run().raise_on_failure().attempts

    assert attempts(apart) == 1
    assert attempts(in_a_row) == 2


def test_sinks_hear_that_a_checkpoint_was_given_up() -> None:
    """Sinks are told of an aborted checkpoint that it was aborted, never that it is complete."""
    sink = RecordingSink()
    files = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.ERROR_BEFORE, "rename", "*/chk-2/*")])
    job = Job("told").source(SequenceSource(0, RECORDS)).sink(sink)

    execution(
        job, file_system=files, checkpoint_interval=every(records=10), tolerable_failures=1
    ).run().raise_on_failure()

    assert sink.of("aborted") == [2]
    assert 2 not in sink.of("complete")
    assert {1, 3} <= set(sink.of("complete"))


def test_the_last_checkpoint_is_tried_again() -> None:
    """When the last checkpoint fails the job does not end without one: it takes another."""
    results = CollectedResults()
    files = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.ERROR_BEFORE, "rename", "*/chk-1/*")])

    result = counting(results, files, checkpoint_interval=None, tolerable_failures=1).run().raise_on_failure()

    assert (result.checkpoints.failed, result.checkpoints.completed) == (1, 1)
    assert Counter(results.records) == expected_counts(RECORDS)


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        *product(
            ("open_write", "write", "fsync", "close", "rename", "fsync_dir"),
            (FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER),
        ),
        ("write", FileFault.TORN_WRITE),
    ],
)
def test_nothing_half_written_is_restored(operation: str, kind: FileFault) -> None:
    """Whichever step of checkpoint 2 fails, a kill right after it goes back to a whole checkpoint."""
    calls = 0
    while True:
        calls += 1
        results, inner = CollectedResults(), MemoryFileSystem()
        rule = FaultRule(kind, operation, "*/chk-2*", at_call=calls, keep_bytes=9)
        files = FaultInjectingFileSystem(inner, [rule])
        made = counting(results, files, tolerable_failures=5, restart=AT_ONCE, kills=[("count", 25 * US)])
        result = made.run().raise_on_failure()
        if not files.struck:
            break

        completed = [
            row.checkpoint_id
            for row in result.checkpoints.rows()
            if row.status is CheckpointStatus.COMPLETED and (row.ended_at_ns or 0) <= START_NS + 25 * US
        ]
        assert [restore.checkpoint_id for restore in result.restores] == [None, completed[-1]], files.struck
        assert Counter(results.records) == expected_counts(RECORDS)
    assert calls > 1


@pytest.mark.parametrize(("checkpoint_id", "killed_at_us"), [(1, 15), (2, 25)])
def test_a_checkpoint_that_may_exist_is_settled_before_the_next_attempt(checkpoint_id: int, killed_at_us: int) -> None:
    """One that is durable but failed is deleted before the job goes on, or a power cut would bring it back."""
    inner = MemoryFileSystem()
    rules = [
        FaultRule(FileFault.ERROR_AFTER, "fsync_dir", f"*/chk-{checkpoint_id}", at_call=2),
        FaultRule(FileFault.ERROR_BEFORE, "delete", f"*/chk-{checkpoint_id}/*", at_call=1),
    ]
    files = FaultInjectingFileSystem(inner, rules)

    found: list[int] = []

    def cut_the_power(event: TraceEvent) -> None:
        if isinstance(event, Send) and event.attempt == 2:
            found.extend(storage_in(inner, "rows").list_checkpoints())
            raise SimulatedCrashError

    made = execution(
        rows_job(),
        file_system=files,
        checkpoint_interval=every(records=10),
        batch_size=4,
        inline_state_bytes=0,
        tolerable_failures=5,
        restart=AT_ONCE,
        kills=[("count", killed_at_us * US)],
        instruments=[cut_the_power],
    )
    with pytest.raises(SimulatedCrashError):
        made.run()
    assert [rule.operation for rule, _ in files.struck] == ["fsync_dir", "delete"]
    assert checkpoint_id not in found

    inner.crash()
    execution(rows_job(), file_system=inner, restore=True, incarnation=2).run().raise_on_failure()

    assert read_committed(inner, "/out/rows")[""] == expected_rows()


def test_a_checkpoint_that_cannot_be_settled_fails_the_job() -> None:
    """When it is unknown whether a checkpoint exists, no further attempt is made, and the error says why."""
    rules = [
        FaultRule(FileFault.ERROR_AFTER, "fsync_dir", "*/chk-2", at_call=2),
        FaultRule(FileFault.ERROR_BEFORE, "delete", "*/chk-2/*"),
    ]
    files = FaultInjectingFileSystem(MemoryFileSystem(), rules)

    result = counting([], files, tolerable_failures=5, restart=AT_ONCE, kills=[("count", 25 * US)]).run()

    assert result.state == "failed"
    assert "no state to restart from" in str(result.error)
    assert any("checkpoint 2 could not be deleted" in note for note in result.notes)


@pytest.mark.parametrize("damaged", ["_metadata", "count", "numbers"])
def test_a_damaged_checkpoint_is_passed_over_within_a_run(damaged: str) -> None:
    """A restart that finds the newest checkpoint damaged reports it and uses the one before."""
    files = FaultInjectingFileSystem(
        MemoryFileSystem(), [FaultRule(FileFault.BIT_FLIP, "open_read", f"*/chk-3/*{damaged}*", flip_bit=777)]
    )
    made = execution(
        rows_job(),
        file_system=files,
        checkpoint_interval=every(records=10),
        batch_size=4,
        inline_state_bytes=0,
        retained=3,
        restart=FixedDelayRestart(3, 0),
        kills=[("count", 35 * US)],
    )

    result = made.run().raise_on_failure()

    restore = result.restores[1]
    assert restore.checkpoint_id == 2
    assert len(restore.problems) == 1
    assert "checkpoint 3 cannot be used" in restore.problems[0]
    assert damaged in restore.problems[0]
    assert read_committed(files, "/out/rows")[""] == expected_rows()


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
@pytest.mark.parametrize("which", ["_metadata", "count"])
def test_a_damaged_checkpoint_is_passed_over_by_a_resume(damage: str, which: str) -> None:
    """A new process that finds the newest checkpoint damaged uses the older one, and the output is still right."""
    files = MemoryFileSystem()
    settings: dict[str, Any] = {
        "checkpoint_interval": every(records=10),
        "batch_size": 4,
        "inline_state_bytes": 0,
        "retained": 3,
    }
    failed = execution(
        rows_job(), file_system=files, restart=NoRestart(), kills=[("numbers", 45 * US)], **settings
    ).run()
    assert failed.state == "failed"
    newest = storage_in(files, "rows").list_checkpoints()[-1]
    path = next(one for one in files_below(files) if f"/chk-{newest}/" in one and which in one)
    content = files.read_bytes(path)
    if damage == "delete":
        files.delete(path)
    else:
        with files.open_write(path) as file:
            file.write(content[:-3] if damage == "truncate" else content[:-3] + bytes([content[-3] ^ 4]) + content[-2:])

    result = execution(rows_job(), file_system=files, restore=True, incarnation=2, **settings).run().raise_on_failure()

    assert result.restores[0].checkpoint_id == newest - 1
    told = "".join(result.restores[0].problems)
    assert (f"checkpoint {newest}" in told) is ((damage, which) != ("delete", "_metadata"))
    assert read_committed(files, "/out/rows")[""] == expected_rows()


def test_ids_go_on_when_every_checkpoint_is_damaged() -> None:
    """A fresh start beside damaged checkpoints uses no number twice, so no new checkpoint collides with one of them."""
    files, results = MemoryFileSystem(), CollectedResults()
    settings: dict[str, Any] = {"checkpoint_interval": every(records=10), "batch_size": 4, "retained": 9}
    counting([], files, restart=NoRestart(), kills=[("numbers", 45 * US)], **settings).run()
    listed = damage_all_checkpoints(files, "counted")

    result = counting(results, files, incarnation=2, **settings).run()

    assert result.raise_on_failure().restores[0].checkpoint_id is None
    assert len(listed) == 4
    assert result.checkpoints.failed == 0
    assert min(row.checkpoint_id for row in result.checkpoints.rows()) == listed[-1] + 1
    assert Counter(results.records) == expected_counts(RECORDS)


def test_a_resume_with_nothing_usable_is_refused() -> None:
    """All checkpoints are unreadable: starting from nothing would commit a second time what they committed."""
    files, results = MemoryFileSystem(), CollectedResults()
    settings: dict[str, Any] = {"checkpoint_interval": every(records=10), "batch_size": 4, "retained": 9}
    counting([], files, restart=NoRestart(), kills=[("numbers", 45 * US)], **settings).run()
    listed = damage_all_checkpoints(files, "counted")

    with pytest.raises(StorageError, match="nothing to start from") as refused:
        counting(results, files, restore=True, incarnation=2, **settings).run()

    assert all(f"checkpoint {damaged} cannot be used" in str(refused.value) for damaged in listed)
    assert not results.records


def test_beginning_anew_takes_no_committed_file_away() -> None:
    """Where every checkpoint is damaged the owner of the committed files is unknown: the sink refuses to go on."""
    files = MemoryFileSystem()
    settings: dict[str, Any] = {"checkpoint_interval": every(records=10), "batch_size": 4, "retained": 9}
    execution(rows_job(), file_system=files, restart=NoRestart(), kills=[("numbers", 45 * US)], **settings).run()
    damage_all_checkpoints(files, "rows")
    committed = read_committed(files, "/out/rows")

    result = execution(rows_job(), file_system=files, incarnation=2, **settings).run()

    assert result.state == "failed"
    assert "exists already" in str(result.error)
    assert read_committed(files, "/out/rows") == committed
    assert committed[""]


def test_a_second_run_leaves_the_output_of_the_first_alone() -> None:
    """A run into a directory with committed files fails at once, for no restart can help, and leaves every file."""
    files = MemoryFileSystem()
    execution(rows_job(), file_system=files, checkpoint_interval=every(records=10)).run().raise_on_failure()
    output = files_below(files, "/out")

    files.delete_tree(BASE_DIR)
    result = execution(rows_job(), file_system=files, checkpoint_interval=every(records=10)).run()

    assert result.state == "failed"
    assert result.attempts == 1
    assert getattr(result.error, "exit_code", None) == OutputAheadError.exit_code
    assert files_below(files, "/out") == output


def test_no_restart_from_nothing_when_checkpoints_have_completed() -> None:
    """The records that completed checkpoints have committed would be committed again, so the job fails and says why."""
    files = FaultInjectingFileSystem(
        MemoryFileSystem(), [FaultRule(FileFault.BIT_FLIP, "open_read", "*/_metadata*", flip_bit=777)]
    )

    result = counting([], files, restart=AT_ONCE, retained=3, kills=[("count", 35 * US)]).run()

    assert result.state == "failed"
    assert result.attempts == 1
    assert "none of the completed checkpoints can be used" in str(result.error)
    assert "checkpoint 3 cannot be used" in str(result.error)
    assert result.error is not None
    assert getattr(result.error, "exit_code", None) == StorageError.exit_code


@pytest.mark.parametrize("in_a_new_process", [False, True])
def test_a_checkpoint_that_was_passed_over_does_not_come_back(in_a_new_process: bool) -> None:
    """A disk that refuses the newest checkpoint once, and gives it after the next crash, changes no output."""
    rule = FaultRule(FileFault.BIT_FLIP, "open_read", "*/chk-3/_metadata", at_call=1, flip_bit=777)
    files = FaultInjectingFileSystem(MemoryFileSystem(), [rule])
    settings: dict[str, Any] = {"checkpoint_interval": every(records=10), "batch_size": 4, "retained": 3}
    # The second kill comes before the attempt that went back has completed a checkpoint of its own.
    if in_a_new_process:
        execution(rows_job(), file_system=files, restart=NoRestart(), kills=[("count", 35 * US)], **settings).run()
        second = execution(
            rows_job(), file_system=files, restore=True, incarnation=2, restart=NoRestart(),
            kills=[("count", 3 * US)], **settings,
        )  # fmt: skip
    else:
        second = execution(
            rows_job(), file_system=files, restart=FixedDelayRestart(1, 0),
            kills=[("count", 35 * US), ("count", 38 * US)], **settings,
        )  # fmt: skip
    assert second.run().restores[-1].checkpoint_id == 2

    third = execution(rows_job(), file_system=files, restore=True, incarnation=3, **settings)

    assert third.run().raise_on_failure().restores[0].checkpoint_id == 2
    assert read_committed(files, "/out/rows")[""] == expected_rows()


def damage_all_checkpoints(files: MemoryFileSystem, job_name: str) -> list[int]:
    """Overwrite all metadata; the ids of the checkpoints."""
    listed = storage_in(files, job_name).list_checkpoints()
    for checkpoint_id in listed:
        with files.open_write(f"{BASE_DIR}/{job_name}/chk-{checkpoint_id}/_metadata") as file:
            file.write(b"rubbish")
    return listed


def test_a_value_that_cannot_be_stored_fails_the_job_by_name() -> None:
    """State that no checkpoint could ever write is an error of the job, not a declined checkpoint."""
    job = Job("unstorable").source(SequenceSource(0, 20)).key_by(lambda number: 0)
    job.reduce(lambda a, b: object(), name="objects").map(str).collect([])

    result = execution(job._job, checkpoint_interval=every(records=10), restart=NoRestart(), tolerable_failures=9).run()

    assert result.state == "failed"
    assert isinstance(result.error.__cause__ if result.error else None, StateError)
    assert "'objects'" in str(result.error)


@pytest.mark.parametrize("operation", ["is_dir", "list_dir"])
def test_storage_that_cannot_be_read_at_all_is_a_clear_error(operation: str) -> None:
    """When the directory cannot be listed, the run does not start, and the error says what to check."""
    inner = MemoryFileSystem()
    counting([], inner).run().raise_on_failure()
    files = FaultInjectingFileSystem(inner, [FaultRule(FileFault.ERROR_BEFORE, operation)])

    with pytest.raises(StorageError, match="cannot be used: Input/output error"):
        counting([], files, restore=True, incarnation=2).run()
