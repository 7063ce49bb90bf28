"""Several attempts may write one snapshot at the same time: each has its own files, and takes away no other's."""

from __future__ import annotations

from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage, FileStateHandle, StateScope, StreamStateHandle


def attempt(files: MemoryFileSystem, name: str) -> CheckpointStorage:
    return CheckpointStorage(files, "/state", "job", inline_threshold_bytes=0, attempt=name)


def read(files: MemoryFileSystem, handle: StreamStateHandle | None) -> bytes:
    assert isinstance(handle, FileStateHandle)
    with attempt(files, "").initialize_location(1).reader().open(handle) as stream:
        return stream.read()


def test_attempts_that_write_in_turn_have_a_file_each() -> None:
    """With other content they have two, with the same content one, and its name tells no attempt."""
    for second, files_at_end in ((b"other", 2), (b"first", 1)):
        files = MemoryFileSystem()
        attempt(files, "").initialize_location(1)
        streams = [attempt(files, name).location(1).stream_factory("a-0-keyed").create_stream() for name in ("x", "y")]
        for part in (slice(0, 2), slice(2, None)):
            for stream, content in zip(streams, (b"first", second), strict=True):
                stream.write(content[part])
        handles = [stream.close_and_get_handle() for stream in streams]
        assert [read(files, handle) for handle in handles] == [b"first", second]
        assert len(list(files.walk_files("/state/job/chk-1"))) == files_at_end
        assert (handles[0] == handles[1]) == (files_at_end == 1)


def test_an_attempt_that_gives_up_leaves_the_files_of_others() -> None:
    """By their content they have the same name: it deletes only the file that it has not finished."""
    files = MemoryFileSystem()
    attempt(files, "").initialize_location(1)
    kept, given_up = (
        attempt(files, name).shared_stream_factory("a-0").create_stream(StateScope.SHARED) for name in ("x", "y")
    )
    for stream in (kept, given_up):
        stream.write(b"content")
    handle, same = kept.close_and_get_handle(), given_up.close_and_get_handle()
    assert handle == same
    given_up.discard()
    assert isinstance(same, FileStateHandle)
    attempt(files, "y").delete_shared(same)
    assert read(files, handle) == b"content"

    unfinished = attempt(files, "z").shared_stream_factory("a-0").create_stream(StateScope.SHARED)
    unfinished.write(b"some")
    unfinished.close()
    assert len(list(files.walk_files("/state/job/shared"))) == 1
