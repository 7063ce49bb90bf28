"""Where state is restored from, and how candidates are tried."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from state_backends.base import (
    CorruptStateError,
    KeyGroupRange,
    MissingStateError,
    RestoreCancelledError,
    StateBackendError,
    StateRestoreError,
)
from state_backends.files.faulty import SimulatedCrashError
from state_backends.snapshots import (
    ByteStreamStateHandle,
    FileStateHandle,
    FullKeyedStateHandle,
    KeyedStateHandle,
    LocalFirstReader,
    RestoreCandidate,
    StateScope,
    StreamStateHandle,
    keyed_alternatives,
    remote_only,
    restore_backend,
    single_alternatives,
)

LOCAL, REMOTE = b"local", b"remote"


class Reads:
    """A reader that answers with a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, handle: StreamStateHandle) -> Any:
        return self.name, handle


def keyed(group: int, tag: bytes) -> KeyedStateHandle:
    return FullKeyedStateHandle(KeyGroupRange(group, group), (), ByteStreamStateHandle(tag))


def tag(handle: KeyedStateHandle) -> bytes:
    (stream,) = handle.streams()
    assert isinstance(stream, ByteStreamStateHandle)
    return stream.data


groups = st.lists(st.integers(0, 5), unique=True, max_size=6)


@given(groups, st.lists(groups, max_size=3))
def test_keyed_candidates_have_every_key_group_once(remote: list[int], local: list[list[int]]) -> None:
    """Whatever is at hand: each candidate has the key groups of the checkpoint, the last one is all remote, and every
    key group that is at hand anywhere comes from the first alternative that has it."""
    handles = [keyed(group, REMOTE) for group in remote]
    alternatives = [[keyed(group, b"%d" % number) for group in one] for number, one in enumerate(local)]

    found = keyed_alternatives(handles, alternatives)

    assert [[one.key_group_range for one in option] for option in found] == [
        [handle.key_group_range for handle in handles]
    ] * len(found)
    assert found[-1] == handles
    at_hand = [group for group in remote if any(group in one for one in local)]
    assert len(found) == (2 if at_hand else 1)
    for group, handle in zip(remote, found[0], strict=True):
        first = next((b"%d" % number for number, one in enumerate(local) if group in one), REMOTE)
        assert tag(handle) == first


@given(st.lists(st.integers(0, 2), max_size=3), st.lists(st.lists(st.integers(0, 2), max_size=2), max_size=4))
def test_other_state_is_local_only_when_nothing_was_rescaled(remote: list[int], local: list[list[int]]) -> None:
    """A copy stands for exactly one handle like it; the checkpoint's own handles are always the last candidate."""
    found = single_alternatives(remote, local, lambda one, other: one == other)

    assert found[-1] == remote
    assert found[:-1] == [one for one in local if len(remote) == 1 and one == remote]


def test_a_reader_answers_from_the_copy_where_there_is_one() -> None:
    """Everything else is opened where it is."""
    here, there = (FileStateHandle(name, StateScope.SHARED, 1, 1) for name in ("here", "there"))
    copy = FileStateHandle("copy", StateScope.EXCLUSIVE, 1, 1)
    reader = LocalFirstReader(Reads("remote"), Reads("local"), {here: copy})

    assert [reader.open(one) for one in (here, there)] == [("local", copy), ("remote", there)]


