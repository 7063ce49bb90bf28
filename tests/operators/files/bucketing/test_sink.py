"""The bucketing sink: names, rolling, inactivity, and what a restore finds at each crash point. ``N`` is the last
completed checkpoint throughout."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.errors import ConfigurationError, StorageError, UserFunctionError
from engine.graph.job import Job
from operators.files.bucketing import IN_PROGRESS, PENDING, BucketingNames, BucketingSink, read_bucketing_output
from operators.files.bucketing.bucketing_parts import BucketingParts
from operators.files.bucketing.names import FINISHED, VALID_LENGTH
from operators.files.bucketing.valid_length import decode_valid_length, encode_valid_length, write_valid_length
from operators.files.formats import JsonLinesRowFormat, TextRowFormat
from operators.files.writing import BulkTextFormat, DateTimeBucketAssigner, LineRows
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.operators.harness import Checkpoint, Harness
from tests.runtime.support import run

ROWS = "/out/rows"
HOUR_MS = 3_600_000


class Untruncatable(MemoryFileSystem):
    def truncate(self, path: str, size_bytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no truncate", path)


def start(
    fs: MemoryFileSystem, restored: Checkpoint | None = None, *, attempt: int = 1, subtask: int = 0,
    parallelism: int = 1, checkpointing_enabled: bool = True, now_ms: int = 0, **options: Any,
) -> Harness:  # fmt: skip
    options.setdefault("inactive_check_interval_ms", 50)
    options.setdefault("inactive_threshold_ms", 100)
    sink = BucketingSink("rows", **options)
    return Harness(
        sink.create_operator(), fs=fs, restored=restored, attempt=attempt, subtask=subtask, parallelism=parallelism,
        checkpointing_enabled=checkpointing_enabled, now_ns=now_ms * 1_000_000,
    )  # fmt: skip


def files(fs: MemoryFileSystem) -> dict[str, str]:
    found = {path.removeprefix(f"{ROWS}/"): fs.read_bytes(path).decode() for path in fs.walk_files(ROWS)}
    return {path: text for path, text in found.items() if ".parts-" not in path}


def rows(fs: MemoryFileSystem) -> list[str]:
    return sorted(row for lines in read_bucketing_output(fs, ROWS).values() for row in lines)


# --- names --------------------------------------------------------------------------------------------------------


def test_the_defaults_hide_what_is_not_finished() -> None:
    """Flink's names."""
    names = BucketingNames()
    part = names.part(3, 7)
    assert (part, names.in_progress(part), names.pending(part), names.valid_length(part)) == (
        "part-3-7",
        "_part-3-7.in-progress",
        "_part-3-7.pending",
        "_part-3-7.valid-length",
    )
    assert not names.finishes_on_close


@given(st.integers(0, 99), st.integers(0, 99), st.sampled_from(["", ".my", ".gz"]), st.sampled_from(["", "_", "."]))
def test_a_name_says_what_a_file_is(subtask: int, count: int, suffix: str, prefix: str) -> None:
    """Whatever prefixes and suffixes are; other files are none of the sink's."""
    names = BucketingNames(
        part_suffix=suffix, in_progress_prefix=prefix, pending_prefix=prefix, valid_length_prefix=prefix
    )
    part = names.part(subtask, count)
    assert names.kind_of(part) == FINISHED
    assert names.kind_of(names.in_progress(part)) == IN_PROGRESS
    assert names.kind_of(names.pending(part)) == PENDING
    assert names.kind_of(names.valid_length(part)) == VALID_LENGTH
    assert names.kind_of(f"x{part}") is None
    assert names.kind_of("part-1") is None


@pytest.mark.parametrize(
    "options",
    [
        {"part_prefix": ""},
        {"part_suffix": "/x"},
        {"in_progress_prefix": "", "in_progress_suffix": ""},
        {"valid_length_prefix": "", "valid_length_suffix": ""},
        {"in_progress_suffix": ".pending"},
        {"valid_length_suffix": ".in-progress"},
        {"pending_prefix": None},
    ],
)
def test_names_that_cannot_be_told_apart(options: dict[str, Any]) -> None:
    """The sink refuses them."""
    with pytest.raises(ConfigurationError):
        BucketingNames(**options)


