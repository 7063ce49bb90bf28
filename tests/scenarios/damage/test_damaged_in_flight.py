"""Records in flight are damaged between two starts, in every way: the older checkpoint is used, and no row is wrong."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgpack
import pytest

from engine.checkpoint.restore import NoRestart
from engine.elements.errors import JobFailedError
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import ExecutionResult
from state_backends.base import StateBackendError, StateSchemaError
from state_backends.codec import PREAMBLE_BYTES, frame
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChannelStateHandle,
    CheckpointMetadata,
    FileStateHandle,
    SubtaskSnapshot,
    read_channel_state,
)
from state_backends.snapshots.handles import ChannelStatePiece
from tests.malformed import framed_variants, frames_of, packed
from tests.scenarios.damage.test_crash_damage_backends import copied, put
from tests.scenarios.recorded_runs import DIRECTORY, OUT, committed, expected, recorded_job, storage_on
from tests.state_backends.snapshots.test_damage import Substitute
from tests.stored_runs import run_stored

undisturbed = functools.cache(expected)


def run(files: FileSystem, *, resume: bool = False, kill_ns: int | None = None, first: int = 0) -> ExecutionResult:
    """A run whose barriers overtake records: sources are fast, their readers slow. Raises the job's error."""
    config = RunConfig(
        mode="unaligned",
        batch_size=2,
        checkpoint_interval=CheckpointInterval(records=8),
        inline_state_bytes=0,
        retained=2,
        channel_capacity=3,
        output_capacity=4,
        restart=NoRestart(),
        cost=CostModel(source_record_ns=10_000, record_ns=40_000, storage_latency_ns=1_000),
    )
    kills = [] if kill_ns is None else [("everything[0]", kill_ns)]
    return run_stored(recorded_job(first), config, files, resume=resume, kills=kills).raise_on_failure()


@functools.cache
def left(first: int = 0) -> dict[str, bytes]:
    """All files of a run that failed and left two checkpoints, both with records in flight."""
    files = MemoryFileSystem()
    with pytest.raises(JobFailedError):
        run(files, kill_ns=1_000_000, first=first)
    return {path: files.read_bytes(path) for path in (*files.walk_files(DIRECTORY), *files.walk_files(OUT))}


def newest() -> tuple[int, int, CheckpointMetadata]:
    """The ids of both checkpoints, and the parts of the newer one."""
    storage = storage_on(copied(left()))
    older, newer = storage.list_checkpoints()
    metadata = storage.read_metadata(newer)
    assert list(storage.read_metadata(older).channel_state())
    assert list(metadata.channel_state())
    return older, newer, metadata


def pieces() -> list[tuple[str, ChannelStateHandle]]:
    """The files with the newest checkpoint's records in flight."""
    _, newer, metadata = newest()
    location = storage_on(copied(left())).location(newer)
    found = []
    for handle in metadata.channel_state():
        assert isinstance(handle.stream, FileStateHandle)
        found.append((location.full_path(handle.stream), handle))
    return found


def broken_copies(data: bytes) -> Iterator[bytes | None]:
    """Each byte flipped, every truncation, nothing, too much, zeros, and another file."""
    yield from (data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :] for at in range(len(data)))
    yield from (data[:length] for length in range(len(data)))
    yield from (data + b"\0", data + data, bytes(len(data)), None)
    foreign = left(5)
    yield from (other for path, other in sorted(foreign.items()) if path.startswith(DIRECTORY))


def test_every_damaged_byte_is_found_and_the_older_checkpoint_is_used() -> None:
    """After any damage to a file with records in flight, the error names it, and the storage goes back."""
    older, newer, _ = newest()
    tried = 0
    for path, handle in pieces():
        assert isinstance(handle.stream, FileStateHandle)
        whole, files = left()[path], copied(left())
        for data in broken_copies(whole):
            if data == whole:
                continue
            put(files, path, data)
            usable = storage_on(files).latest_usable()
            assert usable.metadata is not None
            assert usable.metadata.checkpoint_id == older
            assert f"checkpoint {newer} cannot be used" in usable.problems[0]
            assert path in usable.problems[0]
            tried += 1
    assert tried > 150


Change = Callable[[ChannelStateHandle], ChannelStateHandle]


def with_handles(files: FileSystem, change: Change, *, inlined: bytes | None = None, at: int = 0) -> None:
    """Write the newest metadata anew, with one handle of records in flight changed and every checksum right."""
    _, newer, metadata = newest()
    first = list(metadata.channel_state())[at]
    changed = change(first)
    if inlined is not None:
        changed = replace(changed, stream=ByteStreamStateHandle(inlined))

    def moved(subtask: SubtaskSnapshot) -> SubtaskSnapshot:
        if subtask.input_channels is first:
            return replace(subtask, input_channels=changed)
        return replace(subtask, output_channels=changed) if subtask.output_channels is first else subtask

    operators = tuple(
        replace(one, subtasks={index: moved(subtask) for index, subtask in one.subtasks.items()})
        for one in metadata.operators
    )
    put(files, storage_on(files).location(newer).metadata_path, replace(metadata, operators=operators).to_bytes())


def with_checksum_of(data: bytes, handle: ChannelStateHandle) -> ChannelStateHandle:
    assert isinstance(handle.stream, FileStateHandle)
    return replace(handle, stream=replace(handle.stream, size_bytes=len(data), checksum=zlib.crc32(data)))