class Backend:
    """Records how far the restore came."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.is_closed = False


class Tries:
    """Candidates that end as told, and what became of their backends."""

    def __init__(self, *ends: BaseException | None) -> None:
        local = RestoreCandidate[KeyedStateHandle]((), Reads("local"), 1)
        self.candidates = [*[local] * (len(ends) - 1), *remote_only([], Reads("remote"))]
        self.ends = ends
        self.made: list[Backend] = []
        self.reports: list[tuple[str, list[str]]] = []

    def run(self, **options: Any) -> Backend:
        return restore_backend(
            self.candidates, self._create, self._restore, self._close, report=self._report, **options
        )

    def _create(self, attempt: int) -> Backend:
        self.made.append(Backend(attempt))
        return self.made[-1]

    def _restore(self, backend: Backend, candidate: RestoreCandidate[KeyedStateHandle]) -> None:
        assert candidate is self.candidates[backend.attempt]
        end = self.ends[backend.attempt]
        if end is not None:
            raise end

    @staticmethod
    def _close(backend: Backend) -> None:
        assert not backend.is_closed
        backend.is_closed = True

    def _report(self, candidate: RestoreCandidate[KeyedStateHandle], problems: Any) -> None:
        self.reports.append((candidate.source, [str(problem) for problem in problems]))


def test_a_failure_falls_to_the_next_with_a_fresh_backend() -> None:
    """Each attempt has a backend of its own; those that failed are closed, the one that works is not."""
    tries = Tries(CorruptStateError("a", "is damaged"), OSError("gone"), None)

    backend = tries.run()

    assert [one.attempt for one in tries.made] == [0, 1, 2]
    assert [one.is_closed for one in tries.made] == [True, True, False]
    assert backend is tries.made[2]
    ((source, problems),) = tries.reports
    assert source == "checkpoint storage"
    assert len(problems) == 2


def test_when_all_fail_the_error_lists_all_reasons() -> None:
    """In the order in which they were tried, with where each copy is; the last error is the cause."""
    last = MissingStateError("b")
    tries = Tries(CorruptStateError("a", "is damaged"), last)
    with pytest.raises(StateRestoreError) as info:
        tries.run()

    assert info.value.__cause__ is last
    assert [reason.partition(":")[0] for reason in info.value.reasons] == [
        "from the local copy",
        "from checkpoint storage",
    ]
    assert "1. from the local copy: a: is damaged" in str(info.value)
    assert "2. from checkpoint storage: b: is referred to but does not exist" in str(info.value)
    assert all(one.is_closed for one in tries.made)
    assert tries.reports == []


def test_a_single_candidate_fails_with_its_own_error() -> None:
    """Without local recovery nothing changes."""
    problem = CorruptStateError("a", "is damaged")
    tries = Tries(problem)
    with pytest.raises(CorruptStateError) as info:
        tries.run()

    assert info.value is problem
    assert tries.made[0].is_closed


def test_a_cancelled_task_stops_trying() -> None:
    """A failure after the cancellation is not followed by another attempt, even after the last candidate."""
    for ends in ((OSError("closed"), None), (OSError("closed"),)):
        tries = Tries(*ends)
        with pytest.raises(RestoreCancelledError):
            tries.run(is_cancelled=lambda: True)
        assert [one.is_closed for one in tries.made] == [True]


@pytest.mark.parametrize("problem", [AssertionError("a bug"), SimulatedCrashError()])
def test_bugs_and_crashes_are_not_survived(problem: BaseException) -> None:
    """Only what a damaged copy can cause falls to the next one."""
    tries = Tries(problem, None)
    with pytest.raises(type(problem)):
        tries.run()

    assert len(tries.made) == 1


def test_a_backend_that_cannot_be_closed_does_not_hide_why() -> None:
    """The error stays what it was, with a note."""
    tries = Tries(CorruptStateError("a", "is damaged"))

    def refuse(backend: Backend) -> None:
        raise OSError("busy")

    tries._close = refuse  # type: ignore[method-assign]
    with pytest.raises(CorruptStateError) as info:
        tries.run()
    assert info.value.__notes__ == ["what was restored in part could not be deleted: busy"]


def test_a_backend_that_cannot_be_made_falls_to_the_next() -> None:
    """Making one may fail, too; there is nothing to close then."""
    made: list[int] = []

    def create(attempt: int) -> int:
        if attempt == 0:
            raise OSError("no space")
        made.append(attempt)
        return attempt

    candidates = Tries(None, None).candidates
    assert restore_backend(candidates, create, lambda backend, one: None) == 1
    assert made == [1]
    assert issubclass(StateRestoreError, StateBackendError)
