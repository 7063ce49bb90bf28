"""Uploads, the registry of shared files and retention together: no file goes too early, none stays for ever."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import initialize, invariant, rule

from engine.checkpoint.coordinator.shared_state_registry import UnknownPlaceholderError
from state_backends.snapshots import IncrementalKeyedStateHandle, SnapshotType
from tests.state_backends.rows.life import LifeOfCheckpoints
from tests.state_backends.rows.support import CHECKPOINT, FULL, SAVEPOINT, bytes_behind, content_of, job_over, names


def stored(handle: IncrementalKeyedStateHandle) -> dict[str, str]:
    """Per data file where checkpoint storage has it, without the directory."""
    return {file.name: stream.path.removeprefix("shared/") for file, (stream, _) in zip(
        handle.shared_files, handle.shared(), strict=True
    )}  # fmt: skip


def test_the_worked_example_of_four_checkpoints() -> None:
    """Two retained; CP1 {1,2}; CP2 {1,2,3,4}; CP3 {123,4,5}; CP4 {123,456}: files 1, 2 and 3 are deleted when CP2 is
    dropped at CP4, and not before; 4 and 5 stay for CP3."""
    job, store = job_over("1.sst", "2.sst", retain=2)
    place: dict[str, str] = {}
    exist: list[set[str]] = []
    uploaded = []
    for number, files in enumerate(
        [("1", "2"), ("1", "2", "3", "4"), ("123", "4", "5"), ("123", "456")], start=1
    ):  # fmt: skip
        store.names = tuple(f"{one}.sst" for one in files)
        handle = job.checkpoint(number)
        place.update((path, name.removesuffix(".sst")) for name, path in stored(handle).items())
        exist.append({place[path] for path in job.shared_files()})
        uploaded.append({name.removesuffix(".sst") for name in names(handle, uploaded=True)})
        job.verify()
    assert uploaded == [{"1", "2"}, {"3", "4"}, {"123", "5"}, {"456"}]
    assert exist == [{"1", "2"}, {"1", "2", "3", "4"}, {"1", "2", "3", "4", "5", "123"}, {"4", "5", "123", "456"}]


def hazard() -> tuple[object, ...]:
    """H1 up to its last step: g is uploaded by 1 and, unconfirmed, again by 2; 1 is confirmed to the task, 2 is not."""
    job, store = job_over("g.sst")
    job.start(1)
    job.start(2)
    job.upload(1)
    job.upload(2)
    job.acknowledge(1)
    second = job.pending.pop(2)
    job.complete(1)
    job.pending[2] = second
    job.deliver_all()
    job.acknowledge(2)
    job.complete(2)
    return job, store


def test_the_copy_of_an_older_base_may_be_gone() -> None:
    """H1: the registry refuses a reference to a deleted copy; the abort repairs the task."""
    job, _ = hazard()
    assert job.strategy.history.base_checkpoint == 1
    job.start(3)
    job.upload(3)
    with pytest.raises(UnknownPlaceholderError):
        job.acknowledge(3)
    job.verify()
    job.notices.clear()
    job.abort(3)
    job.deliver_all()
    assert job.strategy.history.base_checkpoint == 2
    assert names(job.checkpoint(4), uploaded=False) == ["g.sst"]
    job.verify()


def test_without_delay_of_notices_the_hazard_is_none() -> None:
    """H1 needs a barrier that overtakes the confirmation of 2."""
    job, _ = hazard()
    job.deliver_all()
    assert names(job.checkpoint(3), uploaded=False) == ["g.sst"]
    job.verify()


def test_a_lost_confirmation_is_repaired_by_the_next() -> None:
    """I6: the base stays at 1, the files of 2 are uploaded again by 3, and everything is there at any time."""
    job, store = job_over("1.sst", retain=1)
    job.checkpoint(1)
    store.names = ("1.sst", "2.sst")
    for number in (2, 3):
        job.start(number)
        job.rest_of(number)
        while job.notices and number == 2:
            job.deliver(lost=True)
        job.verify()
    handle = job.retained[3]
    assert isinstance(handle, IncrementalKeyedStateHandle)
    assert names(handle, uploaded=False) == ["1.sst"]
    assert names(handle, uploaded=True) == ["2.sst"]
    job.deliver_all()
    assert names(job.checkpoint(4), uploaded=True) == []
    assert len(job.shared_files()) == 2


class Life(LifeOfCheckpoints):
    """Checkpoints of all types over files that come and go."""

    @initialize(retain=st.integers(1, 3))
    def begin(self, retain: int) -> None:
        job, self.store = job_over("1.sst", "CURRENT", retain=retain)
        self.begin_with(job)
        self.next_file = 2
        self.content: dict[int, dict[str, bytes] | None] = {}

    @rule(new=st.integers(0, 2), gone=st.integers(0, 1), is_empty=st.integers(0, 9))
    def write(self, new: int, gone: int, is_empty: int) -> None:
        data = [name for name in self.store.names if name.endswith(".sst")][gone:]
        data += [f"{self.next_file + i}.sst" for i in range(new)]
        self.next_file += new
        self.store.names = (*data, "CURRENT")
        self.store.is_empty = is_empty == 0

    @rule(snapshot_type=st.sampled_from([CHECKPOINT, CHECKPOINT, CHECKPOINT, FULL, SAVEPOINT]))
    def start(self, snapshot_type: SnapshotType) -> None:
        number = self.start_one(snapshot_type)
        self.content[number] = None if self.store.is_empty else {name: content_of(name) for name in self.store.names}
        if snapshot_type is SAVEPOINT:
            self.savepoints.add(number)

    def may_refuse(self) -> bool:
        return True

    @invariant()
    def what_is_retained_is_whole(self) -> None:
        if not self.has_begun:
            return
        self.job.registry.validate()
        self.job.strategy.history.validate()
        for number, handle in self.job.retained.items():
            if handle is None:
                assert self.content[number] is None
                continue
            assert isinstance(handle, IncrementalKeyedStateHandle)
            assert bytes_behind(self.job, number, handle) == self.content[number]

    def teardown(self) -> None:
        """When all is quiet, storage has the files of what is retained and no other, and nothing local is left."""
        if not self.has_begun:
            return
        for number in sorted(self.job.pending):
            self.job.abort(number)
        self.job.deliver_all()
        self.job.strategy.history.complete(max(self.job.retained, default=0))
        self.store.is_empty = False
        last = self.job.checkpoint(self.next_id)
        for number in range(self.next_id + 1, self.next_id + 1 + self.job.retain):
            last = self.job.checkpoint(number)
        self.what_is_retained_is_whole_at_the_end(last)

    def what_is_retained_is_whole_at_the_end(self, last: IncrementalKeyedStateHandle) -> None:
        self.job.verify()
        referred = {
            file.path for handle in self.job.retained.values() if handle is not None for file, _ in handle.shared()
        }
        assert {f"shared/{name}" for name in self.job.shared_files()} == referred
        assert not names(last, uploaded=True)
        assert not list(self.job.file_system.walk_files("/local"))


class TestLife(Life.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
