"""What a restored file sink does about the files of others in its directory: files that stay open over checkpoints,
tasks that cannot be reached, older checkpoints, other parallelisms."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.elements.errors import OutputAheadError, StorageError
from operators.files.sinks import FileSink, read_committed
from operators.files.writing import DefaultRollingPolicy
from operators.files.writing.unique_names import unique_name
from state_backends.files import MemoryFileSystem
from tests.operators.harness import Checkpoint, Harness

OPEN = FileSink("rows", rolling_policy=DefaultRollingPolicy())
CLOSED = FileSink("rows")


def sink(fs: MemoryFileSystem, spec: FileSink = OPEN, **options: Any) -> Harness:
    return Harness(spec.create_operator(), fs=fs, **options)


def committed(fs: MemoryFileSystem) -> list[str]:
    return [row for rows in read_committed(fs, "/out/rows").values() for row in rows]


def files(fs: MemoryFileSystem) -> list[str]:
    """Names, with ``*`` for their unique part."""
    names = [path.removeprefix("/out/rows/") for path in fs.walk_files("/out/rows")]
    return sorted(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}$", "*", name) for name in names)


def end(harness: Harness, checkpoint_id: int = 9) -> None:
    harness.finish()
    harness.checkpoint(checkpoint_id)
    harness.close()


def test_parts_stay_open_over_checkpoints() -> None:
    """One file for many checkpoints; nothing of it is visible before it is closed and confirmed."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    for checkpoint_id in (1, 2, 3):
        harness.process([checkpoint_id])
        harness.checkpoint(checkpoint_id)
    assert files(fs) == [".part-0-0.inprogress.*"]

    harness.advance_ms(120_000)
    assert committed(fs) == []
    harness.checkpoint(4)
    assert files(fs) == ["part-0-0"]
    assert committed(fs) == ["1", "2", "3"]


def test_a_resumed_part_goes_on_where_the_checkpoint_had_it() -> None:
    """Bytes written after the checkpoint are removed, and come again; one file in the end, and nothing beside it."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process([1, 2])
    checkpoint = harness.snapshot(1)
    harness.process([3, 4])
    for attempt in (2, 3, 4):
        restored = sink(fs, restored=checkpoint, attempt=attempt)
        assert files(fs) == [".part-0-0.inprogress.*", ".part-0-0.setaside.*"]
    restored.process([3])
    end(restored)

    assert files(fs) == ["part-0-0"]
    assert committed(fs) == ["1", "2", "3"]


def test_a_zombie_writes_to_what_nobody_looks_at() -> None:
    """A task that was declared dead wakes up, writes, snapshots and commits: the file of its successor is another."""
    fs = MemoryFileSystem()
    zombie = sink(fs)
    zombie.process([1])
    checkpoint = zombie.snapshot(1)
    successor = sink(fs, restored=checkpoint, attempt=2)
    successor.process([2])
    zombie.process([666])
    successor.process([3])
    zombie.finish()
    zombie.snapshot(2)
    with pytest.raises(StorageError, match="was to be committed as 'part-0-0' but is gone"):
        zombie.complete(2)
    end(successor)

    assert committed(fs) == ["1", "2", "3"]


def test_a_bucket_may_be_called_like_a_hidden_file() -> None:
    """Only the end of a name shows whether it is a hidden one, not a directory before it."""
    spec = FileSink("rows", bucket=lambda row: "x.inprogress.y", rolling_policy=DefaultRollingPolicy())
    fs = MemoryFileSystem()
    harness = sink(fs, spec)
    harness.process([1])
    checkpoint = harness.snapshot(1)
    restored = sink(fs, spec, restored=checkpoint, attempt=2)
    restored.process([2])
    end(restored)
    assert read_committed(fs, "/out/rows") == {"x.inprogress.y": ["1", "2"]}
    assert files(fs) == ["x.inprogress.y/part-0-0"]


@pytest.mark.parametrize("resumes", [True, False], ids=["resumed", "committed as it was"])
def test_an_older_checkpoint_whose_open_part_was_committed_since(resumes: bool) -> None:
    """The part is taken back; its first rows go on or are committed alone, and later ones come once."""
    spec = FileSink("rows", rolling_policy=DefaultRollingPolicy(), resumes=resumes)
    fs = MemoryFileSystem()
    harness = sink(fs, spec)
    harness.process([1])
    older = harness.snapshot(1)
    harness.process([2])
    harness.operator.finish()
    harness.checkpoint(2)
    assert committed(fs) == ["1", "2"]

    restored = sink(fs, spec, restored=older, incarnation=2)
    assert committed(fs) == ([] if resumes else ["1"])
    assert restored.counter("numCommittedFilesRetracted") == 1
    again = sink(fs, spec, restored=older, incarnation=3)
    assert committed(fs) == ([] if resumes else ["1"])
    assert again.counter("numCommittedFilesRetracted") == 0
    again.process([2, 3])
    end(again)

    assert committed(fs) == ["1", "2", "3"]
    assert [name for name in files(fs) if ".retracted." not in name] == (
        ["part-0-0"] if resumes else ["part-0-0", "part-0-1"]
    )


def test_a_part_that_is_gone_is_an_error() -> None:
    """It is neither hidden nor visible: its rows are lost, and the job must not go on without them."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process([1])
    checkpoint = harness.snapshot(1)
    fs.delete(f"/out/rows/.part-0-0.inprogress.{unique_name(1, 1, 0, 0)}")

    with pytest.raises(StorageError, match="was open in the restored checkpoint, with 2 bytes, but is gone"):
        sink(fs, restored=checkpoint, attempt=2)


