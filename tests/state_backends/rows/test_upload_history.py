"""The bookkeeping of uploads, against a model that knows nothing but the log of what has happened."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from state_backends.rows import RestoredBase, UploadHistory
from state_backends.snapshots import FileStateHandle, StateScope
from tests.state_backends.rows.support import restored_base


def copy(name: str, checkpoint_id: int) -> FileStateHandle:
    """The physical copy of a data file that a checkpoint uploads."""
    return FileStateHandle(f"shared/{checkpoint_id}-{name}", StateScope.SHARED, 10, 0)


def files_of(checkpoint_id: int, *names: str) -> dict[str, FileStateHandle]:
    return {name: copy(name, checkpoint_id) for name in names}


@dataclass(frozen=True)
class Event:
    what: str
    checkpoint_id: int
    files: tuple[tuple[str, FileStateHandle], ...] = ()


def model_of(
    log: list[Event], restored: RestoredBase | None
) -> tuple[int | None, dict[int, dict[str, FileStateHandle]]]:
    """The base and what is remembered, told from the whole log: a checkpoint is remembered from its upload until it is
    aborted, subsumed, or a newer one is confirmed that was remembered itself."""
    known: dict[int, dict[str, FileStateHandle]] = {}
    confirmed = -1
    floor = -1
    if restored is not None:
        confirmed, known[restored.checkpoint_id] = restored.checkpoint_id, dict(restored.files)
    for event in log:
        number = event.checkpoint_id
        if event.what == "uploaded" and number >= floor and number > confirmed:
            known[number] = dict(event.files)
        elif event.what == "complete" and number in known and number > confirmed:
            confirmed = number
        elif event.what == "aborted":
            known.pop(number, None)
        elif event.what == "subsumed":
            known = {one: files for one, files in known.items() if one > number}
        elif event.what == "empty":
            floor = number
            known = {one: files for one, files in known.items() if one >= number}
        known = {one: files for one, files in known.items() if one >= confirmed}
    return (confirmed if confirmed in known else None), known


class Bookkeeping(RuleBasedStateMachine):
    """Checkpoints in any number under way; notices late, lost, twice and in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Event] = []
        self.restored: RestoredBase | None = None
        self.next_id = 1
        self.next_file = 1
        self.live: list[str] = []
        self.under_way: dict[int, tuple[dict[str, FileStateHandle], list[str]]] = {}

    @initialize(restore=st.booleans())
    def begin(self, restore: bool) -> None:
        if restore:
            self.restored = restored_base(1, "1.sst", "2.sst")
            self.live, self.next_id, self.next_file = ["1.sst", "2.sst"], 2, 3
        self.history = UploadHistory(self.restored)

    @rule(new=st.integers(0, 2), gone=st.integers(0, 2))
    def write(self, new: int, gone: int) -> None:
        """Flushes and compactions: names are never used again."""
        self.live = self.live[gone:] + [f"{self.next_file + i}.sst" for i in range(new)]
        self.next_file += new

    @rule(uses_base=st.booleans(), is_tracked=st.booleans())
    def begin_snapshot(self, uses_base: bool, is_tracked: bool) -> None:
        """The synchronous part. Savepoints take a number, and are never heard of by the history."""
        if is_tracked:
            base = dict(self.history.base()) if uses_base else {}
            self.under_way[self.next_id] = (base, list(self.live))
        self.next_id += 1

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def finish_upload(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.under_way)))
        base, live = self.under_way.pop(number)
        files = {name: base.get(name) or copy(name, number) for name in live}
        self.history.uploaded(number, files)
        self.log.append(Event("uploaded", number, tuple(files.items())))

    @rule(data=st.data(), what=st.sampled_from(["complete", "aborted", "subsumed"]))
    def notify(self, data: st.DataObject, what: str) -> None:
        """For any number: of a checkpoint, of a savepoint, of one that was never heard of."""
        number = data.draw(st.integers(0, self.next_id))
        if number in self.under_way and what == "complete":
            return
        self.under_way.pop(number, None)
        if what == "complete":
            self.history.complete(number)
        elif what == "aborted":
            self.history.abort(number)
        else:
            self.history.subsumed(number)
        self.log.append(Event(what, number))

    @rule()
    def empty_snapshot(self) -> None:
        self.history.restart(self.next_id)
        self.log.append(Event("empty", self.next_id))
        self.next_id += 1

    @invariant()
    def agrees_with_the_log(self) -> None:
        if not hasattr(self, "history"):
            return
        base, known = model_of(self.log, self.restored)
        self.history.validate()
        assert self.history.base_checkpoint == base
        assert self.history.tracked == tuple(sorted(known))
        assert dict(self.history.base()) == ({} if base is None else known[base])