# --- valid length -------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_valid_length() -> None:
    """Two bytes with the length of the text, and the text."""
    assert encode_valid_length(0) == b"\x00\x010"
    assert encode_valid_length(402653184) == b"\x00\x09402653184"


@given(st.integers(0, 2**63 - 1))
def test_a_valid_length_is_read_back(length_bytes: int) -> None:
    """Whatever it is."""
    assert decode_valid_length(encode_valid_length(length_bytes)) == length_bytes


@given(st.binary(max_size=6) | st.sampled_from([b"\x00\x02" + b"07", b"\x00\x01-", "\x00\x02²".encode(), b"\x00\x00"]))
def test_a_damaged_valid_length_is_no_other(content: bytes) -> None:
    """What is decoded is what would be written."""
    try:
        length_bytes = decode_valid_length(content)
    except ValueError:
        return
    assert encode_valid_length(length_bytes) == content


def test_readers_stop_where_a_part_is_valid() -> None:
    """They stop there even at length zero, and report damaged lengths."""
    fs = MemoryFileSystem()
    fs.make_dirs(ROWS)
    with fs.open_write(f"{ROWS}/part-0-0") as file:
        file.write(b"1\n2\n3\n")
    assert rows(fs) == ["1", "2", "3"]
    for length_bytes, expected in ((4, ["1", "2"]), (0, []), (6, ["1", "2", "3"])):
        write_valid_length(fs, f"{ROWS}/_part-0-0.valid-length", length_bytes)
        assert rows(fs) == expected
    for length_bytes, why in ((7, "7 should be valid"), (3, "line break")):
        write_valid_length(fs, f"{ROWS}/_part-0-0.valid-length", length_bytes)
        with pytest.raises(StorageError, match=why):
            rows(fs)
    with fs.open_write(f"{ROWS}/_part-0-0.valid-length") as file:
        file.write(b"\x00")
    with pytest.raises(StorageError, match="damaged"):
        rows(fs)


# --- writing ------------------------------------------------------------------------------------------------------


def machine(fs: MemoryFileSystem, batch_size_bytes: int, rollover_interval_ms: int | None = None) -> BucketingParts:
    return BucketingParts(
        fs, ROWS, BucketingNames(), subtask=0, batch_size_bytes=batch_size_bytes,
        rollover_interval_ms=rollover_interval_ms, inactive_threshold_ms=100, truncates=lambda: True,
        missing=lambda: None,
    )  # fmt: skip


@given(st.lists(st.lists(st.text("xä", max_size=8), max_size=6), max_size=5), st.integers(0, 20))
@settings(max_examples=200)
def test_batches_do_not_show(batches: list[list[str]], batch_size_bytes: int) -> None:
    """Parts are those that one would get row by row: a row opens a part if the last one is *larger* than the size."""
    fs = MemoryFileSystem()
    parts = machine(fs, batch_size_bytes)
    expected: list[bytes] = []
    for batch in batches:
        if not batch:
            continue
        parts.write("", LineRows(batch, "\n"), 0)
        for row in [f"{line}\n".encode() for line in batch]:
            if not expected or len(expected[-1]) > batch_size_bytes:
                expected.append(b"")
            expected[-1] += row
    parts.close_parts()
    assert [fs.read_bytes(f"{ROWS}/_part-0-{count}.pending") for count in range(len(expected))] == expected
    assert len(list(fs.walk_files(ROWS))) == len(expected)


def test_a_part_that_is_exactly_old_enough_is_kept() -> None:
    """Rollover is strict, is asked when a record comes, and when the timer looks."""
    for now_ms, count in ((100, 1), (101, 2)):
        fs = MemoryFileSystem()
        parts = machine(fs, 1_000, rollover_interval_ms=100)
        for at_ms in (0, now_ms):
            parts.write("", LineRows(["x"], "\n"), at_ms)
        assert len(files(fs)) == count
        parts.write("other", LineRows(["x"], "\n"), 0)
        parts.close_inactive(now_ms)
        assert ("other/_part-0-0.pending" in files(fs)) is (now_ms > 100)


