"""Each call to the file system fails, one run for each: while keyed state is flushed, linked, uploaded and restored.

A disk that fails costs checkpoints and attempts, and nothing else: the output is that of an undisturbed run, every
checkpoint that is kept is whole, and what could not be deleted is told. Where the job cannot go on (the directory that
would say what there is to restart from cannot be read), it ends with an error that says so, and a resume does the rest.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable

import pytest

from engine.elements.errors import JobFailedError, StorageError
from engine.runtime.execution import ExecutionResult
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import Call
from tests.scenarios.recorded_runs import INCREMENTAL, JOB_DIR, check_files, committed, expected, run, storage_on

KILLS = [("everything[0]", 1_000_000)]
OUTAGE = 25
"""So many calls in a row fail while a disk is full or read-only."""

FAULTS = {
    FileFault.ERROR_BEFORE: 1,
    FileFault.ERROR_AFTER: 1,
    FileFault.TORN_WRITE: 1,
    FileFault.DISK_FULL: OUTAGE,
    FileFault.READ_ONLY: OUTAGE,
}
"""Kinds of faults, and the number of consecutive calls that they strike."""

GOES_ON = re.compile(rf"{JOB_DIR}/(chk-|shared|work/)|/out/")
WRITES = ("open_write", "write", "fsync", "rename", "link")
"""Calls that write a checkpoint; when one fails there, the job goes on."""

CLEAR = re.compile(r"storage directory .* cannot be used|resume from that checkpoint|Errno|cannot be|not writable")
"""Texts of the errors that end the job."""

METADATA = re.compile(rf"{JOB_DIR}/chk-\d+/_metadata")
PLACES = re.compile(r"/shared/|/store/|/snapshots/|/chk-|/out/")
CHANGES = (*WRITES, "fsync_dir", "delete", "delete_tree", "open_read")

undisturbed = functools.cache(expected)


class Recorder(FaultInjectingFileSystem):
    """Fails as many calls in a row as its kind of fault does, from the ``first``-th that it applies to; 0 = none."""

    def __init__(self, kind: FileFault, first: int = 0) -> None:
        self.memory = MemoryFileSystem()
        last = first + FAULTS[kind] if first else 0
        never = FaultRule(kind, at_call=10**9)
        rules = [FaultRule(kind, at_call=at, keep_bytes=7) for at in range(first, last)]
        super().__init__(self.memory, rules or [never])

    @property
    def counted(self) -> int:
        """The number of calls so far to which this kind of fault applies."""
        return self._matches[0]


class Applicable(Recorder):
    """Does not fail any call; records the calls to which its kind of fault applies."""

    def __init__(self, kind: FileFault) -> None:
        super().__init__(kind)
        self.kept: list[Call] = []

    def _strike(self, operation: str, *paths: str) -> FaultRule | None:
        before = self.counted
        struck = super()._strike(operation, *paths)
        if self.counted > before:
            self.kept.append(self.calls[-1])
        return struck


@functools.cache
def calls_of(backend: str, kind: FileFault) -> tuple[Call, ...]:
    """The calls of a run with a killed task that a fault of this kind applies to."""
    files = Applicable(kind)
    result = run(files, backend, kills=KILLS)
    assert result.attempts == 2
    assert committed(files.memory) == undisturbed()
    return tuple(files.kept)


def one_of_each(calls: tuple[Call, ...]) -> Iterable[int]:
    """The numbers, from 1, of one call of each kind that changes or opens something, in each place."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for number, call in enumerate(calls, 1):
        match = PLACES.search(call.path)
        if match is not None and call.operation in CHANGES:
            kinds.setdefault((call.operation, match[0]), []).append(number)
    return sorted(numbers[len(numbers) // 2] for numbers in kinds.values())


def fail(backend: str, kind: FileFault, first: int) -> str:
    files = Recorder(kind, first)
    where = (backend, kind, first)
    try:
        result = run(files, backend, kills=KILLS)
    except (StorageError, JobFailedError) as error:
        said = str(error)
        outcome = "resumed"
    else:
        assert files.struck, where
        outcome = "finished"
        _check_notes(files, result)
    if outcome == "resumed":
        assert CLEAR.search(said), where
        assert FAULTS[kind] == OUTAGE or not is_write_of_checkpoint(files.struck[0][1]), where
        # The process is gone, and its locks with it; the disk works again.
        files.memory.crash(lambda path: True)
        run(files.memory, backend, resume=True)
        check_files(files.memory)
    assert committed(files.memory) == undisturbed(), where
    return outcome


def is_write_of_checkpoint(call: Call) -> bool:
    """Whether a call writes a file of a checkpoint, of a store or of the output."""
    return call.operation in WRITES and GOES_ON.match(call.path) is not None


def _check_notes(files: Recorder, result: ExecutionResult) -> None:
    """Retained checkpoints are whole; notes name passed-over ones, and left files, which the next start sweeps."""
    check_files(files.memory, is_over=False)
    try:
        check_files(files.memory)
    except AssertionError:
        assert any("could not be deleted" in note for note in result.notes), (files.struck[0], result.notes)
        storage_on(files.memory).discard_leftovers()
        check_files(files.memory)
    for restore in result.restores:
        for problem in restore.problems:
            assert f"checkpoint {restore.checkpoint_id} cannot be used" not in problem
            assert any(call.path in problem for _, call in files.struck), problem


@pytest.mark.parametrize("backend", ["lsm", pytest.param("changelog:lsm", marks=pytest.mark.slow)])
def test_one_call_of_each_kind_fails(backend: str) -> None:
    """Opening, writing, syncing, renaming, linking and deleting, in each place that a run uses."""
    calls = calls_of(backend, FileFault.ERROR_BEFORE)
    numbers = list(one_of_each(calls))
    outcomes = Counter(fail(backend, FileFault.ERROR_BEFORE, number) for number in numbers)

    assert any(is_write_of_checkpoint(calls[number - 1]) for number in numbers)
    assert outcomes["finished"] > 3 * outcomes["resumed"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("backend", INCREMENTAL)
def test_every_single_call_fails(backend: str, kind: FileFault) -> None:
    """Before it is carried out, afterwards, half way through, or for a while; outages begin at every fifth call."""
    calls = calls_of(backend, kind)
    assert len(calls) > 100
    every = {FileFault.ERROR_AFTER: 3, FileFault.DISK_FULL: 5, FileFault.READ_ONLY: 5}.get(kind, 1)
    outcomes = Counter(fail(backend, kind, number) for number in range(1, len(calls) + 1, every))

    assert outcomes["finished"] > 3 * outcomes["resumed"]


@pytest.mark.parametrize("backend", INCREMENTAL)
def test_a_checkpoint_that_cannot_be_read_in_a_restart_is_passed_over(backend: str) -> None:
    """A task dies; the first read of the newest checkpoint fails: the attempt says so and starts from the older one."""
    kills = [("everything[0]", 1_400_000)]
    before = Recorder(FileFault.ERROR_BEFORE)
    run(before, backend, kills=kills)
    newest = next(one for one in before.calls if one.operation == "open_read" and METADATA.fullmatch(one.path))
    rule = FaultRule(FileFault.ERROR_BEFORE, "open_read", newest.path, 1)
    files = FaultInjectingFileSystem(MemoryFileSystem(), [rule])
    result = run(files, backend, kills=kills)

    (restore,) = [one for one in result.restores if one.problems]
    (problem,) = restore.problems
    assert newest.path in problem
    assert restore.checkpoint_id is not None
    assert committed(files.inner) == undisturbed()
