"""Files that become visible all at once: handles, and what is durable at which moment. (Recorded scenarios of Flink's
tests are replayed in ``tests/conformance``.)"""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import StorageError
from operators.files.writing import UNIQUE_NAME_PATTERN, RecoverableWriter, ResumeHandle, UniqueNames, attempt_of
from operators.files.writing.unique_names import unique_name
from state_backends.files import MemoryFileSystem


def writer(fs: MemoryFileSystem, attempt: int = 1) -> RecoverableWriter:
    return RecoverableWriter(fs, "/out", UniqueNames(1, attempt, 0))


def test_what_a_handle_names_survives_a_crash() -> None:
    """The handle keeps its content, and the fsynced directories keep names; bytes written after the handle are lost."""
    fs = MemoryFileSystem()
    first = writer(fs)
    stream = first.open("b/part-0")
    stream.write(b"one;")
    resume = stream.persist()
    first.sync_directories()
    stream.write(b"two;")
    fs.crash()

    second = writer(fs, 2)
    stream = second.recover(resume)
    stream.write(b"three;")
    pending = stream.close_for_commit()
    second.sync_directories()
    fs.crash()

    third = writer(fs, 3)
    third.commit(pending)
    third.sync_directories()
    fs.crash()
    assert {path: fs.read_bytes(path) for path in fs.walk_files("/out")} == {"/out/b/part-0": b"one;three;"}
    assert third.commit_after_recovery(pending)


def test_a_name_that_is_taken_is_refused_or_replaced() -> None:
    """Files of another run are refused when a part is begun and when it is committed, unless they are replaced."""
    fs = MemoryFileSystem()
    ours, replacing = writer(fs), RecoverableWriter(fs, "/out", UniqueNames(1, 2, 0), replaces=True)
    pending = []
    for one in (ours, replacing):
        stream = one.open("part-0")
        stream.write(b"new")
        pending.append(stream.close_for_commit())
    with fs.open_write("/out/part-0") as file:
        file.write(b"old")

    with pytest.raises(StorageError, match="exists already: this directory holds the output of another run"):
        ours.open("part-0")
    for commit in (ours.commit, ours.commit_after_recovery):
        with pytest.raises(StorageError, match="exists already"):
            commit(pending[0])
    replacing.commit(pending[1])
    assert fs.read_bytes("/out/part-0") == b"new"


def test_a_power_cut_may_leave_both_names_of_a_commit() -> None:
    """The new name is durable and the removal of the old one is not: the file was committed, and is there once."""
    fs = MemoryFileSystem()
    first = writer(fs)
    stream = first.open("part-0")
    stream.write(b"content")
    pending = stream.close_for_commit()
    first.sync_directories()
    first.commit(pending)
    hidden = f"/out/{pending.temporary}"
    fs.crash(lambda path: path != hidden)
    assert sorted(fs.walk_files("/out")) == sorted([hidden, "/out/part-0"])

    second = writer(fs, 2)
    assert second.commit_after_recovery(pending)
    second.sync_directories()
    fs.crash()
    assert list(fs.walk_files("/out")) == ["/out/part-0"]
    assert fs.read_bytes("/out/part-0") == b"content"


def test_a_name_that_an_earlier_attempt_made_is_made_durable() -> None:
    """It was renamed, and fsyncing the directory failed: a power cut after the next commit must not take it away."""
    fs = MemoryFileSystem()
    first = writer(fs)
    stream = first.open("part-0")
    stream.write(b"content")
    pending = stream.close_for_commit()
    first.sync_directories()
    first.commit(pending)

    second = writer(fs, 2)
    assert second.commit_after_recovery(pending)
    second.sync_directories()
    fs.crash()
    assert list(fs.walk_files("/out")) == ["/out/part-0"]


def test_hadoop_commits_what_is_too_short() -> None:
    """A difference of the file systems: after a recovery Hadoop's writer does not mind a length that is too small."""
    fs = MemoryFileSystem()
    hadoop = RecoverableWriter(fs, "/out", UniqueNames(1, 1, 0), commits_short_files=True)
    stream = hadoop.open("part-0")
    stream.write(b"content")
    pending = stream.close_for_commit()
    fs.truncate(hadoop.path(pending.temporary), 3)

    for strict in (writer(fs).commit, hadoop.commit, writer(fs).commit_after_recovery):
        with pytest.raises(StorageError, match="with 7 bytes but has 3"):
            strict(pending)
    assert hadoop.commit_after_recovery(pending)
    assert fs.read_bytes("/out/part-0") == b"con"


def test_a_closed_stream_is_closed() -> None:
    """After that, writing, persisting and closing for a commit are errors; closing again is not."""
    stream = writer(MemoryFileSystem()).open("part-0")
    stream.close()
    stream.close()

    for use in (lambda: stream.write(b"x"), stream.persist, stream.close_for_commit):
        with pytest.raises(StorageError, match="is closed and cannot be written any more"):
            use()


def test_a_copy_has_what_the_handle_had() -> None:
    """It has a name of its own; writes to the original do not reach it."""
    fs = MemoryFileSystem()
    zombie = writer(fs).open("part-0")
    zombie.write(b"covered")
    handle = zombie.persist()
    zombie.write(b" and not")
    copy = writer(fs, 2).open_copy(handle.temporary, handle)
    zombie.write(b" at all")
    copy.write(b"!")

    assert fs.read_bytes(f"/out/{copy.temporary}") == b"covered!"
    assert copy.temporary != handle.temporary
    with pytest.raises(StorageError, match="had 99 bytes in the restored checkpoint but has 22"):
        writer(fs, 3).open_copy(handle.temporary, ResumeHandle(*handle[:2], 99))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**48 - 1))
def test_unique_names_say_where_they_come_from(incarnation: int, attempt: int, subtask: int, number: int) -> None:
    """They look like UUIDs and give the attempt back."""
    name = unique_name(incarnation, attempt, subtask, number)

    assert re.fullmatch(UNIQUE_NAME_PATTERN, name)
    assert len(name) == 36
    assert attempt_of(name) == (incarnation, attempt)


def test_names_of_older_versions_and_of_others() -> None:
    """A name with only incarnation and attempt is understood; any other name belongs to no attempt."""
    assert attempt_of("12-3") == (12, 3)
    assert [attempt_of(name) for name in ("", "12", "retracted", "12-3-4")] == [None] * 4


def test_no_two_names_are_equal() -> None:
    """Within an attempt they are counted; attempts and subtasks tell the others apart."""
    givers = [UniqueNames(*who) for who in product((1, 2), (1, 2), (0, 1))]
    names = [giver() for giver in givers for _ in range(3)]

    assert len(dict.fromkeys(names)) == len(names) == 24