def test_inactive_parts_are_closed_when_the_timer_looks() -> None:
    """Idle for exactly the threshold is not inactive; between two looks nothing happens."""
    fs = MemoryFileSystem()
    task = start(fs)
    task.process([1])
    task.advance_ms(100)
    assert list(files(fs)) == ["_part-0-0.in-progress"]
    task.advance_ms(49)
    assert list(files(fs)) == ["_part-0-0.in-progress"]
    task.advance_ms(1)
    assert list(files(fs)) == ["_part-0-0.pending"]


@pytest.mark.parametrize("kind", ["part-0-1", "_part-0-1.pending", "_part-0-1.in-progress"])
def test_names_that_are_there_are_skipped(kind: str) -> None:
    """It skips them in any state; other subtasks' parts and valid lengths do not matter."""
    fs = MemoryFileSystem()
    fs.make_dirs(ROWS)
    for name in (kind, "part-1-0", "_part-0-0.valid-length"):
        fs.open_write(f"{ROWS}/{name}").close()
    task = start(fs, batch_size_bytes=0)
    task.process([1, 2])
    assert {"_part-0-0.pending", "_part-0-2.in-progress"} <= files(fs).keys()


def test_a_forgotten_bucket_starts_again_behind_its_files() -> None:
    """When all parts are finished the state forgets the bucket; only the names in the directory remain."""
    fs = MemoryFileSystem()
    task = start(fs)
    for number in range(3):
        task.process([number])
        task.advance_ms(200)
        checkpoint = task.snapshot(number)
        assert len(task.context.operator.list_state("bucket-states").get()[0]) == 1
        task.complete(number)
        assert checkpoint.id == number
    task.snapshot(9)
    assert task.context.operator.list_state("bucket-states").get() == [[]]
    assert files(fs) == {"part-0-0": "0\n", "part-0-1": "1\n", "part-0-2": "2\n"}


def test_buckets_by_record_and_by_time() -> None:
    """A function of the record, or an assigner that looks at the clock."""
    fs = MemoryFileSystem()
    task = start(fs, bucketer=lambda number: f"odd={number % 2}")
    task.process([1, 2, 3])
    assert files(fs) == {"odd=0/_part-0-0.in-progress": "2\n", "odd=1/_part-0-0.in-progress": "1\n3\n"}
    fs = MemoryFileSystem()
    task = start(fs, bucketer=DateTimeBucketAssigner(), now_ms=HOUR_MS)
    task.process([1])
    assert files(fs) == {"1970-01-01--01/_part-0-0.in-progress": "1\n"}


# --- crash points -------------------------------------------------------------------------------------------------

DISKS = {"truncate": MemoryFileSystem, "valid length": Untruncatable}


@pytest.fixture(params=DISKS)
def fs(request: pytest.FixtureRequest) -> MemoryFileSystem:
    return DISKS[request.param]()


def test_before_any_snapshot(fs: MemoryFileSystem) -> None:
    """Nothing is restored; what was written stays as an orphan, and its number is skipped."""
    start(fs).process([1])
    task = start(fs, attempt=2)
    task.process([1])
    task.finish()
    task.checkpoint(1)
    assert rows(fs) == ["1"]
    assert files(fs) == {"_part-0-0.in-progress": "1\n", "part-0-1": "1\n"}