class TestBookkeeping(Bookkeeping.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def history_with(*checkpoints: int) -> UploadHistory:
    """A history in which each of these checkpoints uploaded a file of its number."""
    history = UploadHistory()
    for number in checkpoints:
        history.uploaded(number, files_of(number, f"{number}.sst"))
    return history


def test_a_confirmation_makes_the_base_and_forgets_what_is_older() -> None:
    """I5: after complete(2), 2 is the base, 1 is forgotten and 3 still remembered."""
    history = history_with(1, 2, 3)
    history.complete(2)
    assert (history.base_checkpoint, history.tracked) == (2, (2, 3))
    assert dict(history.base()) == files_of(2, "2.sst")


def test_a_late_confirmation_changes_nothing() -> None:
    """I6: complete(1) after complete(2) leaves the base at 2."""
    history = history_with(1, 2)
    history.complete(2)
    before = (history.tracked, history.base_checkpoint, history.base())
    history.complete(1)
    history.complete(2)
    assert (history.tracked, history.base_checkpoint, history.base()) == before


def test_notices_of_savepoints_change_nothing() -> None:
    """I5: what was never tracked is neither a base nor forgotten."""
    history = history_with(1)
    history.complete(1)
    before = (history.tracked, history.base_checkpoint, history.base())
    history.complete(2)
    history.abort(3)
    assert (history.tracked, history.base_checkpoint, history.base()) == before


def test_what_was_aborted_is_no_base_even_if_it_is_confirmed_later() -> None:
    """I5: abort(2) forgets 2 for good."""
    history = history_with(1, 2)
    history.complete(1)
    history.abort(2)
    history.complete(2)
    assert (history.base_checkpoint, history.tracked) == (1, (1,))


def test_an_aborted_base_is_none_any_more() -> None:
    """A contradiction, but then nothing may refer to its files."""
    history = history_with(1)
    history.complete(1)
    history.abort(1)
    assert history.base_checkpoint is None
    assert not history.base()


def test_a_subsumed_base_without_a_newer_one_is_given_up() -> None:
    """The files of a subsumed checkpoint may be deleted at any time."""
    history = history_with(1)
    history.complete(1)
    history.subsumed(1)
    assert history.base_checkpoint is None


def test_an_upload_that_ends_after_a_newer_confirmation_is_not_remembered() -> None:
    """It can never be a base, so it would only take memory."""
    history = history_with(2)
    history.complete(2)
    history.uploaded(1, files_of(1, "1.sst"))
    assert history.tracked == (2,)


def test_an_empty_snapshot_ends_the_chain_for_those_under_way_too() -> None:
    """A checkpoint older than an empty one is no base after it, however late it is confirmed."""
    history = history_with(1)
    history.complete(1)
    history.restart(3)
    history.uploaded(2, files_of(2, "2.sst"))
    history.complete(2)
    assert history.base_checkpoint is None
    history.uploaded(4, files_of(4, "4.sst"))
    history.complete(4)
    assert history.base_checkpoint == 4


def test_the_history_keeps_its_own_copy() -> None:
    """Later changes of the caller to its dict do not show."""
    files = files_of(1, "1.sst")
    history = UploadHistory(RestoredBase("id", 1, files))
    files.clear()
    assert set(history.base()) == {"1.sst"}