def changed_piece(**fields: object) -> Change:
    """Another piece than the first one."""

    def change(handle: ChannelStateHandle) -> ChannelStateHandle:
        first, *others = handle.pieces
        plain = {"channel": first.channel, "records": first.records, "offset": first.offset, **fields}
        return replace(handle, pieces=(ChannelStatePiece(**plain), *others))  # type: ignore[arg-type]

    return change


WRONG_HANDLES: dict[str, Change] = {
    "offset 0": changed_piece(offset=0),
    "offset within the frame": changed_piece(offset=15),
    "offset behind the end": changed_piece(offset=1 << 40),
    "one record fewer": lambda handle: changed_piece(records=handle.pieces[0].records + 1)(handle),
    "another sender": lambda handle: changed_piece(channel=handle.pieces[0].channel._replace(sender=7))(handle),
    "another receiver": lambda handle: changed_piece(channel=handle.pieces[0].channel._replace(receiver=7))(handle),
    "another edge": lambda handle: changed_piece(channel=handle.pieces[0].channel._replace(edge="x>>y#0"))(handle),
    "no piece": lambda handle: replace(handle, pieces=()),
    "a piece twice": lambda handle: replace(handle, pieces=(*handle.pieces, handle.pieces[0])),
}


@pytest.mark.parametrize("name", WRONG_HANDLES)
def test_a_handle_that_means_other_records_is_refused(name: str) -> None:
    """The metadata is whole, but does not agree with the file of the records in flight: the job goes back."""
    older, newer, _ = newest()
    files = copied(left())
    with_handles(files, WRONG_HANDLES[name])
    check_goes_back(files, older, newer)


@pytest.mark.parametrize("far", ["sender", "receiver"])
def test_records_between_subtasks_that_an_edge_did_not_have_are_refused(far: str) -> None:
    """Metadata and file agree, and the edge was narrower: the job goes back."""
    older, newer, _ = newest()
    inputs = [one.input_channels for operator in newest()[2].operators for one in operator.subtasks.values()]
    at, (path, handle) = next((at, one) for at, one in enumerate(pieces()) if (one[1] in inputs) == (far == "sender"))
    data = left()[path]
    (kind, tag, header), *others = frames_of(data)
    plain = msgpack.unpackb(header, strict_map_key=False)
    plain[0][1 if far == "sender" else 2] = 7
    changed = data[:PREAMBLE_BYTES] + b"".join(frame(*one) for one in ((kind, tag, packed(plain)), *others))
    files = copied(left())
    put(files, path, changed)
    moved = changed_piece(channel=handle.pieces[0].channel._replace(**{far: 7}))
    with_handles(files, lambda old: with_checksum_of(changed, moved(old)), at=at)
    assert list(storage_on(files).location(newer).verify().channel_state())
    check_goes_back(files, older, newer)


def check_goes_back(files: FileSystem, older: int, newer: int) -> None:
    """The resumed job restores the older checkpoint, says why, and commits the rows of an undisturbed run."""
    result = run(files, resume=True)
    assert result.restores[0].checkpoint_id == older
    (problem,) = result.restores[0].problems
    assert f"checkpoint {newer} cannot be used" in problem
    assert committed(files) == undisturbed()


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": lambda data: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:],
    "truncated": lambda data: data[:-1],
    "missing": lambda data: None,
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_job_goes_back_behind_damaged_records_in_flight(name: str) -> None:
    """The job starts from the older checkpoint, and the rows are those of an undisturbed run."""
    older, newer, _ = newest()
    for path, _ in pieces():
        files = copied(left())
        put(files, path, DAMAGES[name](left()[path]))
        check_goes_back(files, older, newer)


def test_records_in_flight_come_back_without_damage() -> None:
    """The reference for the damage: the newest checkpoint, its records in flight included."""
    _, newer, _ = newest()
    files = copied(left())
    result = run(files, resume=True)
    assert [(one.checkpoint_id, one.problems) for one in result.restores] == [(newer, ())]
    assert committed(files) == undisturbed()


def malformed() -> list[bytes]:
    """Variants of the first piece, well framed, that are no records in flight."""
    path, handle = pieces()[0]
    refused = []
    for data in framed_variants(left()[path]):
        try:
            read_channel_state(Substitute(data), handle)
        except StateBackendError:
            refused.append(data)
    assert len(refused) > 100
    return refused


def is_of_unknown_type(data: bytes) -> bool:
    """Whether a record holds a value of an unregistered type, which is no damage."""
    try:
        read_channel_state(Substitute(data), pieces()[0][1])
    except StateSchemaError:
        return True
    except StateBackendError:
        return False
    raise AssertionError("refused before")


@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.slow)])
def test_a_job_goes_back_behind_records_in_flight_that_are_malformed_inside(every: int) -> None:
    """Every checksum fits, that of the metadata too, but one value in the file does not belong there."""
    older, newer, _ = newest()
    path, _ = pieces()[0]
    for number, data in enumerate(malformed()[::every]):
        files = copied(left())
        if number % 2:
            with_handles(files, lambda handle: handle, inlined=data)
        else:
            put(files, path, data)
            with_handles(files, lambda handle: with_checksum_of(data, handle))  # noqa: B023 - called at once
        if is_of_unknown_type(data):
            # The job may have forgotten to register a type that it had: to go back would throw the checkpoint away.
            with pytest.raises(StateSchemaError, match="type code 99"):
                run(files, resume=True)
            assert storage_on(files).list_checkpoints() == [older, newer]
        else:
            check_goes_back(files, older, newer)
