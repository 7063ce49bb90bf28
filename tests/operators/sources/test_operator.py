"""The source operator: split assignment, turns, event time, restore, batch size independence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobChangedError, UserFunctionError
from engine.elements.source import SourceContext
from operators.sources import CollectionSource, GeneratorSource, Pause, SequenceSource, SourceOperator
from operators.time import WatermarkStrategy
from tests.operators.harness import START_NS, Checkpoint, Harness, read_all, stamps_of

MS = 1_000_000
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(0, lambda value: value).with_interval_ns(4_000)


def flat(events: list[Any]) -> list[Any]:
    """Records with timestamps and events in order, batches dissolved: they mean nothing."""
    out: list[Any] = []
    for event in events:
        if isinstance(event, Batch):
            out += list(zip(event.values, stamps_of(event), strict=True))
        else:
            out.append(event)
    return out


def records(events: list[Any]) -> list[Any]:
    return [value for event in events if isinstance(event, Batch) for value in event.values]


def test_splits_are_dealt_out_to_subtasks() -> None:
    """Subtask s of p reads the splits s, s + p, ...; a subtask without a split ends at once."""
    source = CollectionSource.of_splits("a", "b", "c")

    read = [records(read_all(Harness(SourceOperator(source), subtask=subtask, parallelism=4))) for subtask in range(4)]

    assert read == [["a"], ["b"], ["c"], []]


def test_splits_take_turns_whatever_the_batch_size() -> None:
    """Each split reads its turn, however the turn is cut into batches; the last one left reads on."""
    source = CollectionSource.of_splits("aaaaa", "bb", "c")

    for batch_size in (1, 2, 3, 100):
        harness = Harness(SourceOperator(source, records_per_turn=2))
        assert records(read_all(harness, batch_size)) == list("aabbcaaa")


def test_event_times_are_stamped() -> None:
    """The strategy's function gives every record its timestamp."""
    harness = Harness(SourceOperator(SequenceSource(5, 8), WatermarkStrategy.no_watermarks(lambda value: value * 2)))

    assert read_all(harness) == [Batch([5, 6, 7], [10, 12, 14])]


def test_the_watermark_is_the_minimum_over_splits() -> None:
    """A split with older records holds the watermark back until it has ended."""
    source = CollectionSource.of_splits([100, 101, 102, 103, 104, 105, 106, 107], [1, 2])
    harness = Harness(SourceOperator(source, STRATEGY, records_per_turn=1))

    events = flat(read_all(harness, batch_size=1))

    assert events[:6] == [(100, 100), (1, 1), (101, 101), (2, 2), ("watermark", 1), (102, 102)]
    assert [event for event in events if event[0] == "watermark"] == [("watermark", 1), ("watermark", 104)]


def test_an_idle_split_does_not_hold_back_the_others() -> None:
    """A split that pauses for longer than the timeout leaves the minimum; when all splits do, the stream is idle."""
    source = CollectionSource.of_splits([1, Pause(40), 2], [100, Pause(10), 200, Pause(80), 300])
    strategy = STRATEGY.with_interval_ns(MS).with_idleness(5)
    harness = Harness(SourceOperator(source, strategy))

    assert flat(read_all(harness, cost_ns=1)) == [
        (1, 1),
        (100, 100),
        ("watermark", 0),
        ("idle", True),
        ("idle", False),
        (200, 200),
        ("watermark", 199),
        ("idle", True),
        ("idle", False),
        (2, 2),
        ("idle", True),
        ("idle", False),
        (300, 300),
    ]