@pytest.mark.parametrize("pending_meanwhile", [False, True])
def test_behind_a_snapshot_that_did_not_complete(fs: MemoryFileSystem, pending_meanwhile: bool) -> None:
    """The part that was in progress at N ends where it was at N, whatever came later, and whatever its name."""
    task = start(fs)
    task.process([1])
    n = task.snapshot(1)
    task.process([2])
    if pending_meanwhile:
        task.advance_ms(200)
        task.process([3])
    task.snapshot(2)
    task = start(fs, n, attempt=2)
    assert rows(fs) == ["1"]
    task.process([2])
    task.finish()
    task.checkpoint(3)
    assert rows(fs) == ["1", "2"]


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_between_completion_and_the_end_of_the_notification(fs: MemoryFileSystem, renamed: int) -> None:
    """The pending parts of N are finished; those that are already finished are skipped."""
    task = start(fs, batch_size_bytes=0)
    task.process([1, 2, 3])
    task.advance_ms(200)
    n = task.snapshot(1)
    for count in range(renamed):
        fs.rename(f"{ROWS}/_part-0-{count}.pending", f"{ROWS}/part-0-{count}")
    start(fs, n, attempt=2)
    assert rows(fs) == ["1", "2", "3"]
    start(fs, n, attempt=3)
    assert rows(fs) == ["1", "2", "3"]


def test_a_notification_makes_up_for_those_that_were_lost(fs: MemoryFileSystem) -> None:
    """A late notification for an older checkpoint does nothing."""
    task = start(fs, batch_size_bytes=0)
    for number in range(3):
        task.process([number])
        task.snapshot(number)
    task.complete(1)
    task.complete(0)
    assert rows(fs) == ["0"]
    task.complete(2)
    assert rows(fs) == ["0", "1"]


def test_an_older_checkpoint_than_the_one_that_finished_the_part(fs: MemoryFileSystem) -> None:
    """The finished part is cut back to its length then; where only a valid length is possible, that is lowered."""
    task = start(fs)
    task.process([1])
    older = task.snapshot(1)
    task.process([2])
    newer = task.snapshot(2)
    start(fs, newer, attempt=2)
    assert rows(fs) == ["1", "2"]
    start(fs, older, attempt=3)
    assert rows(fs) == ["1"]


def test_a_valid_length_can_be_kept() -> None:
    """As in Flink, where the first one is the last."""
    fs = Untruncatable()
    task = start(fs)
    task.process([1])
    older = task.snapshot(1)
    task.process([2])
    start(fs, task.snapshot(2), attempt=2)
    start(fs, older, attempt=3, goes_back=False)
    assert rows(fs) == ["1", "2"]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_that_goes_back_takes_finished_parts_back(fs: MemoryFileSystem, parallelism: int) -> None:
    """Parts opened after the older checkpoint are taken back, by any subtask; no others, and only once."""
    older, newer = Checkpoint(1), Checkpoint(2)
    tasks = [start(fs, subtask=subtask, parallelism=2) for subtask in range(2)]
    for checkpoint, values in ((older, [1, 2]), (newer, [3, 4])):
        for task, value in zip(tasks, values, strict=True):
            task.process([value])
            task.advance_ms(200)
            task.snapshot(checkpoint.id, checkpoint)
    for task in tasks:
        task.complete(2)
    assert rows(fs) == ["1", "2", "3", "4"]
    for attempt in (2, 3):
        tasks = [
            start(fs, older, attempt=attempt, subtask=subtask, parallelism=parallelism)
            for subtask in range(parallelism)
        ]
        assert rows(fs) == ["1", "2"]
        assert sum(task.counter("numCommittedFilesRetracted") for task in tasks) == (2 if attempt == 2 else 0)
    tasks[0].process([3, 4])
    tasks[0].finish()
    last = tasks[0].checkpoint(3)
    assert rows(fs) == ["1", "2", "3", "4"]
    start(fs, last, attempt=4)
    assert rows(fs) == ["1", "2", "3", "4"]


def test_the_valid_length_of_a_part_that_is_taken_back_goes_with_it() -> None:
    """Its name is free again, and a later part of that name is valid as a whole."""
    fs = Untruncatable()
    task = start(fs)
    task.process([1])
    older = task.snapshot(1)
    task.advance_ms(200)
    task.process([2])
    newer = task.snapshot(2)
    start(fs, newer, attempt=2)
    assert "_part-0-1.valid-length" in files(fs)
    task = start(fs, older, attempt=3)
    task.process([2, 3])
    task.finish()
    task.checkpoint(3)
    assert files(fs)["part-0-1"] == "2\n3\n"
    assert rows(fs) == ["1", "2", "3"]


