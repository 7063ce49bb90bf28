"""The exactly-once file sink, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError, StorageError, UserFunctionError
from operators.files.bucketing import BucketingSink
from operators.files.formats import CsvRowFormat, JsonLinesFormat, JsonLinesRowFormat
from operators.files.sinks import FileSink, read_committed
from operators.files.writing import PartFileInfo, RollingPolicy
from operators.files.writing.unique_names import unique_name
from operators.table.staging.staged_sink import StagedFileSink
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.operators.harness import Checkpoint, Harness


def sink(fs: MemoryFileSystem | FaultInjectingFileSystem, spec: FileSink | None = None, **options: Any) -> Harness:
    return Harness((spec or FileSink("rows")).create_operator(), fs=fs, **options)


def files(fs: MemoryFileSystem) -> dict[str, str]:
    return {path.removeprefix("/out/rows/"): fs.read_bytes(path).decode() for path in fs.walk_files("/out/rows")}


def committed(fs: MemoryFileSystem) -> dict[str, list[str]]:
    return read_committed(fs, "/out/rows")


def hidden(name: str, number: int = 0) -> str:
    """The hidden name that subtask 0 gives in the first attempt of the first incarnation."""
    return f".{name}.inprogress.{unique_name(1, 1, 0, number)}"


def by_letter(value: str) -> str:
    return value[0]


def test_a_part_is_hidden_until_its_checkpoint_has_completed() -> None:
    """In progress and pending files have hidden names; completion renames, and nothing else does."""
    fs = MemoryFileSystem()
    harness = sink(fs, FileSink("rows", suffix=".jsonl"), incarnation=3, attempt=2)
    harness.process(["a", "b"])
    hidden = ".part-0-0.jsonl.inprogress.00000003-0000-0002-0000-000000000000"
    assert files(fs) == {hidden: '"a"\n"b"\n'}

    harness.snapshot(1)
    harness.close()
    assert files(fs) == {hidden: '"a"\n"b"\n'}
    assert committed(fs) == {}
    harness.complete(1)
    assert files(fs) == {"part-0-0.jsonl": '"a"\n"b"\n'}
    assert committed(fs) == {"": ['"a"', '"b"']}


def test_every_checkpoint_closes_the_open_parts() -> None:
    """Records after a barrier go to the next part; a checkpoint without records makes no file."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    for number, letter in enumerate("ab", start=1):
        harness.process([letter])
        harness.snapshot(number)
    harness.snapshot(3)

    harness.complete(1)
    assert sorted(files(fs)) == [hidden("part-0-1", 1), "part-0-0"]
    harness.complete(3)
    assert files(fs) == {"part-0-0": '"a"\n', "part-0-1": '"b"\n'}


def test_part_counters_of_buckets() -> None:
    """A new bucket starts at the greatest counter of its subtask, also when it was inactive before."""
    fs = MemoryFileSystem()
    harness = sink(fs, FileSink("rows", bucket=by_letter), subtask=0)
    harness.process(["a", "b", "a"])
    harness.snapshot(1)
    harness.process(["a"])
    harness.checkpoint(2)
    assert sorted(files(fs)) == ["a/part-0-0", "a/part-0-1", "b/part-0-1"]

    harness.process(["a", "b"])
    harness.checkpoint(3)
    assert sorted(files(fs))[2:] == ["a/part-0-2", "b/part-0-1", "b/part-0-3"]


def test_subtasks_do_not_share_names() -> None:
    """The subtask is part of the name."""
    fs = MemoryFileSystem()
    for subtask in range(2):
        harness = sink(fs, subtask=subtask, parallelism=2)
        harness.process([subtask])
        harness.checkpoint(1)

    assert files(fs) == {"part-0-0": "0\n", "part-1-0": "1\n"}


