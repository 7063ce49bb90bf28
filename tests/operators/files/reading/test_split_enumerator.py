"""Splits and their readers: cutting, ids, the order of assignment, waiting, taking back, checkpoints."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import JobChangedError
from operators.files.reading import split_range
from operators.files.reading.split_coordinator import (
    DISCOVERED,
    LIST,
    LISTED,
    NO_MORE_SPLITS,
    REQUEST,
    SPLIT,
    FileSplitCoordinator,
    plain_splits,
)
from operators.files.reading.split_enumerator import (
    Assign,
    AssignmentTracker,
    FileSplitEnumerator,
    NoMoreSplits,
    SplitAssigner,
)
from operators.files.reading.splits import (
    NO_OFFSET,
    FileSourceSplit,
    FileStatus,
    SplitRange,
    record_positions,
    regular_blocks,
    split_id,
    splits_of,
)


def split(name: str, path: str | None = None) -> FileSourceSplit:
    return FileSourceSplit(name, path or f"/{name}", 0, 1)


A, B, C, D = (split(name) for name in "abcd")


# --- splits -----------------------------------------------------------------------------------------------


@given(st.text(max_size=9), st.integers(0, 99), st.none() | st.integers(0, 99))
def test_the_id_of_a_split_says_where_it_lies(path: str, start: int, length: int | None) -> None:
    """Whatever the path looks like, also like an id."""
    end = None if length is None else start + length
    for one in (path, f"{path}@{start}+{length or ''}"):
        assert split_range(split_id(one, start, end)) == SplitRange(one, start, end)


def test_a_whole_file_is_called_by_its_path() -> None:
    """Thus a source that does not cut files keeps the ids that it always had."""
    assert split_id("/in/a.csv", 0, None) == "/in/a.csv"
    assert split_id("/in/a.csv", 0, 7) == "/in/a.csv@0+7"
    assert split_range("/in/a.csv") == SplitRange("/in/a.csv", 0, None)


@pytest.mark.parametrize(
    ("blocks", "count"),
    [
        ([(0, 4), (4, 4), (8, 2)], 3),
        ([(4, 4), (0, 4), (8, 2)], 3),
        ([(0, 4), (5, 5)], 1),
        ([(0, 5), (4, 6)], 1),
        ([(0, 4), (4, 4)], 1),
        ([(0, 4), (4, 6), (10, 0)], 1),
        ([(1, 9)], 1),
        ([], 1),
    ],
)
def test_a_file_is_cut_at_blocks_that_tile_it(blocks: list[tuple[int, int]], count: int) -> None:
    """Gaps, overlaps, empty blocks and a wrong length make it one split; the last split has no end."""
    splits = splits_of(FileStatus("f", 10, tuple(blocks)), splittable=True)

    assert len(splits) == count
    assert [one.offset for one in splits] == [0, 4, 8][:count]
    assert sum(one.length for one in splits) == 10
    assert split_range(splits[-1].id).end is None
    assert splits_of(FileStatus("f", 10, tuple(blocks)), splittable=False)[0].id == "f"


@given(st.integers(0, 200), st.integers(1, 50))
def test_regular_blocks_tile(length: int, size: int) -> None:
    """A file is cut into as many splits as there are blocks in it."""
    splits = splits_of(FileStatus("f", length, regular_blocks(length, size)), splittable=True)

    assert len(splits) == max(1, -(-length // size))


def test_positions_count_the_record_itself() -> None:
    """The position of a record is the place after it, where reading goes on; the offset may be unknown."""
    assert record_positions(100, 5, 2) == [(100, 6), (100, 7)]
    assert record_positions(NO_OFFSET, 0, 1) == [(-1, 1)]


# --- enumerators ------------------------------------------------------------------------------------------


def test_the_simple_assigner_is_a_stack_and_the_other_one_a_queue() -> None:
    """Both give their splits in the order in which they were added."""
    lifo, fifo = SplitAssigner(), SplitAssigner("fifo")
    for assigner in (lifo, fifo):
        assigner.add_splits([A, B])
        assigner.add_splits([C])
        assert assigner.remaining() == [A, B, C]
    assert [lifo.next_split() for _ in range(4)] == [C, B, A, None]
    assert [fifo.next_split() for _ in range(4)] == [A, B, C, None]


def test_a_bounded_enumerator_answers_registered_readers_only() -> None:
    """A request of any other reader takes no split; once no splits are left, each registered reader is told so."""
    enumerator = FileSplitEnumerator([A])

    assert enumerator.request_split(7) == []
    enumerator.register_reader(7)
    assert enumerator.request_split(7) == [Assign(7, A)]
    assert enumerator.request_split(7) == [NoMoreSplits(7)]
    enumerator.add_splits_back([A])
    enumerator.unregister_reader(7)
    assert enumerator.request_split(7) == []
    assert enumerator.snapshot().splits == (A,)
    assert enumerator.discover([B]) == enumerator.serve() == []


def test_a_waiting_reader_is_served_once() -> None:
    """Asking twice is asking once, and the order is that of the first requests."""
    enumerator = FileSplitEnumerator([], ())
    for reader in (1, 2):
        enumerator.register_reader(reader)
    assert [enumerator.request_split(reader) for reader in (2, 1, 2)] == [[], [], []]

    assert enumerator.discover([A]) == [Assign(2, A)]
    assert enumerator.discover([A, B, C]) == [Assign(1, C)]
    assert enumerator.snapshot() == ((B,), ("/a", "/b", "/c"))


def test_splits_that_come_back_wait_for_the_next_request() -> None:
    """They wait until the driver of the enumerator lets it serve."""
    enumerator = FileSplitEnumerator([], ())
    enumerator.register_reader(1)
    enumerator.request_split(1)
    enumerator.add_splits_back([A, B])

    assert enumerator.snapshot().splits == (A, B)
    assert enumerator.serve() == [Assign(1, B)]
    assert enumerator.request_split(1) == [Assign(1, A)]


def test_paths_of_the_first_enumeration_are_seen() -> None:
    """They count as seen also after a restore, and also when their splits were assigned long ago."""
    enumerator = FileSplitEnumerator([A], ())
    enumerator.register_reader(1)
    enumerator.request_split(1)
    enumerator = FileSplitEnumerator(*enumerator.snapshot())

    assert enumerator.discover([A, split("a2", "/a"), D]) == []
    assert enumerator.snapshot() == ((D,), ("/a", "/d"))


def test_what_was_assigned_since_a_checkpoint_is_taken_back() -> None:
    """A reader keeps the splits in a completed checkpoint, and other readers keep theirs."""
    tracker = AssignmentTracker()
    tracker.assigned(1, A)
    tracker.checkpoint(1)
    tracker.assigned(1, B)
    tracker.assigned(2, C)
    tracker.checkpoint(2)
    tracker.assigned(1, D)
    tracker.completed(1)

    assert tracker.take_back(1, 2) == [D]
    assert tracker.take_back(1, 1) == [B]
    assert tracker.take_back(1, 1) == []
    assert tracker.take_back(2, None) == [C]


def test_before_the_first_checkpoint_everything_is_taken_back() -> None:
    """A reader that goes back to its beginning has no splits."""
    tracker = AssignmentTracker()
    tracker.assigned(1, A)
    tracker.checkpoint(4)
    tracker.assigned(1, B)

    assert tracker.take_back(1, None) == [A, B]


# --- the coordinator --------------------------------------------------------------------------------------


class Gateways:
    def __init__(self, parallelism: int = 3) -> None:
        self.parallelism = parallelism
        self.sent: list[tuple[int, Any]] = []

    def send(self, subtask: int, event: Any) -> None:
        self.sent.append((subtask, event))

    def take(self) -> list[tuple[int, Any]]:
        sent, self.sent = self.sent, []
        return sent


def started(*, continuous: bool = False, state: tuple[int, Any] | None = None) -> tuple[FileSplitCoordinator, Gateways]:
    coordinator, gateways = FileSplitCoordinator(partial(SplitAssigner, "fifo"), is_continuous=continuous), Gateways()
    if state is not None:
        coordinator.reset_to_checkpoint(*state)
    coordinator.start(gateways)
    for subtask in range(gateways.parallelism):
        coordinator.subtask_ready(subtask)
    return coordinator, gateways


def test_the_first_listing_is_asked_for_and_awaited() -> None:
    """Readers that ask before the listing are answered in their order; a second listing is ignored."""
    coordinator, gateways = started()
    assert gateways.take() == [(0, (LIST,))]
    for reader in (2, 1, 0):
        coordinator.handle_event(reader, (REQUEST,))
    assert gateways.take() == []

    coordinator.handle_event(0, (LISTED, plain_splits([A, B])))
    coordinator.handle_event(0, (LISTED, plain_splits([A, B])))
    assert gateways.take() == [(2, (SPLIT, tuple(A))), (1, (SPLIT, tuple(B))), (0, (NO_MORE_SPLITS,))]


def test_a_listing_that_died_with_its_reader_is_asked_for_again() -> None:
    """The next attempt of subtask 0 gets the request; a request of a failed reader is forgotten."""
    coordinator, gateways = started()
    coordinator.handle_event(0, (REQUEST,))
    gateways.take()
    coordinator.subtask_reset(0, None)
    coordinator.subtask_ready(0)
    assert gateways.take() == [(0, (LIST,))]

    coordinator.handle_event(0, (LISTED, plain_splits([A])))
    assert gateways.take() == []


def test_a_restored_enumerator_lists_nothing() -> None:
    """Its splits are those of the checkpoint; one that was taken before there was a listing asks for it."""
    coordinator, _ = started()
    before = coordinator.checkpoint(1)
    coordinator.handle_event(0, (LISTED, plain_splits([A, B])))
    coordinator.handle_event(1, (REQUEST,))
    state = coordinator.checkpoint(2)

    again, gateways = started(state=(2, state))
    assert gateways.take() == []
    again.handle_event(0, (REQUEST,))
    assert gateways.take() == [(0, (SPLIT, tuple(B)))]
    _, gateways = started(state=(1, before))
    assert gateways.take() == [(0, (LIST,))]


def test_lost_splits_go_to_whoever_waits() -> None:
    """The splits that a failed reader had got since its checkpoint are handed out again at once."""
    coordinator, gateways = started(continuous=True)
    coordinator.handle_event(0, (LISTED, plain_splits([A, B])))
    coordinator.handle_event(1, (REQUEST,))
    coordinator.checkpoint(1)
    coordinator.notify_checkpoint_complete(1)
    coordinator.handle_event(1, (REQUEST,))
    coordinator.handle_event(2, (REQUEST,))
    gateways.take()

    coordinator.subtask_reset(1, 1)
    assert gateways.take() == [(2, (SPLIT, tuple(B)))]


def test_discovery_passes_before_the_first_listing_count_for_nothing() -> None:
    """There is no enumerator yet that could remember the files they found."""
    coordinator, gateways = started(continuous=True)
    coordinator.handle_event(0, (DISCOVERED, plain_splits([A])))
    coordinator.handle_event(1, (REQUEST,))
    assert gateways.take() == [(0, (LIST,))]
    coordinator.handle_event(0, (LISTED, plain_splits([A])))
    coordinator.handle_event(0, (DISCOVERED, plain_splits([A, B])))
    coordinator.handle_event(2, (REQUEST,))

    assert gateways.take() == [(1, (SPLIT, tuple(A))), (2, (SPLIT, tuple(B)))]


def test_a_bounded_source_does_not_become_continuous() -> None:
    """It has no record of the files it has read; the other way round loses nothing."""
    coordinator, _ = started()
    coordinator.handle_event(0, (LISTED, plain_splits([A])))
    with pytest.raises(JobChangedError, match="would read them again"):
        started(continuous=True, state=(1, coordinator.checkpoint(1)))
    coordinator, _ = started(continuous=True)
    coordinator.handle_event(0, (LISTED, plain_splits([A])))
    other, gateways = started(state=(1, coordinator.checkpoint(1)))
    for _ in range(2):
        other.handle_event(1, (REQUEST,))
    assert [event for _, event in gateways.take()] == [(SPLIT, tuple(A)), (NO_MORE_SPLITS,)]


READERS = st.integers(0, 2)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), READERS),
        st.tuples(st.just("checkpoint"), st.booleans()),
        st.tuples(st.just("fail"), READERS),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("file"), st.just(0)),
    ),
    max_size=30,
)


@given(EVENTS, st.booleans())
def test_every_split_is_with_one_reader_or_with_the_enumerator(events: list[tuple[str, int]], continuous: bool) -> None:
    """Whatever fails and whichever checkpoints complete: no split is lost, and none is in two places."""
    coordinator, gateways = started(continuous=continuous)
    everything = [A, B, C, D]
    coordinator.handle_event(0, (LISTED, plain_splits(everything)))
    held: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    # The newest completed checkpoint: id, state of the enumerator, and what the readers had.
    complete: tuple[int, Any, dict[int, list[Any]]] | None = None
    number = 0

    def deliver() -> None:
        for reader, (kind, *content) in gateways.take():
            if kind == SPLIT:
                held[reader].append(content[0])

    for what, value in events:
        if what == "request":
            coordinator.handle_event(value, (REQUEST,))
        elif what == "file" and continuous:
            everything.append(split(f"f{len(everything)}"))
            coordinator.handle_event(0, (DISCOVERED, plain_splits(everything)))
        elif what == "checkpoint":
            number += 1
            state = coordinator.checkpoint(number)
            if value:
                complete = (number, state, {reader: list(splits) for reader, splits in held.items()})
                coordinator.notify_checkpoint_complete(number)
        elif what == "fail":
            coordinator.subtask_reset(value, None if complete is None else complete[0])
            held[value] = [] if complete is None else list(complete[2][value])
            coordinator.subtask_ready(value)
        elif what == "restart":
            coordinator.reset_to_checkpoint(*(None, None) if complete is None else complete[:2])
            held = {reader: [] if complete is None else list(complete[2][reader]) for reader in held}
            for reader in held:
                coordinator.subtask_ready(reader)
            if complete is None:
                coordinator.handle_event(0, (LISTED, plain_splits(everything)))
            else:
                coordinator.handle_event(0, (DISCOVERED, plain_splits(everything)))
        deliver()
    state = coordinator.checkpoint(number + 1)
    everywhere = [tuple(one) for one in state[0]] + [tuple(one) for splits in held.values() for one in splits]
    assert sorted(everywhere) == sorted(map(tuple, everything))
