"""Which files are compacted together and when, when the committer learns of it, and how files are merged."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from operators.files.compaction import (
    PENDING,
    CompactCoordinator,
    CompactionRequest,
    CompactionStrategy,
    Compactor,
    FileCommittable,
    merge_of,
)
from operators.files.compaction.compactor import compacted_path
from operators.files.compaction.file_committer import CLEAN_UP, DELETE
from operators.files.formats import JsonLinesRowFormat
from operators.files.writing import BulkTextFormat, PartEncoder


def file(name: str, size_bytes: int = 5, bucket: str = "b") -> FileCommittable:
    return (PENDING, bucket, f"{bucket}/.{name}.inprogress.1", f"{bucket}/{name}", size_bytes)


def clean_up(name: str, bucket: str = "b") -> FileCommittable:
    return (CLEAN_UP, bucket, f"{bucket}/.{name}.inprogress.1", f"{bucket}/{name}", 3)


# --- the coordinator --------------------------------------------------------------------------------------------


def test_a_bucket_is_fired_when_its_files_reach_the_threshold() -> None:
    """Inclusively; then counting begins again. Buckets know nothing of each other."""
    machine = CompactCoordinator(CompactionStrategy(size_threshold_bytes=10))
    a, b, c = file(".a"), file(".b"), file(".c")

    assert machine.add(a) is None
    assert machine.add(file(".other", 9, "x")) is None
    assert machine.add(b) == ("b", [a, b], [])
    assert machine.add(c) is None
    assert machine.end_of_input() == [("x", [file(".other", 9, "x")], []), ("b", [c], [])]


def test_checkpoints_are_counted_from_the_first_behind_the_first_file() -> None:
    """Earlier checkpoints do not count; after firing, counting begins again."""
    machine = CompactCoordinator(CompactionStrategy(checkpoints=2))
    assert machine.on_checkpoint(1) == []
    machine.add(file(".a"))
    assert machine.on_checkpoint(2) == []
    assert machine.on_checkpoint(3) == [("b", [file(".a")], [])]
    machine.add(file(".b"))
    assert machine.on_checkpoint(4) == []
    # Checkpoint 5 was aborted: ids count, not calls.
    assert machine.on_checkpoint(6) == [("b", [file(".b")], [])]


def test_what_cannot_be_compacted_is_passed_through() -> None:
    """Clean-ups, visible names, unknown sizes."""
    machine = CompactCoordinator(CompactionStrategy(size_threshold_bytes=5))
    passed = [clean_up(".a"), file("visible", 100), file(".unknown", -1)]
    for one in passed:
        assert machine.add(one) is None

    assert machine.add(file(".b")) == ("b", [file(".b")], passed)


def test_clean_ups_alone_never_fire() -> None:
    """They go with the next request; a file that is passed through starts the count of checkpoints."""
    machine = CompactCoordinator(CompactionStrategy(checkpoints=1))
    machine.add(clean_up(".a"))
    assert machine.on_checkpoint(1) == []

    machine.add(file("visible"))

    assert machine.on_checkpoint(2) == [("b", [], [clean_up(".a"), file("visible")])]


def test_a_restore_fires_by_the_strategy_of_today() -> None:
    """A lower threshold fires at once; otherwise sizes add up over the restore."""
    machine = CompactCoordinator(CompactionStrategy(size_threshold_bytes=100))
    for one in (file(".a"), clean_up(".a"), file(".b")):
        machine.add(one)
    state = machine.state()
    assert state == [file(".a"), file(".b"), clean_up(".a")]

    lower = CompactCoordinator(CompactionStrategy(size_threshold_bytes=10))
    assert lower.restore(state) == [("b", [file(".a"), file(".b")], [])]
    assert lower.state() == [clean_up(".a")]

    same = CompactCoordinator(CompactionStrategy(size_threshold_bytes=15))
    assert same.restore(state) == []
    assert same.add(file(".c")) == ("b", [file(".a"), file(".b"), file(".c")], [clean_up(".a")])


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 9)) | st.integers(1, 3), max_size=30))
def test_every_file_is_in_one_request(events: list[Any]) -> None:
    """However sizes, checkpoints and restores follow each other (a number is a checkpoint; every third a restore)."""
    strategy = CompactionStrategy(size_threshold_bytes=12, checkpoints=3)
    machine, added, fired = CompactCoordinator(strategy), [], []
    checkpoint_id = 0
    for position, event in enumerate(events):
        if isinstance(event, int):
            checkpoint_id += event
            fired += machine.on_checkpoint(checkpoint_id)
            if event == 3:
                state, machine = machine.state(), CompactCoordinator(strategy)
                fired += machine.restore(state)
        else:
            added.append(file(f".{position}", event[1], event[0]))
            fired += [request for request in [machine.add(added[-1])] if request is not None]
    fired += machine.end_of_input()

    assert sorted(one for request in fired for one in request.files) == sorted(added)
    assert all(one[1] == request.bucket_id for request in fired for one in request.files)
    assert machine.state() == []


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (CompactionStrategy(), "needs size_threshold_bytes=, checkpoints=, or both"),
        (CompactionStrategy(size_threshold_bytes=0), "size_threshold_bytes is 0"),
        (CompactionStrategy(checkpoints=-1), "checkpoints is -1"),
        (CompactionStrategy(checkpoints=True), "checkpoints is True"),
    ],
)
def test_a_strategy_that_makes_no_sense_is_refused(strategy: CompactionStrategy, message: str) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigurationError, match=message):
        strategy.checked()


# --- the compactor ----------------------------------------------------------------------------------------------


def request(*names: str) -> CompactionRequest:
    return CompactionRequest("b", [file(name) for name in names], [])


def made(bucket: str, target: str, sources: list[FileCommittable]) -> FileCommittable:
    return (PENDING, bucket, f"{target}.tmp", target, sum(source[4] for source in sources))


def work_off(machine: Compactor) -> None:
    while machine.has_work:
        machine.step(made)


def test_files_are_read_when_nothing_can_take_them_back() -> None:
    """The checkpoint that the request belongs to is complete; a later notification does as well."""
    machine = Compactor()
    machine.add(request(".a", ".b"))
    assert not machine.has_work
    machine.on_snapshot(1)
    machine.add(request(".c"))
    machine.on_snapshot(2)
    assert not machine.has_work

    machine.on_notification(1)
    work_off(machine)

    assert machine.take_results() == [
        made("b", "b/compacted-a", [file(".a"), file(".b")]),
        (DELETE, "b", "b/.a"),
        (DELETE, "b", "b/.b"),
    ]
    machine.on_notification(3)
    assert machine.has_work


def test_a_step_is_one_request() -> None:
    """Requests done by the next barrier are handed out, the others later; a step says how much it has read."""
    machine = Compactor()
    machine.add(request(".a", ".b"))
    machine.add(request(".c"))
    machine.on_snapshot(1)
    machine.on_notification(1)

    assert machine.step(made) == 10
    assert [one[0] for one in machine.take_results()] == [PENDING, DELETE, DELETE]
    assert machine.take_results() == []
    assert machine.has_work


def test_passed_through_committables_keep_their_place() -> None:
    """They come after the compacted file and before deletions; alone when there are no files."""
    machine = Compactor()
    machine.add(CompactionRequest("b", [file(".a")], [clean_up(".x")]))
    machine.add(CompactionRequest("b", [], [file("visible")]))
    machine.end_of_input()
    work_off(machine)

    assert machine.take_results() == [
        made("b", "b/compacted-a", [file(".a")]), clean_up(".x"), (DELETE, "b", "b/.a"), file("visible"),
    ]  # fmt: skip


def test_a_restore_submits_again_what_was_submitted() -> None:
    """Every request not handed out is submitted, done or not; one that was only filed waits for its notification."""
    machine = Compactor()
    machine.add(request(".a"))
    machine.add(request(".b"))
    machine.on_snapshot(1)
    machine.on_notification(1)
    machine.step(made)
    machine.add(request(".c"))
    state = machine.on_snapshot(2)

    restored = Compactor()
    restored.restore(state)
    work_off(restored)
    assert [one[3] for one in restored.take_results() if one[0] == PENDING] == ["b/compacted-a", "b/compacted-b"]

    restored.on_notification(2)
    work_off(restored)
    assert [one[3] for one in restored.take_results() if one[0] == PENDING] == ["b/compacted-c"]


def test_at_the_end_everything_is_submitted() -> None:
    """Requests that were collected, filed or submitted before, all of them."""
    machine = Compactor()
    for checkpoint_id, name in enumerate((".a", ".b", ".c"), start=1):
        machine.add(request(name))
        if checkpoint_id < 3:
            machine.on_snapshot(checkpoint_id)
    machine.on_notification(1)
    machine.end_of_input()
    work_off(machine)

    assert [one[3] for one in machine.take_results() if one[0] == PENDING] == [f"b/compacted-{one}" for one in "abc"]
    assert machine.on_snapshot(9) == []


def test_a_compacted_file_is_called_after_its_first_source() -> None:
    """The dot that hides the source is left out; a visible source keeps its name after the prefix."""
    assert compacted_path("b=1/.part-0") == "b=1/compacted-part-0"
    assert compacted_path("part-0") == "compacted-part-0"


# --- merging ----------------------------------------------------------------------------------------------------


def whole_file(format: Any, records: list[Any]) -> bytes:
    encoder, parts = PartEncoder(format), []
    writer = format.open_writer(parts.append)
    rows = encoder.encode(Batch(records))
    at = 0
    while at < len(records):
        at = writer.add(rows, at, len(records))
    writer.finish()
    return b"".join(parts)


def merged(format: Any, contents: list[bytes]) -> bytes:
    parts: list[bytes] = []
    merge_of(format)(contents, parts.append)
    return b"".join(parts)


def test_rows_are_joined_end_to_end() -> None:
    """The bytes are those of the sources."""
    assert merged(JsonLinesRowFormat(), [b"1\n2\n", b"3\n"]) == b"1\n2\n3\n"


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz"])
def test_compressed_text_can_be_joined(compression: Any) -> None:
    """Readers read on after the end of a stream."""
    format = BulkTextFormat(JsonLinesRowFormat(), compression)
    joined = merged(format, [whole_file(format, [1, 2]), whole_file(format, [3])])

    assert format.lines_of("joined", joined) == ["1", "2", "3"]
    if compression == "gzip":
        assert gzip.decompress(joined) == b"1\n2\n3\n"


def test_parquet_files_are_read_and_written_again() -> None:
    """One footer, full row groups, and the records in order."""
    pyarrow = pytest.importorskip("pyarrow")
    from operators.files.formats import import_pyarrow
    from operators.files.writing import ParquetFormat

    format = ParquetFormat({"n": int, "s": str}, row_group_rows=4)
    files = [[{"n": n, "s": str(n)} for n in range(start, stop)] for start, stop in ((0, 3), (3, 4), (4, 10))]
    joined = merged(format, [whole_file(format, rows) for rows in files])

    assert [json.loads(line)["n"] for line in format.lines_of("joined", joined)] == list(range(10))
    metadata = import_pyarrow().parquet.ParquetFile(pyarrow.BufferReader(joined)).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [4, 4, 2]


def test_a_format_that_nobody_can_merge_is_refused() -> None:
    """It is accepted once the format says how to merge."""

    class Opaque:
        is_bulk = True

    with pytest.raises(ConfigurationError, match="merge_files"):
        merge_of(Opaque())  # type: ignore[arg-type]

    class Mergeable(Opaque):
        def merge_files(self, contents: Any, write: Any) -> None:
            write(b"+".join(contents))

    assert merged(Mergeable(), [b"1", b"2"]) == b"1+2"