def closed(task: Harness, value: int, checkpoint_id: int) -> Checkpoint:
    """One more part, finished with a checkpoint."""
    task.process([value])
    task.advance_ms(200)
    return task.checkpoint(checkpoint_id)


def test_what_was_taken_back_is_struck_out() -> None:
    """After the job goes on, a part with the name of one that was taken back is not taken back by mistake."""
    fs = MemoryFileSystem()
    task = start(fs)
    first = closed(task, 1, 1)
    task.snapshot(2)
    closed(task, 2, 3)
    second = closed(start(fs, first, attempt=2), 2, 2)
    assert "part-0-1" in files(fs)
    assert start(fs, second, attempt=3).counter("numCommittedFilesRetracted") == 0
    assert rows(fs) == ["1", "2"]


def test_a_journal_with_a_torn_line() -> None:
    """A snapshot that did not complete has torn it; it is not needed. The next line must not be appended to it."""
    fs = MemoryFileSystem()
    first = closed(start(fs), 1, 1)
    with fs.open_append(f"{ROWS}/.op-uid.parts-0") as file:
        file.write(b'[2, "')
    second = closed(start(fs, first, attempt=2), 2, 2)
    start(fs, second, attempt=3)
    start(fs, first, attempt=4)
    assert rows(fs) == ["1"]


def test_parts_of_another_run_stay() -> None:
    """A job that starts from nothing does not touch the parts it finds, even after it has gone back itself."""
    fs = MemoryFileSystem()
    task = start(fs)
    task.process([1])
    task.advance_ms(200)
    task.checkpoint(5)
    task = start(fs)
    task.process([2])
    n = task.snapshot(1)
    start(fs, n, attempt=2)
    assert rows(fs) == ["1", "2"]


def test_a_valid_length_is_there_whole_or_not_at_all() -> None:
    """The length comes before its part: a torn write leaves no half a length for readers."""
    fs = Untruncatable()
    task = start(fs)
    task.process([1])
    n = task.snapshot(1)
    task.process([2])
    torn = FaultInjectingFileSystem(fs, [FaultRule(FileFault.TORN_WRITE, "write", path="*valid-length*", keep_bytes=1)])
    for goes_back in (True, False):
        with pytest.raises(StorageError):
            start(torn, n, attempt=2, goes_back=goes_back)  # type: ignore[arg-type]
        assert rows(fs) == []
        assert "_part-0-0.valid-length" not in files(fs)
    start(fs, n, attempt=3, goes_back=False)
    assert rows(fs) == ["1"]


def test_truncation_is_found_out_or_switched_off() -> None:
    """A scratch file finds it out, and is deleted."""
    for fs, options, marked in (
        (MemoryFileSystem(), {}, False),
        (Untruncatable(), {}, True),
        (MemoryFileSystem(), {"use_truncate": False}, True),
    ):
        task = start(fs, **options)
        task.process([1])
        start(fs, task.snapshot(1), attempt=2, **options)
        assert set(files(fs)) == ({"part-0-0", "_part-0-0.valid-length"} if marked else {"part-0-0"})
        assert len(fs.list_dir(ROWS)) == len(files(fs)) + 1


def test_scratch_files_of_dead_attempts_go() -> None:
    """A process was killed between making the file and deleting it; it may also have had more subtasks. Another subtask
    of this attempt may be trying just now, in another process."""
    fs = MemoryFileSystem()
    fs.make_dirs(ROWS)
    for name in (".truncate-0-1-1", ".truncate-7-1-2", ".truncate-1-1-3"):
        with fs.open_write(f"{ROWS}/{name}") as file:
            file.write(b"sc")
    start(fs, attempt=3)

    assert [name for name in fs.list_dir(ROWS) if "truncate" in name] == [".truncate-1-1-3"]