@pytest.mark.parametrize("confirmed", ["no", "half", "all"])
def test_a_restore_commits_what_is_pending(confirmed: str) -> None:
    """Restored from a completed checkpoint, whatever was renamed before, everything in it is visible, once."""
    fs = MemoryFileSystem()
    harness = sink(fs, FileSink("rows", bucket=by_letter))
    harness.process(["a1", "b1"])
    checkpoint = harness.snapshot(1)
    harness.process(["a2"])
    if confirmed == "half":
        fs.rename(f"/out/rows/a/{hidden('part-0-0')}", "/out/rows/a/part-0-0")
    elif confirmed == "all":
        harness.complete(1)

    for attempt in (2, 3):
        restored = sink(fs, FileSink("rows", bucket=by_letter), restored=checkpoint, attempt=attempt)
        assert committed(fs) == {"a": ['"a1"'], "b": ['"b1"']}
    restored.process(["a2"])
    restored.checkpoint(2)

    assert committed(fs) == {"a": ['"a1"', '"a2"'], "b": ['"b1"']}


def test_a_restore_deletes_what_no_checkpoint_can_commit() -> None:
    """Hidden files from after the checkpoint are deleted, those of other programs stay."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process(["a"])
    checkpoint = harness.snapshot(1)
    harness.process(["b"])
    with fs.open_write("/out/rows/.other") as other:
        other.write(b"x")

    sink(fs, restored=checkpoint, attempt=2)

    assert sorted(files(fs)) == [".other", "part-0-0"]


def test_going_back_behind_a_committed_checkpoint_hides_its_files() -> None:
    """Rows of the damaged newer checkpoint, which are replayed, are hidden from readers."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process(["a"])
    older = harness.checkpoint(1)
    harness.process(["b"])
    harness.checkpoint(2)
    assert committed(fs) == {"": ['"a"', '"b"']}

    restored = sink(fs, restored=older, incarnation=2)
    assert committed(fs) == {"": ['"a"']}
    assert restored.counter("numCommittedFilesRetracted") == 1
    restored.process(["b", "c"])
    restored.checkpoint(3)

    assert committed(fs) == {"": ['"a"', '"b"', '"c"']}


def test_hiding_looks_at_the_counter_of_each_subtask() -> None:
    """A subtask that had opened fewer parts than another one still recognises which of its files came later."""
    fs = MemoryFileSystem()
    checkpoint = Checkpoint(1)
    busy, quiet = (sink(fs, subtask=subtask, parallelism=2) for subtask in range(2))
    for number in range(3):
        busy.process([f"busy{number}"])
        busy.operator.snapshot_state(-number)
    quiet.process(["quiet0"])
    for harness in (busy, quiet):
        harness.snapshot(1, checkpoint)
        harness.complete(1)
    quiet.process(["quiet1"])
    quiet.checkpoint(2)

    for subtask in range(2):
        sink(fs, subtask=subtask, parallelism=2, restored=checkpoint, attempt=2)

    assert committed(fs) == {"": ['"busy0"', '"busy1"', '"busy2"', '"quiet0"']}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_change_of_parallelism_keeps_names_apart(parallelism: int) -> None:
    """Counters are united: after a rescale no subtask takes a name that any subtask used before."""
    fs = MemoryFileSystem()
    checkpoint = Checkpoint(1)
    for subtask, parts in ((0, 3), (1, 1)):
        harness = sink(fs, subtask=subtask, parallelism=2)
        for number in range(parts):
            harness.process([f"{subtask}-{number}"])
            harness.operator.snapshot_state(number - parts)
        harness.snapshot(1, checkpoint)

    restored = [
        sink(fs, subtask=subtask, parallelism=parallelism, restored=checkpoint, attempt=2)
        for subtask in range(parallelism)
    ]
    for subtask, harness in enumerate(restored):
        harness.process([f"new{subtask}"])
        harness.checkpoint(2)

    expected = ['"0-0"', '"0-1"', '"0-2"', '"1-0"', *(f'"new{subtask}"' for subtask in range(parallelism))]
    assert committed(fs) == {"": expected}


def test_without_checkpoints_finish_commits() -> None:
    """A job without checkpoints publishes at its end; an earlier attempt's files are replaced."""
    fs = MemoryFileSystem()
    for attempt in (1, 2):
        harness = sink(fs, checkpointing_enabled=False, attempt=attempt)
        harness.process(["a"])
        assert len(committed(fs)) == attempt - 1
        harness.finish()
        assert committed(fs) == {"": ['"a"']}