@pytest.mark.parametrize("cut_ms", [6, 8, 20])
def test_idleness_survives_a_restore(cut_ms: int) -> None:
    """A split that was idle at the snapshot, or on its way to it, does not hold back the minimum again afterwards."""
    strategy = STRATEGY.with_interval_ns(MS).with_idleness(5)
    source = CollectionSource.of_splits([1, Pause(400), 2], list(range(100, 200)))

    def watermarks(harness: Harness, until_ms: int) -> list[Any]:
        operator = harness.operator
        assert isinstance(operator, SourceOperator)
        begin_ns = harness.context.now_ns
        while harness.context.now_ns < begin_ns + until_ms * MS:
            assert operator.emit_next(1) == 1
            harness.advance_to_ns(harness.context.now_ns + MS)
        return [event for event in flat(harness.take()) if event[0] in ("watermark", "idle")]

    undisturbed = watermarks(Harness(SourceOperator(source, strategy)), 60)
    first = Harness(SourceOperator(source, strategy))
    before = watermarks(first, cut_ms)

    restored = Harness(SourceOperator(source, strategy), restored=first.snapshot(1), now_ns=5 * START_NS)
    after = watermarks(restored, 60 - cut_ms)

    assert after[0] == before[-1]  # repeated
    assert before + after[1:] == undisturbed
    assert len(undisturbed) > 40


def test_a_stream_that_was_idle_says_so_again() -> None:
    """When all splits were idle at the snapshot, downstream learns that with the repeated watermark."""
    strategy = STRATEGY.with_interval_ns(MS).with_idleness(5)
    source = CollectionSource([7, Pause(100), 9])
    first = Harness(SourceOperator(source, strategy))
    assert isinstance(first.operator, SourceOperator)
    assert [first.operator.emit_next(1), first.operator.emit_next(1)] == [1, 0]
    first.advance_to_ns(START_NS + 20 * MS)
    assert flat(first.take())[-2:] == [("watermark", 6), ("idle", True)]

    restored = Harness(SourceOperator(source, strategy), restored=first.snapshot(1), now_ns=5 * START_NS)
    assert isinstance(restored.operator, SourceOperator)
    assert restored.operator.emit_next(1) == 0

    assert flat(restored.take()) == [("watermark", 6), ("idle", True)]


def test_pauses_end_on_time() -> None:
    """``emit_next`` says 0 during a pause and ``available_at_ns`` when it is over."""
    harness = Harness(SourceOperator(CollectionSource(["a", Pause(3), "b"])))
    source = harness.operator
    assert isinstance(source, SourceOperator)

    assert [source.emit_next(9), source.emit_next(9)] == [1, 0]
    assert source.available_at_ns(START_NS) == START_NS + 3 * MS
    harness.advance_to_ns(START_NS + 3 * MS)
    assert [source.emit_next(9), source.emit_next(9)] == [1, None]


def test_another_split_is_read_during_a_pause() -> None:
    """Others take the turn of a pausing split; a timer cuts them short when the pause is over."""
    harness = Harness(SourceOperator(CollectionSource.of_splits([1, Pause(1), 2], list(range(10, 30)))))
    source = harness.operator
    assert isinstance(source, SourceOperator)

    assert source.emit_next(2) == 1
    assert source.emit_next(2) == 2
    assert records(harness.take()) == [1, 10, 11]
    assert harness.context.timers == [START_NS + MS]


SPLITS = st.lists(st.lists(st.integers(0, 99), max_size=12), min_size=1, max_size=3)


@given(SPLITS, st.integers(1, 5), st.integers(2, 9))
def test_output_does_not_depend_on_the_batch_size(splits: list[list[int]], turn: int, batch_size: int) -> None:
    """Records, timestamps and watermarks come in the same order for batches of 1 and of any size."""

    def run(size: int) -> list[Any]:
        source = CollectionSource.of_splits(*splits)
        return flat(read_in_slices(Harness(SourceOperator(source, STRATEGY, records_per_turn=turn)), size))

    assert run(batch_size) == run(1)


def read_in_slices(harness: Harness, batch_size: int, cost_ns: int = 1_000) -> list[Any]:
    """Like the runtime: the records of a slice are read when its time is over, or when a timer cuts it."""
    source, context = harness.operator, harness.context
    assert isinstance(source, SourceOperator)
    while True:
        end_ns = context.now_ns + batch_size * cost_ns
        if context.timers:
            end_ns = min(end_ns, context.timers[0])
        wanted = (end_ns - context.now_ns) // cost_ns
        context.now_ns = end_ns
        while wanted:
            count = source.emit_next(wanted)
            if count is None:
                return harness.output.events
            wanted -= count
        harness.advance_to_ns(end_ns)


