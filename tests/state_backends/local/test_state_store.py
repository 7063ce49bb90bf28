"""Which checkpoints a task keeps copies of: the rules, against a model; files damaged, half-written and refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from state_backends.base import KeyGroupRange
from state_backends.codec import seal
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from state_backends.local.state_store import (
    FORMAT_VERSION,
    LOCAL_STATE_FILE_NAME,
    MAGIC,
    LocalStateStore,
    LocalTaskState,
)
from state_backends.snapshots import (
    ByteStreamStateHandle,
    FileStateHandle,
    FullKeyedStateHandle,
    OperatorStateHandle,
    OperatorStateMode,
    StateOffsets,
    StateScope,
    SubtaskSnapshot,
)

REMOTE = FileStateHandle("shared/a-1-0", StateScope.SHARED, 7, 99)
LOCAL = FileStateHandle("1-a-0", StateScope.EXCLUSIVE, 7, 99)
OFFSETS = {"splits": StateOffsets(OperatorStateMode.UNION, (14, 30))}


def state(tag: bytes = b"state") -> LocalTaskState:
    """Keyed and operator state of two operators, one of them in a file."""
    keyed = FullKeyedStateHandle(KeyGroupRange(0, 63), ((3, 40), (9, 60)), LOCAL)
    operator = OperatorStateHandle(OFFSETS, ByteStreamStateHandle(tag))
    operators = {"b": SubtaskSnapshot(operator=operator), "a": SubtaskSnapshot(keyed=keyed, operator=operator)}
    return LocalTaskState(operators, {REMOTE: LOCAL})


class Store:
    """A store, with the problems it has told."""

    def __init__(self, fs: FileSystem | None = None, *, recovery_enabled: bool = True) -> None:
        self.fs = MemoryFileSystem() if fs is None else fs
        self.problems: list[str] = []
        self.recovery_enabled = recovery_enabled
        self.store = self.again()

    def again(self) -> LocalStateStore:
        self.store = LocalStateStore(self.fs, "/l/t", self._failed, recovery_enabled=self.recovery_enabled)
        return self.store

    def _failed(self, what: str, problem: Exception) -> None:
        self.problems.append(f"{what}: {problem}")

    def metadata(self, checkpoint_id: int) -> str:
        return f"{self.store.snapshot_directory(checkpoint_id)}/{LOCAL_STATE_FILE_NAME}"


class Retention(RuleBasedStateMachine):
    """Any order of events, late and repeated ones included, against the rules said again with a plain set."""

    ids = st.integers(0, 6)

    def __init__(self) -> None:
        super().__init__()
        self.here = Store()
        self.model: set[int] = set()

    def check(self, gone: tuple[int, ...], expected: set[int]) -> None:
        """Each removed checkpoint is reported once, ascending, and no other is removed."""
        assert gone == tuple(sorted(self.model & expected))
        self.model -= expected

    @rule(checkpoint_id=ids)
    def stored(self, checkpoint_id: int) -> None:
        assert self.here.store.store(checkpoint_id, None)
        self.model.add(checkpoint_id)

    @rule(checkpoint_id=ids)
    def confirmed(self, checkpoint_id: int) -> None:
        self.check(self.here.store.confirm(checkpoint_id), set(range(checkpoint_id)))

    @rule(checkpoint_id=ids)
    def aborted(self, checkpoint_id: int) -> None:
        self.check(self.here.store.abort(checkpoint_id), {checkpoint_id})

    @rule(checkpoint_id=st.none() | ids)
    def restored(self, checkpoint_id: int | None) -> None:
        self.check(self.here.store.prune(checkpoint_id), self.model - {checkpoint_id})

    @rule()
    def disposed(self) -> None:
        self.check(self.here.store.dispose(), set(self.model))

    @invariant()
    def same(self) -> None:
        assert self.here.store.kept == self.here.again().kept == tuple(sorted(self.model))


TestRetention = Retention.TestCase


def test_what_is_stored_is_found_by_a_later_process() -> None:
    """Handles, copies and offsets come back as they were, of each checkpoint its own."""
    here = Store()
    for checkpoint_id in (1, 2):
        assert here.store.store(checkpoint_id, state(b"%d" % checkpoint_id))

    assert here.again().kept == (1, 2)
    assert here.store.retrieve(2) == state(b"2")
    assert here.store.retrieve(1) == state(b"1")
    assert here.store.retrieve(3) is None
    assert here.problems == []


def test_the_file_says_the_same_in_the_same_bytes() -> None:
    """The order in which operators were snapshotted leaves no trace."""
    one, other = Store(), Store()
    one.store.store(1, state())
    turned = state()
    other.store.store(1, LocalTaskState(dict(reversed(turned.operators.items())), turned.copies))

    assert one.fs.read_bytes(one.metadata(1)) == other.fs.read_bytes(other.metadata(1))


def test_no_state_is_a_value() -> None:
    """A task without state has a local snapshot, which says so, in a later process too."""
    here = Store()
    assert here.store.store(3, None)

    assert here.again().kept == (3,)
    assert here.store.retrieve(3) is None
    assert here.problems == []
    assert here.store.kept == (3,)


def test_files_go_with_their_checkpoint() -> None:
    """Confirming, aborting, pruning and disposing delete whole directories, and only those."""
    here = Store()
    for checkpoint_id in range(1, 7):
        here.store.store(checkpoint_id, state())
        with here.fs.open_write(f"{here.store.snapshot_directory(checkpoint_id)}/1-a-0") as file:
            file.write(b"bytes")

    assert here.store.confirm(3) == (1, 2)
    assert here.store.abort(5) == (5,)
    assert here.fs.list_dir("/l/t") == ["chk-3", "chk-4", "chk-6"]
    assert here.store.prune(4) == (3, 6)
    assert here.fs.list_dir("/l/t") == ["chk-4"]
    assert here.store.dispose() == (4,)
    assert not here.fs.exists("/l/t")


def test_half_written_ones_of_a_crash_go_at_the_next_restore() -> None:
    """A directory without metadata is no local snapshot, and does not stay for ever."""
    here = Store()
    here.store.store(1, state())
    here.fs.make_dirs("/l/t/chk-2")
    here.fs.make_dirs("/l/t/chk-x")

    assert here.again().prune(1) == (2,)
    assert here.fs.list_dir("/l/t") == ["chk-1", "chk-x"]


def test_copies_that_are_only_made_are_not_given_back() -> None:
    """With recovery off they are kept and cleaned up all the same."""
    here = Store(recovery_enabled=False)
    here.store.store(1, state())
    here.store.store(2, state())

    assert here.store.retrieve(2) is None
    assert here.store.confirm(2) == (1,)


def damages(data: bytes) -> list[tuple[str, bytes]]:
    """Torn at every byte, any byte flipped, bytes appended, empty."""
    flipped = [bytes([*data[:at], data[at] ^ 0x40, *data[at + 1 :]]) for at in range(len(data))]
    torn = [data[:size] for size in range(len(data))]
    return [("flipped", one) for one in flipped] + [("torn", one) for one in torn] + [("longer", data + b"\0")]


def test_whatever_byte_is_damaged_it_is_removed_and_absent() -> None:
    """No damage goes unnoticed; none is an error, and nothing is left of the local snapshot."""
    here = Store()
    here.store.store(1, state())
    whole = here.fs.read_bytes(here.metadata(1))
    for kind, data in damages(whole):
        here.fs.make_dirs("/l/t/chk-1")
        with here.fs.open_write(here.metadata(1)) as file:
            file.write(data)
        here.problems.clear()

        assert here.again().retrieve(1) is None, kind
        assert len(here.problems) == 1
        assert "the local copy of checkpoint 1 cannot be read and is removed" in here.problems[0]
        assert not here.fs.exists("/l/t/chk-1")
        assert here.store.kept == ()


@pytest.mark.parametrize("version", [FORMAT_VERSION, FORMAT_VERSION + 1])
def test_another_ones_file_is_absent(version: int) -> None:
    """The metadata of another checkpoint, or of a newer program, is not used."""
    here = Store()
    here.store.store(1, state())
    here.store.store(2, state())
    data = here.fs.read_bytes(here.metadata(1))
    if version != FORMAT_VERSION:
        data = seal(MAGIC, version, b"anything")
    with here.fs.open_write(here.metadata(2)) as file:
        file.write(data)

    assert here.again().retrieve(2) is None
    assert here.store.retrieve(1) == state()
    assert here.store.kept == (1,)


OPERATIONS = ["make_dirs", "open_write", "write", "fsync", "rename", "fsync_dir"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_cannot_be_stored_is_absent_and_told(operation: str) -> None:
    """Whichever call the disk refuses: no error, no half snapshot, and the next checkpoint is stored."""
    fs = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.ERROR_BEFORE, operation, at_call=1)])
    here = Store(fs)

    assert not here.store.store(1, state())
    assert here.store.retrieve(1) is None
    assert len(here.problems) == 1
    assert list(fs.inner.walk_files("/")) == []
    assert here.store.store(2, state())


@pytest.mark.parametrize("operation", ["exists", "delete", "delete_tree"])
def test_what_cannot_be_deleted_is_told_and_tried_again(operation: str) -> None:
    """Removing never fails; files that stay are found and deleted when the task starts again."""
    fs = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.ERROR_BEFORE, operation, at_call=1)])
    here = Store(fs)
    here.store.store(1, state())

    assert here.store.confirm(2) == (1,)
    assert here.store.retrieve(1) is None
    assert len(here.problems) == 1
    assert fs.inner.exists("/l/t/chk-1")
    here.again().prune(None)
    assert not fs.inner.exists("/l/t/chk-1")


@pytest.mark.parametrize("operation", ["is_dir", "list_dir"])
def test_a_directory_that_cannot_be_listed_is_empty(operation: str) -> None:
    """The files of an earlier process are out of reach then, which does no other harm."""
    here = Store()
    here.store.store(1, state())
    here.fs = FaultInjectingFileSystem(here.fs, [FaultRule(FileFault.ERROR_BEFORE, operation, at_call=1)])

    assert here.again().kept == ()
    assert len(here.problems) == 1


def test_a_crash_at_any_call_leaves_all_or_nothing() -> None:
    """The process dies at each call in turn: then the local snapshot is whole or absent, and the older one is there."""
    calls, crashed = 0, True
    while crashed:
        calls += 1
        memory = MemoryFileSystem()
        Store(memory).store.store(1, state(b"old"))
        dying = FaultInjectingFileSystem(memory, [FaultRule(FileFault.CRASH_AFTER, "*", at_call=calls)])
        try:
            Store(dying).store.store(2, state())
        except SimulatedCrashError:
            memory.crash()
        else:
            crashed = False
        later = Store(memory)
        assert later.store.retrieve(2) in (state(), None)
        assert later.store.retrieve(1) == state(b"old")
    assert calls > 5


def test_shared_files_are_found_in_the_newest_copy() -> None:
    """Only files in the shared scope have one name for ever; others mean another file in each checkpoint."""
    here = Store()
    exclusive = FileStateHandle("a-1-0", StateScope.EXCLUSIVE, 7, 99)
    for checkpoint_id in (1, 2):
        copies: dict[Any, Any] = {REMOTE: LOCAL, exclusive: LOCAL}
        here.store.store(checkpoint_id, LocalTaskState({}, copies))

    assert here.store.copy_of_shared(REMOTE) == (2, LOCAL)
    assert here.store.copy_of_shared(exclusive) is None
    assert here.store.copy_of_shared(ByteStreamStateHandle(b"x")) is None
    here.store.abort(2)
    assert here.store.copy_of_shared(REMOTE) == (1, LOCAL)


@pytest.mark.parametrize("path", ["/victims/letters", "../../../victims/letters", "sub/../../x", "s3://b/x"])
def test_a_copy_that_leads_out_is_no_copy(path: str) -> None:
    """Handles and copies name files in the directory of the local snapshot; another one is told, and not used."""
    out = FileStateHandle(path, StateScope.EXCLUSIVE, 7, 99)
    snapshot = SubtaskSnapshot(operator=OperatorStateHandle(OFFSETS, out))
    for hostile in (LocalTaskState({"a": snapshot}, {}), LocalTaskState({}, {REMOTE: out})):
        one = Store()
        assert one.store.store(3, hostile)

        assert one.again().retrieve(3) is None

        assert len(one.problems) == 1
        assert "which is not below /l/t/chk-3" in one.problems[0]
        assert one.store.kept == ()
