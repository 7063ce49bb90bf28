"""The bookkeeping of log and materialisations: examples rule by rule, and a machine with a merciless job manager."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from state_backends.changelog.history import Cleanup, LogHistory


def logged(history: LogHistory, *, upload: bool = True) -> int:
    """One more segment of ten changes."""
    first = history.sealed(history.end + 10)
    if upload:
        history.uploaded(first)
    return first


def handed(history: LogHistory, checkpoint_id: int, *, full: bool = False) -> tuple[int, bool, set[int]]:
    """A whole snapshot: its materialisation, whether that is new, and its new segments."""
    plan = history.begin_snapshot(checkpoint_id, full=full)
    for first in plan.segments:
        if not history.is_uploaded(first):
            history.uploaded(first, checkpoint_id)
    brought, _ = history.snapshot_finished(checkpoint_id)
    return plan.materialization, brought.materialization_is_new, set(brought.new_segments)


def materialized(history: LogHistory) -> int:
    """A whole materialisation in the background."""
    number = history.begin_materialization()
    history.materialized()
    return number


def test_a_file_is_new_until_a_checkpoint_with_it_completes() -> None:
    """C3: files of pending checkpoints are uploaded again; files of a completed one are only referred to."""
    history = LogHistory()
    logged(history)
    assert handed(history, 1) == (0, False, {0})
    logged(history)
    assert handed(history, 2) == (0, False, {0, 10})
    assert history.complete(1).confirmed_segments == (0,)
    assert handed(history, 3) == (0, False, {10})


def test_changes_made_while_a_materialisation_is_written_are_behind_it() -> None:
    """It holds the log as of its start: snapshots still refer to the segments that were cut meanwhile."""
    history = LogHistory()
    logged(history)
    number = history.begin_materialization()
    logged(history)
    logged(history)
    history.materialized()
    assert history.materialized_upto == 10
    assert history.begin_snapshot(1, full=False) == (number, False, False, (10, 20))


def test_what_only_aborted_checkpoints_have_is_uploaded_again() -> None:
    """C4: a file that may have been deleted is never referred to, nor brought."""
    history = LogHistory()
    logged(history)
    handed(history, 1)
    logged(history)
    handed(history, 2)
    assert history.abort(1).retract_segments == ()
    assert history.abort(2).retract_segments == (0, 10)
    assert not history.is_uploaded(0)
    assert handed(history, 3) == (0, False, {0, 10})


def test_a_materialisation_of_aborted_checkpoints_is_given_up() -> None:
    """C4, C5: checkpoints go back to the confirmed one, and the log after that is still there."""
    history = LogHistory()
    logged(history)
    number = materialized(history)
    assert handed(history, 1) == (number, True, set())
    cleanup = history.abort(1)
    assert cleanup.fell_back
    assert cleanup.forget_materializations == cleanup.aborted == (number,)
    assert cleanup.delete_materializations == ()
    assert handed(history, 2) == (0, False, {0})


def test_an_abort_that_comes_before_the_end_counts() -> None:
    """C4: files of that snapshot alone are not trusted, nor files that it shared with an aborted one when it fails."""
    history = LogHistory()
    logged(history)
    history.begin_snapshot(1, full=False)
    assert history.abort(1) == Cleanup()
    assert history.snapshot_finished(1)[1].retract_segments == (0,)
    number = materialized(history)
    handed(history, 2)
    history.begin_snapshot(3, full=False)
    assert not history.abort(2).fell_back
    cleanup = history.snapshot_failed(3)
    assert cleanup.fell_back
    assert cleanup.forget_materializations == (number,)


def test_the_log_is_truncated_when_materialised_confirmed_and_subsumed() -> None:
    """C5: min(subsumed, materialised), and not before a completed checkpoint has the materialisation."""
    history = LogHistory()
    logged(history)
    handed(history, 1)
    history.complete(1)
    number = materialized(history)
    handed(history, 2)
    assert history.complete(2) == Cleanup(complete=number)
    assert history.subsumed(1).forget_segments == (0,)
    assert not history.is_needed(0)


def test_files_that_nobody_knows_are_deleted_and_no_others() -> None:
    """C5: a forgotten file is deleted only if no finished snapshot refers to it."""
    history = LogHistory()
    logged(history)
    handed(history, 1)
    history.complete(1)
    logged(history)
    first = materialized(history)
    second = materialized(history)
    handed(history, 2)
    history.complete(2)
    cleanup = history.subsumed(1)
    assert cleanup.forget_segments == (0, 10)
    assert cleanup.delete_segments == (10,)
    assert first not in history._materializations
    assert second == history.base


def test_a_superseded_materialisation_that_was_never_handed_is_deleted() -> None:
    """C5: no checkpoint knows it, and the backend below is told that it will never complete."""
    history = LogHistory()
    logged(history)
    first = materialized(history)
    history.begin_materialization()
    cleanup = history.materialized()
    assert cleanup.delete_materializations == cleanup.forget_materializations == cleanup.aborted == (first,)


def test_a_failed_snapshot_takes_back_what_it_has_uploaded() -> None:
    """C6: unless another snapshot has handed it over meanwhile."""
    history = LogHistory()
    logged(history, upload=False)
    history.begin_snapshot(1, full=False)
    history.uploaded(0, 1)
    assert history.snapshot_failed(1).delete_segments == (0,)
    history.begin_snapshot(2, full=False)
    history.uploaded(0, 2)
    handed(history, 3)
    assert history.snapshot_failed(2).delete_segments == ()
    assert history.is_uploaded(0)


def test_the_backend_below_hears_of_the_newest_only() -> None:
    """C7: it hears of the newest, not of one that the newest does not build upon."""
    history = LogHistory()
    logged(history)
    first = materialized(history)
    handed(history, 1)
    running = history.begin_materialization()
    assert history.complete(1).complete is None
    history.materialization_failed()
    handed(history, 2)
    assert history.complete(2).complete == first
    assert history.complete(2).complete is None
    assert running == first + 1


def test_a_full_checkpoint_refers_to_nothing_older() -> None:
    """C2, C8: it materialises, and so does every checkpoint that begins before it is finished."""
    history = LogHistory()
    logged(history)
    handed(history, 1)
    history.complete(1)
    plan = history.begin_snapshot(2, full=True)
    assert plan == (1, True, True, ())
    assert history.begin_snapshot(3, full=False) == (2, True, True, ())
    history.snapshot_finished(2)
    history.snapshot_finished(3)
    assert history.begin_snapshot(4, full=False) == (2, False, False, ())
    assert history.needs_full
    history.snapshot_finished(4)
    assert history.complete(4).complete == 2
    assert not history.needs_full


def test_the_first_checkpoint_behind_a_foreign_restore_materialises() -> None:
    """C2: no restored file may be referred to; numbers go on above the restored ones."""
    history = LogHistory()
    history.restored_elsewhere(7)
    assert handed(history, 1) == (8, True, set())
    logged(history)
    assert handed(history, 2) == (8, True, {0})
    history.abort(1)
    assert not history.needs_inline
    history.abort(2)
    assert history.needs_inline
    assert handed(history, 3) == (9, True, set())


def test_a_restored_log_is_referred_to() -> None:
    """C2: as known files, with numbers that go on."""
    history = LogHistory()
    history.restored(3, ((40, 50), (50, 53)))
    assert history.end == 53
    logged(history)
    assert handed(history, 9) == (3, False, {53})
    assert materialized(history) == 4


def test_dispose_deletes_what_was_never_handed() -> None:
    """A backend leaves no file that no checkpoint knows."""
    history = LogHistory()
    logged(history)
    handed(history, 1)
    logged(history)
    number = materialized(history)
    cleanup = history.dispose()
    assert cleanup.delete_segments == (10,)
    assert cleanup.delete_materializations == (number,)
    assert cleanup.aborted == ()


def test_misuse_is_a_bug() -> None:
    """Assertions catch calls that are not allowed."""
    history = LogHistory()
    with pytest.raises(AssertionError, match="empty segment"):
        history.sealed(0)
    logged(history)
    with pytest.raises(AssertionError, match="uploaded twice"):
        history.uploaded(0)
    history.begin_materialization()
    with pytest.raises(AssertionError, match="two materialisations"):
        history.begin_materialization()
    with pytest.raises(AssertionError, match="inline and in the background"):
        history.begin_snapshot(1, full=True)
    with pytest.raises(AssertionError, match="before its materialisation has ended"):
        history.dispose()
    with pytest.raises(AssertionError, match="that has begun"):
        history.restored(1, ())


@dataclass
class Checkpoint:
    """A checkpoint as the job manager sees it; files are known by name."""

    files: set[str] = field(default_factory=set)
    first: int = 0
    end: int = 0
    upto: int = 0
    state: str = "open"


class HistoryMachine(RuleBasedStateMachine):
    """A job manager that deletes as early as it may: a file without a pending or retained checkpoint goes as soon as
    it was part of an aborted or subsumed one. Files are named anew at each upload."""

    def __init__(self) -> None:
        super().__init__()
        self.history = LogHistory()
        self.checkpoints: dict[int, Checkpoint] = {}
        self.last = 0
        self.uploads = 0
        self.segment_files: dict[int, str] = {}
        self.materialization_files: dict[int, str] = {}
        self.upto: dict[int, int] = {0: 0}
        self.existing: set[str] = set()
        self.acknowledged: set[str] = set()
        self.confirmed: set[str] = set()
        self.messages: list[tuple[str, int]] = []

    def upload(self, kind: str) -> str:
        self.uploads += 1
        name = f"{kind}{self.uploads}"
        self.existing.add(name)
        return name

    def apply(self, cleanup: Cleanup) -> None:
        for first in cleanup.delete_segments:
            name = self.segment_files.pop(first)
            assert name not in self.acknowledged
            self.existing.remove(name)
        for first in (*cleanup.retract_segments, *cleanup.forget_segments):
            self.segment_files.pop(first, None)
        for number in cleanup.delete_materializations:
            name = self.materialization_files[number]
            assert name not in self.acknowledged
            self.existing.remove(name)
        for number in cleanup.forget_materializations:
            self.materialization_files.pop(number, None)

    @rule(count=st.integers(1, 3), upload=st.booleans())
    def log(self, count: int, upload: bool) -> None:
        """Changes, and a cut; maybe uploaded in the background."""
        first = self.history.sealed(self.history.end + count)
        if upload:
            self.history.uploaded(first)
            self.segment_files[first] = self.upload("s")

    @precondition(lambda self: self.history.running is None and not self.history.has_open_inline)
    @rule(finish=st.booleans())
    def begin_materialization(self, finish: bool) -> None:
        number = self.history.begin_materialization()
        self.upto[number] = self.history.end
        if finish:
            self.end_materialization(False)

    @precondition(lambda self: self.history.running is not None)
    @rule(fail=st.booleans())
    def end_materialization(self, fail: bool) -> None:
        number = self.history.running
        assert number is not None
        if fail:
            self.apply(self.history.materialization_failed())
        else:
            self.materialization_files[number] = self.upload("m")
            self.apply(self.history.materialized())

    @precondition(lambda self: sum(one.state == "open" for one in self.checkpoints.values()) < 3)
    @rule(full=st.sampled_from([False, False, False, True]), finish=st.booleans())
    def begin(self, full: bool, finish: bool) -> None:
        """A checkpoint begins; it needs all changes, from a materialisation and from the log."""
        if (full or self.history.needs_inline) and self.history.running is not None:
            self.end_materialization(True)
        self.last += 1
        plan = self.history.begin_snapshot(self.last, full=full)
        if plan.is_inline:
            self.upto[plan.materialization] = self.history.end
        assert self.upto[plan.materialization] == (plan.segments[0] if plan.segments else self.history.end)
        self.checkpoints[self.last] = Checkpoint(end=self.history.end, upto=plan.materialization)
        self.plans = {**getattr(self, "plans", {}), self.last: plan}
        if finish:
            self.finish(self.last, False)

    @rule(number=st.integers(1, 40), fail=st.booleans())
    def finish(self, number: int, fail: bool) -> None:
        checkpoint = self.checkpoints.get(number)
        if checkpoint is None or checkpoint.state not in ("open", "open, aborted"):
            return
        plan = self.plans[number]
        if fail:
            del self.checkpoints[number]
            self.apply(self.history.snapshot_failed(number))
            return
        for first in plan.segments:
            if not self.history.is_uploaded(first):
                self.history.uploaded(first, number)
                self.segment_files[first] = self.upload("s")
        if plan.is_inline:
            self.materialization_files[plan.materialization] = self.upload("m")
        segments = {first: self.segment_files[first] for first in plan.segments}
        brought, cleanup = self.history.snapshot_finished(number)
        new = {segments[first] for first in brought.new_segments}
        checkpoint.files = set(segments.values())
        if plan.materialization:
            name = self.materialization_files[plan.materialization]
            checkpoint.files.add(name)
            new |= {name} if brought.materialization_is_new else set()
        if checkpoint.state == "open":
            # A checkpoint that may still complete is whole: a completed one has uploaded the files it does not.
            assert checkpoint.files <= self.existing
            assert checkpoint.files - new <= self.confirmed
        self.acknowledged |= checkpoint.files
        checkpoint.state = "pending" if checkpoint.state == "open" else "aborted"
        self.apply(cleanup)
        self.delete()

    @rule(number=st.integers(1, 40))
    def complete(self, number: int) -> None:
        """A checkpoint completes; older ones are over."""
        checkpoint = self.checkpoints.get(number)
        if checkpoint is None or checkpoint.state != "pending":
            return
        checkpoint.state = "retained"
        self.confirmed |= checkpoint.files
        self.messages.append(("complete", number))
        for older, one in self.checkpoints.items():
            if older < number:
                self.give_up(older, one)
        self.delete()

    @rule(number=st.integers(1, 40))
    def abort(self, number: int) -> None:
        checkpoint = self.checkpoints.get(number)
        if checkpoint is not None and checkpoint.state in ("open", "pending"):
            self.give_up(number, checkpoint)
            self.delete()

    def give_up(self, number: int, one: Checkpoint) -> None:
        if one.state == "retained":
            self.messages.append(("subsumed", number))
            one.state = "subsumed"
        elif one.state in ("open", "pending"):
            self.messages.append(("abort", number))
            one.state = "open, aborted" if one.state == "open" else "aborted"
        # A merciless manager deletes at once, but the task may still build upon files whose end it has not heard of.
        while self.messages:
            kind, which = self.messages.pop(0)
            self.apply(getattr(self.history, kind)(which))

    def delete(self) -> None:
        """Delete what was acknowledged and no pending or retained checkpoint refers to, unless some checkpoint that is
        still open may: its message would be registered before."""
        live = [one for one in self.checkpoints.values() if one.state in ("pending", "retained")]
        if any(one.state == "open" for one in self.checkpoints.values()):
            return
        used = {name for one in live for name in one.files}
        self.existing -= self.acknowledged - used

    @rule()
    def deliver(self) -> None:
        while self.messages:
            kind, number = self.messages.pop(0)
            self.apply(getattr(self.history, kind)(number))

    @invariant()
    def it_is_valid(self) -> None:
        """Its own invariants hold, and every retained checkpoint is whole."""
        self.history.validate()
        for one in self.checkpoints.values():
            if one.state == "retained":
                assert one.files <= self.existing

    def teardown(self) -> None:
        """In the end no file is left that no checkpoint knows."""
        for number in list(self.checkpoints):
            self.finish(number, True)
        if self.history.running is not None:
            self.end_materialization(True)
        self.apply(self.history.dispose())
        assert self.existing <= self.acknowledged


TestHistoryMachine = HistoryMachine.TestCase
TestHistoryMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