def test_a_part_that_has_become_shorter_is_an_error(fs: MemoryFileSystem) -> None:
    """Padding it would make up rows."""
    task = start(fs)
    task.process([1])
    n = task.snapshot(1)
    with fs.open_write(f"{ROWS}/_part-0-0.in-progress") as file:
        file.write(b"1")
    with pytest.raises(StorageError, match="says that 2 were written"):
        start(fs, n, attempt=2)


def test_a_part_that_is_gone(fs: MemoryFileSystem) -> None:
    """Cutting it is an error; a valid length without its part is counted, and so is a missing pending part."""
    task = start(fs)
    task.process([1])
    n = task.snapshot(1)
    fs.delete(f"{ROWS}/_part-0-0.in-progress")
    if isinstance(fs, Untruncatable):
        assert start(fs, n, attempt=2).counter("numCommittedFilesMissing") == 1
        assert files(fs) == {}
    else:
        with pytest.raises(StorageError, match="is gone"):
            start(fs, n, attempt=2)
    task = start(MemoryFileSystem(), batch_size_bytes=0)
    task.process([1])
    task.advance_ms(200)
    n = task.snapshot(1)
    task.context.fs.delete(f"{ROWS}/_part-0-0.pending")
    with pytest.raises(StorageError, match="is gone"):
        task.complete(1)
    again = start(task.context.fs, n, attempt=2)  # type: ignore[arg-type]
    assert again.counter("numCommittedFilesMissing") == 1
    assert again.context.losses == [f"sink 'op' was to commit {ROWS}/part-0-0: it is neither pending nor committed"]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_anybody_finishes_the_parts_of_others(fs: MemoryFileSystem, parallelism: int) -> None:
    """A state is one element for each old subtask; after a rescale some subtasks get several, some none."""
    checkpoint = Checkpoint(1)
    for subtask in range(3):
        task = start(fs, subtask=subtask, parallelism=3, batch_size_bytes=0)
        task.process([subtask, subtask + 10])
        task.snapshot(1, checkpoint)
        task.process([99])
    for subtask in range(parallelism):
        start(fs, checkpoint, attempt=2, subtask=subtask, parallelism=parallelism)
    assert rows(fs) == ["0", "1", "10", "11", "12", "2"]


# --- the end ------------------------------------------------------------------------------------------------------


def test_the_end_of_the_input_is_in_the_last_checkpoint() -> None:
    """Parts are closed, and finished when it is complete."""
    fs = MemoryFileSystem()
    task = start(fs)
    task.process([1])
    task.finish()
    assert list(files(fs)) == ["_part-0-0.pending"]
    task.checkpoint(1)
    task.close()
    assert list(files(fs)) == ["part-0-0"]


def test_closing_makes_parts_pending_and_nothing_visible() -> None:
    """No checkpoint has them in its state."""
    fs = MemoryFileSystem()
    task = start(fs)
    task.process([1])
    task.close()
    task.close()
    assert list(files(fs)) == ["_part-0-0.pending"]


def test_without_checkpoints_closed_parts_are_finished() -> None:
    """They are finished by rolling and at the end, but not when a failure closes the task, unless the names say so."""
    fs = MemoryFileSystem()
    task = start(fs, checkpointing_enabled=False, batch_size_bytes=0)
    task.process([1, 2])
    assert set(files(fs)) == {"part-0-0", "_part-0-1.in-progress"}
    task.close()
    assert set(files(fs)) == {"part-0-0", "_part-0-1.in-progress"}
    task = start(fs, checkpointing_enabled=False)
    task.process([3])
    task.finish()
    assert "part-0-2" in files(fs)
    fs, names = MemoryFileSystem(), BucketingNames(pending_prefix="", pending_suffix="")
    task = start(fs, checkpointing_enabled=False, names=names)
    task.process([1])
    task.close()
    assert set(files(fs)) == {"part-0-0"}
    with pytest.raises(ConfigurationError, match="before their checkpoint"):
        start(fs, names=names)


