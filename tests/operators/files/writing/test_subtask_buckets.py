"""All buckets of a subtask, without an operator: how batches are divided, and what a restore makes of a list of states.
(The recorded scenarios of Flink's tests are replayed in ``tests/conformance``.)"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, StorageError
from operators.files.formats import TextRowFormat
from operators.files.writing import (
    Buckets,
    BucketState,
    BulkTextFormat,
    DefaultRollingPolicy,
    Format,
    OnCheckpointRollingPolicy,
    PartEncoder,
    PartFileInfo,
    PartNames,
    RecoverableWriter,
    RollingPolicy,
    TableRollingPolicy,
    UniqueNames,
)
from state_backends.files import MemoryFileSystem


class ByLetter(RollingPolicy):
    """Rolls before every record with an ``x``."""

    def should_roll_on_event(self, part: PartFileInfo, record: Any) -> bool:
        return "x" in record


class AskedForEach(DefaultRollingPolicy):
    """The default policy, asked about every record because it overrides the method that asks."""

    def should_roll_on_event(self, part: PartFileInfo, record: Any) -> bool:
        return super().should_roll_on_event(part, record)


class Sink:
    """Buckets on a file system of their own, or on another one's."""

    def __init__(
        self,
        policy: RollingPolicy,
        *,
        fs: MemoryFileSystem | None = None,
        format: Format | None = None,
        attempt: int = 1,
        subtask: int = 0,
    ) -> None:
        self.fs = MemoryFileSystem() if fs is None else fs
        self.encoder = PartEncoder(TextRowFormat() if format is None else format)
        self.writer = RecoverableWriter(self.fs, "/out", UniqueNames(1, attempt, subtask))
        self.buckets = Buckets(self.writer, self.encoder, policy, PartNames("part", "", subtask))

    def write(self, records: list[tuple[str, str]], now_ms: int = 0) -> None:
        texts = [text for _, text in records]
        self.buckets.write_each([bucket for bucket, _ in records], self.encoder.encode(Batch(texts)), texts, now_ms)

    def files(self) -> dict[str, bytes]:
        return {path: self.fs.read_bytes(path) for path in self.fs.walk_files("/out")}

    def parts(self) -> dict[str, bytes]:
        """The content of every part by target, hidden or not."""
        self.buckets.close_all_parts()
        self.buckets.snapshot(1)
        self.buckets.commit_up_to(1)
        return self.files()


RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), st.text("xyzä", max_size=4)), min_size=1, max_size=40)
POLICIES: dict[str, RollingPolicy] = {
    "by size": DefaultRollingPolicy(max_part_size_bytes=7),
    "asked for each": AskedForEach(max_part_size_bytes=7),
    "by letter": ByLetter(),
    "never": OnCheckpointRollingPolicy(),
}


def cut(records: list[tuple[str, str]], at: list[int]) -> list[list[tuple[str, str]]]:
    bounds = sorted({0, len(records), *(one % (len(records) + 1) for one in at)})
    return [records[start:stop] for start, stop in pairwise(bounds)]


@given(st.sampled_from(list(POLICIES)), RECORDS, st.lists(st.integers(0, 100), max_size=5))
def test_batches_mean_nothing(policy: str, records: list[tuple[str, str]], at: list[int]) -> None:
    """Every part has the number and the records that it has when records come one by one."""
    one_by_one, batched = Sink(POLICIES[policy]), Sink(POLICIES[policy])
    for record in records:
        one_by_one.write([record])
    for batch in cut(records, at):
        batched.write(batch)

    assert batched.parts() == one_by_one.parts()
    assert batched.buckets.max_part_counter == one_by_one.buckets.max_part_counter


@given(RECORDS)
def test_adding_up_sizes_is_asking_about_each_record(records: list[tuple[str, str]]) -> None:
    """The short cut for sizes closes the parts that the policy itself would close."""
    short, asked = Sink(POLICIES["by size"]), Sink(POLICIES["asked for each"])
    short.write(records)
    asked.write(records)

    assert short.parts() == asked.parts()


@given(RECORDS, st.lists(st.integers(0, 100), max_size=5), st.sampled_from([0, 3]))
def test_batches_mean_nothing_in_bulk(records: list[tuple[str, str]], at: list[int], times: int) -> None:
    """The bytes of a compressed file are those of its records, whatever the batches, and so is where it is cut."""
    policy = TableRollingPolicy(roll_on_checkpoint=True, max_part_size_bytes=100)
    records = [(bucket, text * 10_000 * times) for bucket, text in records]
    whole, batched = (Sink(policy, format=BulkTextFormat(TextRowFormat())) for _ in range(2))
    whole.write(records)
    for batch in cut(records, at):
        batched.write(batch)

    assert batched.parts() == whole.parts()


def test_a_part_exceeds_the_limit_by_one_record() -> None:
    """The size is looked at before a record is written: equal to the limit is not larger."""
    sink = Sink(DefaultRollingPolicy(max_part_size_bytes=4))
    sink.write([("", text) for text in ("a", "b", "cdefgh", "i", "j", "k")])

    assert list(sink.parts().values()) == [b"a\nb\ncdefgh\n", b"i\nj\nk\n"]


def test_a_batch_fits_if_its_last_byte_does() -> None:
    """With one byte more, the next records go to the next part, even an empty text without a line end."""
    policy, format = DefaultRollingPolicy(max_part_size_bytes=4), TextRowFormat(line_end="")
    for text, parts in (("abcd", 1), ("abcde", 2)):
        whole, one_by_one = Sink(policy, format=format), Sink(policy, format=format)
        whole.write([("", text), ("", "")])
        one_by_one.write([("", text)])
        one_by_one.write([("", "")])

        assert whole.parts() == one_by_one.parts()
        assert len(whole.files()) == parts