@given(SPLITS, st.integers(1, 4), st.integers(0, 20), st.integers(1, 4))
def test_a_restore_continues_exactly(splits: list[list[Any]], turn: int, calls: int, batch_size: int) -> None:
    """Restored after any number of reads, the source goes on with the very next record of the same split."""
    source = CollectionSource.of_splits(*splits)
    whole = records(read_all(Harness(SourceOperator(source, records_per_turn=turn)), 1))
    harness = Harness(SourceOperator(source, records_per_turn=turn))
    operator = harness.operator
    assert isinstance(operator, SourceOperator)
    for _ in range(calls):
        operator.emit_next(batch_size)
    before = harness.take_values()

    restored = Harness(SourceOperator(source, records_per_turn=turn), restored=harness.snapshot(1))

    assert before + records(read_all(restored)) == whole


@given(st.integers(1, 60), st.integers(1, 9))
def test_watermarks_continue_on_the_same_grid(reads: int, batch_size: int) -> None:
    """Watermarks come behind the same records with a restart in between, after the last one is repeated."""
    source = SequenceSource(0, 60)

    def harness(restored: Checkpoint | None, now_ns: int) -> Harness:
        return Harness(SourceOperator(source, STRATEGY), restored=restored, now_ns=now_ns)

    undisturbed = flat(read_all(harness(None, START_NS), 1))
    first = harness(None, START_NS)
    operator = first.operator
    assert isinstance(operator, SourceOperator)
    for _ in range(reads):
        operator.emit_next(1)
        first.advance_to_ns(first.context.now_ns + 1_000)
    second = harness(first.snapshot(1), START_NS * 3 + 12_345)
    before, after = flat(first.take()), flat(read_all(second, 1))
    marks = [event for event in before if event[0] == "watermark"]

    if marks and after:
        assert after.pop(0) == marks[-1]
    assert before + after == undisturbed


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3), (3, 2)])
def test_splits_survive_a_change_of_parallelism(before: int, after: int) -> None:
    """After a rescale every split is read on from its position by exactly one subtask."""
    source = CollectionSource.of_splits(*[[f"{split}{number}" for number in range(6)] for split in "abcde"])
    checkpoint = Checkpoint(1)
    seen: list[str] = []
    for subtask in range(before):
        harness = Harness(SourceOperator(source, STRATEGY_LEN, records_per_turn=2), subtask=subtask, parallelism=before)
        operator = harness.operator
        assert isinstance(operator, SourceOperator)
        operator.emit_next(3 + subtask)
        harness.snapshot(1, checkpoint)
        seen += harness.take_values()
    for subtask in range(after):
        harness = Harness(SourceOperator(source, STRATEGY_LEN), subtask=subtask, parallelism=after, restored=checkpoint)
        seen += records(read_all(harness))

    assert sorted(seen) == [f"{split}{number}" for split in "abcde" for number in range(6)]


STRATEGY_LEN = WatermarkStrategy.for_monotonous_timestamps(len)


def test_a_source_that_is_new_in_a_restored_job_starts() -> None:
    """A source without state in the checkpoint reads from the beginning."""
    harness = Harness(SourceOperator(SequenceSource(0, 3)), restored=Checkpoint(7))

    assert records(read_all(harness)) == [0, 1, 2]


def test_finished_splits_stay_finished() -> None:
    """A restored source neither reads a finished split again nor opens it."""
    source = CollectionSource.of_splits("a", "bbb")
    harness = Harness(SourceOperator(source, records_per_turn=1))
    operator = harness.operator
    assert isinstance(operator, SourceOperator)
    while operator.emit_next(1):
        if records(harness.output.events) == list("abb"):
            break
    only_second = CollectionSource.of_splits([], "bbb")

    restored = Harness(SourceOperator(only_second), restored=harness.snapshot(1))

    assert records(read_all(restored)) == ["b"]


