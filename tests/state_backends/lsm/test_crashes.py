"""A durable store (log and ``sync``) struck at every call it makes: crashes, errors, torn writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from state_backends.base import StateBackendError
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from state_backends.lsm import LsmStore
from tests.state_backends.lsm.support import content, key, open_store

Model = dict[bytes, bytes]
Step = tuple[Callable[[LsmStore, int], Any], Callable[[Model], None]]
"""What is done to a store (with the number of the attempt), and to the model."""


def _write(entries: dict[bytes, bytes | None]) -> Step:
    def change(model: Model) -> None:
        for one, value in entries.items():
            model.pop(one, None)
            if value is not None:
                model[one] = value

    return lambda store, _: store.write_many(entries), change


def _delete_range(first: bytes, end: bytes) -> Step:
    def change(model: Model) -> None:
        for one in [one for one in model if first <= one < end]:
            del model[one]

    return lambda store, _: store.delete_range(first, end), change


def _ingest(entries: Model) -> Step:
    return lambda store, _: store.ingest(iter(entries.items())), lambda model: model.update(entries)


def _unchanged(call: Callable[[LsmStore, int], Any]) -> Step:
    return call, lambda _: None


def _history() -> list[Step]:
    """Enough to flush, to merge into two levels, to move files and to begin a manifest anew."""
    steps: list[Step] = []
    for turn in range(4):
        for group in range(3):
            numbers = [(turn * 7 + group * 11 + index * 13) % 31 for index in range(5)]
            entries: dict[bytes, bytes | None] = {key(number): b"%d-%d" % (turn, number) * 3 for number in numbers}
            entries[key(turn * 3 + group)] = None
            steps.append(_write(entries))
        steps.append(_delete_range(key(turn * 5), key(turn * 5 + 3)))
        if turn == 1:
            steps.append(_ingest({b"a%d" % number: b"bulk" * 3 for number in range(6)}))
            steps.append(_unchanged(lambda store, attempt: store.checkpoint(f"/checkpoint-{attempt}")))
        if turn == 2:
            steps.append(_unchanged(lambda store, _: store.compact_all()))
    steps.append(_unchanged(lambda store, _: store.flush()))
    return steps


def _open(fs: FileSystem, unique: str = "a", **changes: Any) -> LsmStore:
    settings: dict[str, Any] = {"wal": True, "sync": True, "manifest_bytes": 400, "block_bytes": 200, **changes}
    return open_store(fs, unique=unique, **settings)


def _count_calls() -> int:
    fs = FaultInjectingFileSystem(MemoryFileSystem())
    store = _open(fs)
    model: Model = {}
    for act, change in _history():
        act(store, 0)
        change(model)
    assert content(store) == model
    assert sum(map(bool, store.version.levels)) >= 2
    store.close()
    return len(fs.calls)


CALLS = _count_calls()


def _crash_at(call: int, kind: FileFault, survives: Callable[[str], bool] | None) -> None:
    memory = MemoryFileSystem()
    fs = FaultInjectingFileSystem(memory, [FaultRule(kind, at_call=call, keep_bytes=7)])
    before: Model = {}
    after: Model = {}
    try:
        store = _open(fs)
        for act, change in _history():
            before = dict(after)
            change(after)
            act(store, 0)
            before = dict(after)
        store.close()
    except SimulatedCrashError:
        assert fs.struck
    memory.crash(survives)
    reopened = _open(memory, "b")
    found = content(reopened)
    # Acknowledged writes are there; a write under way is there as a whole or not at all.
    assert found in (before, after), (call, kind)
    assert {one: reopened.get(one) for one in found} == found
    reopened.validate()
    reopened.compact_all()
    reopened.close()
    assert content(_open(memory, "c")) == found


def _every_other() -> Callable[[str], bool]:
    seen: list[str] = []

    def survives(path: str) -> bool:
        seen.append(path)
        return len(seen) % 2 == 0

    return survives


def _calls(stride: int) -> list[int]:
    return list(range(1, CALLS + 1, stride))


def test_the_history_makes_many_calls() -> None:
    """Otherwise the tests below would strike nothing."""
    assert CALLS > 200


@pytest.mark.parametrize("kind", [FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER])
def test_acknowledged_writes_survive_a_crash_at_some_calls(kind: FileFault) -> None:
    """Every seventh call, nothing that was not made durable survives."""
    for call in _calls(7):
        _crash_at(call, kind, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER])
@pytest.mark.parametrize("survivors", ["none", "all", "every other"])
def test_acknowledged_writes_survive_a_crash_at_any_call(kind: FileFault, survivors: str) -> None:
    """Every call; of the changes that were not durable none survives, or all, or every other one."""
    for call in _calls(1):
        survives = {"none": None, "all": lambda _: True, "every other": _every_other()}[survivors]
        _crash_at(call, kind, survives)


def _checked(store: LsmStore, model: Model, what: object) -> None:
    """The store is valid and holds the model; where the one fault strikes the check itself, it is made again."""
    try:
        store.validate()
        found = content(store)
    except OSError:
        store.validate()
        found = content(store)
    assert found == model, what


def _fail_at(call: int, kind: FileFault, crashes: bool) -> None:
    """A call fails once; the refused operation is done again."""
    memory = MemoryFileSystem()
    fs = FaultInjectingFileSystem(memory, [FaultRule(kind, at_call=call, keep_bytes=7)])
    model: Model = {}
    store = None
    for attempt in range(2):
        try:
            store = _open(fs, f"a{attempt}")
            break
        except OSError:
            assert attempt == 0
    assert store is not None
    for act, change in _history():
        for attempt in range(2):
            try:
                act(store, attempt)
                break
            except OSError:
                assert attempt == 0, "one fault, two failures"
                _checked(store, model, (call, kind))
        change(model)
        _checked(store, model, (call, kind))
    if all(struck.operation != "delete" for _, struck in fs.struck):
        on_disk = {name for name in memory.list_dir("/store") if name.endswith(".sst")}
        assert on_disk == {file.name for file in store.version.files()}, (call, kind)
    if crashes:
        memory.crash()
    else:
        store.close()
    assert content(_open(memory, "b")) == model


@pytest.mark.parametrize(
    "kind", [FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER, FileFault.TORN_WRITE, FileFault.DISK_FULL]
)
def test_a_failed_call_can_be_done_again(kind: FileFault) -> None:
    """Every eleventh call fails: nothing has happened, the second attempt succeeds, all is there after a crash."""
    for call in _calls(11):
        _fail_at(call, kind, crashes=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER, FileFault.TORN_WRITE, FileFault.DISK_FULL]
)
def test_any_failed_call_can_be_done_again(kind: FileFault) -> None:
    """Every call, with a crash afterwards and without."""
    for call in _calls(1):
        _fail_at(call, kind, crashes=bool(call % 2))


@pytest.mark.parametrize("call", [1, 3, 8, 20, 60])
def test_a_disk_that_stays_full_loses_nothing(call: int) -> None:
    """Writes are refused for good; writes acknowledged before are there after a crash."""
    memory = MemoryFileSystem()
    store = _open(memory)
    model: Model = {}
    steps = _history()
    for act, change in steps[: len(steps) // 2]:
        act(store, 0)
        change(model)
    memory_is_full = [FaultRule(FileFault.DISK_FULL, keep_bytes=call)]
    store.close()
    faulty = FaultInjectingFileSystem(memory, memory_is_full)
    with pytest.raises(OSError, match="No space left"):
        _open(faulty, "b")
    memory.crash()

    assert content(_open(memory, "c")) == model


def test_errors_are_of_the_expected_kinds() -> None:
    """An error while opening is the disk's own or one that says what is wrong."""
    for call in _calls(3):
        memory = MemoryFileSystem()
        fs = FaultInjectingFileSystem(memory, [FaultRule(FileFault.MISSING, at_call=call)])
        try:
            store = _open(fs)
            for act, _ in _history():
                act(store, 0)
        except (OSError, StateBackendError):
            assert fs.struck