def test_a_job_without_checkpoints() -> None:
    """In the real runtime."""
    fs = MemoryFileSystem()
    job = Job("numbers", parallelism=2)
    job.source(SequenceSource(0, 50), name="numbers").sink(BucketingSink("rows", batch_size_bytes=10))
    run(job, file_system=fs, mode="none")
    assert sorted(map(int, rows(fs))) == list(range(50))


# --- bad input ----------------------------------------------------------------------------------------------------


def test_bad_records_are_named() -> None:
    """The error names it whether the format or the bucketer refuses it; no record of its batch is written."""
    fs = MemoryFileSystem()
    task = start(fs, bucketer=lambda number: "../up" if number == 2 else "b")
    with pytest.raises(UserFunctionError, match="bucketer") as caught:
        task.process([1, 2])
    assert caught.value.record == 2
    with pytest.raises(UserFunctionError, match="row format") as caught:
        task.process([1, {1}])
    assert caught.value.record == {1}
    with pytest.raises(UserFunctionError, match="row format") as caught:
        task.process([1, "\ud800"])
    assert files(fs) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"path": ""},
        {"bucketer": 5},
        {"batch_size_bytes": -1},
        {"batch_size_bytes": True},
        {"rollover_interval_ms": 1.5},
        {"inactive_check_interval_ms": 0},
        {"inactive_threshold_ms": -1},
        {"names": "part"},
        {"format": BulkTextFormat(JsonLinesRowFormat())},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    """They say what they must be."""
    with pytest.raises(ConfigurationError):
        BucketingSink(**{"path": "rows", **options})


def test_two_sinks_that_go_on_differently_have_different_fingerprints() -> None:
    """The watermark decides about buckets, and the opened parts decide what the journal will contain."""
    fs = MemoryFileSystem()
    task = start(fs)
    seen = [task.operator.fingerprint()]
    task.watermark(5)
    seen.append(task.operator.fingerprint())
    task.process([1])
    seen.append(task.operator.fingerprint())
    task.operator._machine.take_opened()  # type: ignore[attr-defined]
    seen.append(task.operator.fingerprint())
    assert len(dict.fromkeys(map(repr, seen))) == 4


@pytest.mark.parametrize(("line_end", "read"), [("\r\n", ["a", "b"]), ("", ["ab"])])
def test_rows_are_read_back_as_the_format_ends_them(line_end: str, read: list[str]) -> None:
    """The line end of the sink's format separates them; without one, rows cannot be told apart."""
    fs = MemoryFileSystem()
    spec = BucketingSink("rows", format=TextRowFormat(line_end))
    task = Harness(spec.create_operator(), fs=fs)
    task.process(["a", "b"])
    task.finish()
    task.checkpoint(1)
    assert spec.read_output(fs, ROWS) == {"": read}


@pytest.mark.parametrize("use_truncate", [True, False], ids=["truncate", "valid length"])
def test_a_zombie_writes_to_what_nobody_looks_at(use_truncate: bool) -> None:
    """The zombie goes on writing to its finished part: readers see what the checkpoint covers."""
    fs = MemoryFileSystem()
    spec = BucketingSink("rows", use_truncate=use_truncate)
    zombie = Harness(spec.create_operator(), fs=fs)
    zombie.process([1, 2])
    checkpoint = zombie.checkpoint(1)
    successor = Harness(spec.create_operator(), fs=fs, restored=checkpoint, attempt=2)
    zombie.process([666])
    zombie.snapshot(2)
    successor.process([3])
    successor.finish()
    successor.checkpoint(2)
    assert rows(fs) == ["1", "2", "3"]
    assert not [path for path in fs.walk_files(ROWS) if path.endswith(".copied")]


def test_a_directory_that_is_a_file() -> None:
    """The error names it."""
    fs = MemoryFileSystem()
    fs.make_dirs("/out")
    fs.open_write(ROWS).close()
    with pytest.raises(StorageError, match="cannot write"):
        start(fs).process([1])