def test_errors_of_the_source_pass_through() -> None:
    """A failing generator function names the operator of the job."""

    def fail(start: int, stop: int) -> list[int]:
        raise IndexError(start)

    harness = Harness(SourceOperator(GeneratorSource(fail, 5)))

    with pytest.raises(UserFunctionError, match="make_batch of operator 'op' raised IndexError"):
        read_all(harness)


class NeverReady:
    """A reader that says there is a record and then has none."""

    def read(self, max_records: int) -> Batch:
        return Batch([])

    def position(self) -> None:
        return None

    def available_at_ns(self, now_ns: int) -> int:
        return now_ns

    def close(self) -> None:
        pass


class NeverReadySource:
    def splits(self, context: SourceContext) -> list[str]:
        return ["only"]

    def open_split(self, split: str, position: Any, context: SourceContext) -> NeverReady:
        return NeverReady()


def test_a_reader_that_breaks_the_contract_does_not_spin() -> None:
    """A source that is always ready with nothing is an error instead of an endless loop."""
    harness = Harness(SourceOperator(NeverReadySource()))

    with pytest.raises(UserFunctionError, match="says there are records, read\\(\\) returns none"):
        read_all(harness)


def test_impossible_arguments_are_refused() -> None:
    """Turns need at least one record, watermarks need timestamps."""
    with pytest.raises(ConfigurationError, match="records_per_turn is 0; it must be a whole number from 1"):
        SourceOperator(SequenceSource(0, 1), records_per_turn=0)
    harness = Harness(SourceOperator(SequenceSource(0, 1), WatermarkStrategy.for_monotonous_timestamps()))
    with pytest.raises(ConfigurationError, match="its records have no timestamps"):
        read_all(harness)


def test_readers_are_closed() -> None:
    """Closing the operator closes every reader, also in the middle of a split."""
    closed = []

    class Closing(NeverReady):
        def read(self, max_records: int) -> Batch:
            return Batch([1])

        def close(self) -> None:
            closed.append(True)

    class ClosingSource(NeverReadySource):
        def open_split(self, split: str, position: Any, context: SourceContext) -> NeverReady:
            return Closing()

    harness = Harness(SourceOperator(ClosingSource()))
    operator = harness.operator
    assert isinstance(operator, SourceOperator)
    operator.emit_next(1)

    harness.close()
    harness.close()

    assert closed == [True]


def test_a_split_that_the_source_has_gained_is_read() -> None:
    """Files that came since the checkpoint are input, too; older files are read on from their positions."""
    before = Harness(SourceOperator(CollectionsByName({"one": "abc"})))
    assert isinstance(before.operator, SourceOperator)
    assert before.operator.emit_next(1) == 1

    after = Harness(SourceOperator(CollectionsByName({"one": "abc", "two": "xy"})), restored=before.snapshot(1))

    assert sorted(records(read_all(after))) == ["b", "c", "x", "y"]


def test_a_split_that_the_source_has_lost_is_refused() -> None:
    """Unread input that is gone is an error; input that was read to its end may be gone."""
    before = Harness(SourceOperator(CollectionsByName({"one": "abc", "two": ""})))
    assert isinstance(before.operator, SourceOperator)
    assert before.operator.emit_next(1) == 1
    snapshot = before.snapshot(1)

    with pytest.raises(JobChangedError, match=r"was reading one, which it does not have any more"):
        Harness(SourceOperator(CollectionsByName({"two": ""})), restored=snapshot)


class CollectionsByName:
    """A source whose splits have names of their own, as files have."""

    def __init__(self, collections: dict[str, str]) -> None:
        self._collections = collections

    def splits(self, context: SourceContext) -> list[str]:
        return list(self._collections)

    def open_split(self, split: str, position: Any, context: SourceContext) -> Any:
        """The items after ``position``."""
        return CollectionSource(list(self._collections[split])).open_split("collection-0-of-1", position, context)