def test_a_new_bucket_starts_behind_the_parts_that_rolled_before_it_in_the_batch() -> None:
    """The order of the records gives the numbers, not the order of the groups."""
    sink = Sink(DefaultRollingPolicy(max_part_size_bytes=1))
    sink.write([("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")])

    assert sorted(sink.parts()) == ["/out/a/part-0-0", "/out/a/part-0-1", "/out/a/part-0-2", "/out/b/part-0-2"]


def test_an_oversized_part_is_closed_by_a_checkpoint() -> None:
    """The default policy leaves parts open over checkpoints, unless they are too large."""
    sink = Sink(DefaultRollingPolicy(max_part_size_bytes=3))
    sink.write([("small", "a"), ("large", "abcdef")])
    small, large = sorted(sink.buckets.snapshot(1), key=lambda state: state.bucket_id, reverse=True)

    assert small.in_progress is not None
    assert small.booked == []
    assert large.in_progress is None
    assert [known for known, _ in large.booked] == [1]


@pytest.mark.parametrize(("idle_ms", "closed"), [(9, False), (10, True)])
def test_inactivity_is_inclusive(idle_ms: int, closed: bool) -> None:
    """A part that was quiet for exactly the interval is closed; the last record's time counts, not the first's."""
    sink = Sink(DefaultRollingPolicy(rollover_interval_ms=1_000, inactivity_interval_ms=10))
    sink.write([("", "a")], now_ms=0)
    sink.write([("", "b")], now_ms=5)
    sink.buckets.on_processing_time(5 + idle_ms)

    assert (sink.buckets.active[""].part is None) is closed


@pytest.mark.parametrize(("age_ms", "closed"), [(9, False), (10, True)])
def test_age_is_inclusive(age_ms: int, closed: bool) -> None:
    """A part that is open for exactly the interval is closed, however busy; it counts from the first record."""
    sink = Sink(DefaultRollingPolicy(rollover_interval_ms=10, inactivity_interval_ms=1_000))
    sink.write([("", "a")], now_ms=0)
    sink.write([("", "b")], now_ms=5)
    sink.buckets.on_processing_time(age_ms)

    assert (sink.buckets.active[""].part is None) is closed


def test_a_restored_part_counts_as_quiet_since_it_was_created() -> None:
    """The time of the last record is not in the state."""
    policy = DefaultRollingPolicy(rollover_interval_ms=1_000, inactivity_interval_ms=10)
    sink = Sink(policy)
    sink.write([("", "a")], now_ms=100)
    sink.write([("", "b")], now_ms=105)
    states = sink.buckets.snapshot(1)
    restored = Sink(policy, fs=sink.fs, attempt=2)
    restored.buckets.initialize(states, [1])

    part = restored.buckets.active[""].part
    assert part is not None
    assert (part.created_at_ms, part.last_update_ms) == (100, 100)
    restored.buckets.on_processing_time(110)
    assert restored.buckets.active[""].part is None


def test_states_of_older_versions_are_read() -> None:
    """They have no open part, for every checkpoint closed it."""
    sink = Sink(OnCheckpointRollingPolicy())
    sink.write([("b", "1")])
    [(bucket_id, booked, _)] = sink.buckets.snapshot(3)
    restored = Sink(OnCheckpointRollingPolicy(), fs=sink.fs, attempt=2)
    restored.buckets.initialize([BucketState(*(bucket_id, booked))], [1])

    assert list(restored.files()) == ["/out/b/part-0-0"]


def test_two_open_parts_of_one_bucket_both_come_out() -> None:
    """After scaling in, the later one is closed, and committed with the next checkpoint; the other goes on."""
    policy, fs = DefaultRollingPolicy(), MemoryFileSystem()
    states = []
    for subtask in range(2):
        sink = Sink(policy, fs=fs, subtask=subtask)
        sink.write([("b", str(subtask))])
        states += sink.buckets.snapshot(1)
    merged = Sink(policy, fs=fs, attempt=2)
    merged.buckets.initialize(states, [1, 1])
    merged.write([("b", "2")])

    assert merged.parts() == {"/out/b/part-0-0": b"0\n2\n", "/out/b/part-1-0": b"1\n"}


def test_bulk_needs_a_policy_that_rolls_on_every_checkpoint() -> None:
    """A file without its ending cannot be in a checkpoint."""
    for policy in (DefaultRollingPolicy(), TableRollingPolicy(roll_on_checkpoint=False), ByLetter()):
        with pytest.raises(ConfigurationError, match="cannot keep a file open over a checkpoint"):
            Sink(policy, format=BulkTextFormat(TextRowFormat()))
    Sink(TableRollingPolicy(roll_on_checkpoint=True), format=BulkTextFormat(TextRowFormat()))


def test_a_part_that_was_committed_since_cannot_be_resumed() -> None:
    """Only the buckets report it; the file sink finds a way before that."""
    sink = Sink(DefaultRollingPolicy())
    sink.write([("", "a")])
    states = sink.buckets.snapshot(1)
    sink.parts()
    restored = Sink(DefaultRollingPolicy(), fs=sink.fs, attempt=2)

    with pytest.raises(StorageError, match="was open in the restored checkpoint, with 2 bytes, but is gone"):
        restored.buckets.initialize(states, [1])