def test_the_rest_goes_with_the_last_checkpoint() -> None:
    """finish closes the parts, and only the checkpoint after it publishes them."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process(["a"])

    harness.finish()
    assert committed(fs) == {}
    harness.checkpoint(1)

    assert committed(fs) == {"": ['"a"']}


def test_the_output_of_another_run_is_not_touched() -> None:
    """A job that starts anew refuses a directory with committed files, and a restored one a name that is taken."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process(["a"])
    checkpoint = harness.checkpoint(1)

    with pytest.raises(StorageError, match="part-0-0 exists already: this directory holds the output of another run"):
        sink(fs)
    with pytest.raises(StorageError, match="part-0-0 exists already"):
        sink(fs, restored=Checkpoint(9), attempt=2)  # the sink is new in the restored job
    for again in ({"attempt": 2}, {"incarnation": 2}):  # nor does it help to try again
        with pytest.raises(StorageError, match="part-0-0 exists already"):
            sink(fs, **again)
    assert files(fs) == {"part-0-0": '"a"\n'}

    restored = sink(fs, restored=checkpoint, attempt=2)
    with fs.open_write("/out/rows/part-0-1") as foreign:
        foreign.write(b"x\n")
    with pytest.raises(StorageError, match="part-0-1 exists already"):
        restored.process(["b"])
    assert files(fs)["part-0-1"] == "x\n"


def test_a_damaged_pending_file_is_not_committed() -> None:
    """Strict commits require the very file that was closed; lenient ones require at least its length."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process(["a"])
    checkpoint = harness.snapshot(1)
    path = f"/out/rows/{hidden('part-0-0')}"
    with fs.open_append(path) as file:
        file.write(b"more")
    with pytest.raises(StorageError, match="with 4 bytes but has 8"):
        harness.complete(1)

    fs.truncate(path, 2)
    with pytest.raises(StorageError, match="with 4 bytes but has 2"):
        sink(fs, restored=checkpoint, attempt=2)
    with fs.open_write(path) as file:
        file.write(b'"a"\nmore')
    sink(fs, restored=checkpoint, attempt=2)
    assert committed(fs) == {"": ['"a"']}


def test_missing_files() -> None:
    """A pending file that vanished fails a notification; at a restore it is a loss, which names it."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process(["a"])
    checkpoint = harness.snapshot(1)
    fs.delete(f"/out/rows/{hidden('part-0-0')}")

    with pytest.raises(StorageError, match="was to be committed as 'part-0-0' but is gone"):
        harness.complete(1)
    harness = sink(fs, restored=checkpoint, attempt=2)
    assert harness.counter("numCommittedFilesMissing") == 1
    assert harness.context.losses == ["sink 'op' was to commit /out/rows/part-0-0: it is neither pending nor committed"]


def test_files_committed_before_a_failure_are_no_loss() -> None:
    """The attempt that died had committed them: their final names are there."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process(["a"])
    checkpoint = harness.checkpoint(1)

    assert sink(fs, restored=checkpoint, attempt=2).context.losses == []


def test_what_another_run_had_pending_is_no_loss_in_a_directory_of_its_own() -> None:
    """A job started from a savepoint may write elsewhere; where it writes to that run's output, a gap is a loss."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process(["a"])
    harness.complete(harness.snapshot(1).id)
    harness.process(["b"])
    savepoint = harness.snapshot(2)
    fs.delete(f"/out/rows/{hidden('part-0-1', 1)}")

    def losses_in(disk: MemoryFileSystem) -> list[str]:
        started = sink(disk, restored=savepoint, starts_from_another_run=True)
        assert started.counter("numCommittedFilesMissing") == 1
        return started.context.losses

    assert losses_in(MemoryFileSystem()) == []
    assert len(losses_in(fs)) == 1


def test_rolling_policy_closes_parts_between_checkpoints() -> None:
    """A policy is asked before each record, whatever the batch, and never when no part is open."""
    asked: list[tuple[int, int]] = []

    class EveryTwo(RollingPolicy):
        rolls_on_every_checkpoint = True

        def should_roll_on_event(self, part: PartFileInfo, record: Any) -> bool:
            asked.append((part.size_bytes, record))
            return part.size_bytes >= 4

    fs = MemoryFileSystem()
    harness = sink(fs, FileSink("rows", rolling_policy=EveryTwo()))
    harness.process([1, 2])
    harness.advance_ms(3)
    harness.process([3, 4, 5])
    harness.checkpoint(1)

    assert files(fs) == {"part-0-0": "1\n2\n", "part-0-1": "3\n4\n", "part-0-2": "5\n"}
    assert asked == [(2, 2), (4, 3), (2, 4), (4, 5)]