def test_a_part_that_has_become_shorter_is_an_error() -> None:
    """Rows that were cut off are lost, too."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process([1])
    checkpoint = harness.snapshot(1)
    fs.truncate(f"/out/rows/.part-0-0.inprogress.{unique_name(1, 1, 0, 0)}", 1)

    for attempt in (2, 3):
        with pytest.raises(StorageError, match="had 2 bytes in the restored checkpoint but has 1"):
            sink(fs, restored=checkpoint, attempt=attempt)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_open_parts_move_to_other_subtasks(parallelism: int) -> None:
    """The subtask with the state of a bucket goes on with its file, under the name that it has; names stay apart."""
    fs, checkpoint = MemoryFileSystem(), Checkpoint(1)
    spec = FileSink("rows", bucket=lambda number: f"tens={number // 10}", rolling_policy=DefaultRollingPolicy())
    for subtask in range(2):
        harness = sink(fs, spec, subtask=subtask, parallelism=2)
        harness.process([subtask, 10 + subtask, 20 + subtask])
        harness.snapshot(1, checkpoint)
        harness.process([99])
    options: dict[str, Any] = {"parallelism": parallelism, "restored": checkpoint, "attempt": 2}
    restored = [sink(fs, spec, subtask=subtask, **options) for subtask in range(parallelism)]
    for subtask, harness in enumerate(restored):
        harness.process([5, 15, 25, 30 + subtask])
    last = Checkpoint(2)
    for harness in restored:
        harness.finish()
        harness.snapshot(2, last)
    for harness in restored:
        harness.complete(2)

    rows = [0, 1, 10, 11, 20, 21, *([5, 15, 25] * parallelism), *range(30, 30 + parallelism)]
    assert sorted(map(int, committed(fs))) == sorted(rows)
    assert [name for name in files(fs) if "/." in name] == []


def test_checkpoints_of_older_versions_are_restored() -> None:
    """Hidden names were shorter, buckets had no open parts, and counters did not say which buckets lag."""
    fs = MemoryFileSystem()
    harness = sink(fs, CLOSED)
    pending = ("b/.part-0-0.inprogress.1-1", "b/part-0-0", 2)
    harness.context.operator.list_state("buckets").update([("b", [(1, [pending])])])
    harness.context.operator.union_list_state("part-counters").update([(0, 1)])
    fs.make_dirs("/out/rows/b")
    for name in (".part-0-0.inprogress.1-1", ".part-0-1.inprogress.1-1", ".part-0-7.inprogress.tmp"):
        with fs.open_write(f"/out/rows/b/{name}") as file:
            file.write(b"1\n")
    harness.operator.snapshot_state = lambda checkpoint_id: None  # type: ignore[method-assign]
    old = harness.snapshot(1)
    sink(fs, CLOSED, restored=old, attempt=2)

    assert [path.rpartition("/")[2] for path in fs.walk_files("/out/rows")] == [".part-0-7.inprogress.tmp", "part-0-0"]


def test_no_restart_helps_a_directory_that_is_taken() -> None:
    """A sink without a checkpoint, in a directory with committed parts, ends the job instead of only its attempt."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process([1])
    end(harness)

    with pytest.raises(OutputAheadError, match="part-0-0 exists already: this directory holds the output of another"):
        sink(fs, attempt=2)


def test_periodic_checks_end_with_the_input() -> None:
    """Timers go on from check to check, one for each jump of the clock, and none after the end."""
    fs = MemoryFileSystem()
    harness = sink(fs)
    harness.process([1])
    harness.advance_ms(60_000)
    assert len(harness.context.timers) == 1
    harness.finish()
    harness.advance_ms(60_000)
    assert harness.context.timers == []
    assert sink(MemoryFileSystem(), CLOSED).context.timers == []