def test_csv_rows_and_names() -> None:
    """The caller chooses format, prefix and suffix."""
    fs = MemoryFileSystem()
    spec = FileSink("rows", format=CsvRowFormat(), prefix="flights", suffix=".csv", bucket=lambda row: f"d={row[0]}")
    harness = sink(fs, spec)
    harness.process([(1, "a,b"), (2, None)])
    harness.checkpoint(1)

    assert files(fs) == {"d=1/flights-0-0.csv": '1,"a,b"\n', "d=2/flights-0-1.csv": "2,\n"}


@pytest.mark.parametrize(
    ("spec", "record", "what"),
    [
        (FileSink("rows"), {1, 2}, "row format"),
        (FileSink("rows"), "\ud800", "row format"),
        (FileSink("rows", bucket=lambda value: value["x"]), "bad", "bucket function"),
        (FileSink("rows", bucket=lambda value: f"../{value}"), "bad", "bucket function"),
    ],
)
def test_errors_name_the_record(spec: FileSink, record: object, what: str) -> None:
    """A record that cannot be written, or has no bucket, is named; nothing of its batch is written."""
    fs = MemoryFileSystem()
    harness = sink(fs, spec)

    with pytest.raises(UserFunctionError, match=f"^{what} of operator 'op' raised") as caught:
        harness.process([record])

    assert caught.value.record in (record, '"\ud800"')


def test_storage_failures_are_explained() -> None:
    """A full disk is an error of ours with the path and what to do."""
    rule = FaultRule(FileFault.DISK_FULL, "write")
    harness = sink(FaultInjectingFileSystem(MemoryFileSystem(), [rule]))

    with pytest.raises(StorageError, match=r"^sink 'op' cannot write /out/rows/\.part-0-0.*No space left"):
        harness.process(["a"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": ""},
        {"path": "x", "prefix": ""},
        {"path": "x", "prefix": "_p"},
        {"path": "x", "prefix": 5},
        {"path": "x", "suffix": "a/b"},
        {"path": "x", "suffix": None},
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any]) -> None:
    """Names that readers would not see, or that lead elsewhere, are refused where the sink is made."""
    with pytest.raises(ConfigurationError):
        FileSink(**arguments)


@pytest.mark.parametrize("make", [FileSink, BucketingSink, StagedFileSink])
@pytest.mark.parametrize("format", ["json", JsonLinesRowFormat, JsonLinesFormat()])
def test_a_format_that_cannot_write_is_refused(make: Callable[..., Any], format: Any) -> None:
    """A name, a class, or a format of sources is refused, and the error lists the formats of a sink."""
    with pytest.raises(ConfigurationError, match=r"^format is .*use JsonLinesRowFormat\(\)"):
        make("rows", format=format)


def test_a_strategy_of_compaction_is_asked_for() -> None:
    """A number is not a strategy."""
    strategy: Any = 5
    with pytest.raises(ConfigurationError, match="strategy is 5; it must be CompactionStrategy"):
        FileSink("rows").compacting(strategy)


def test_reading_back_leaves_out_hidden_and_refuses_torn_files() -> None:
    """``read_committed`` returns what readers see, sorted by bucket."""
    fs = MemoryFileSystem()
    fs.make_dirs("/out/rows/b")
    fs.make_dirs("/out/rows/_tmp")
    for name, content in (("b/x", b"2\n1\n"), ("a", b"0\n"), (".h", b"9\n"), ("_tmp/y", b"9\n")):
        with fs.open_write(f"/out/rows/{name}") as file:
            file.write(content)
    assert committed(fs) == {"": ["0"], "b": ["1", "2"]}

    fs.truncate("/out/rows/b/x", 3)
    with pytest.raises(StorageError, match="does not end with a line break"):
        committed(fs)
