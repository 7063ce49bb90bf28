"""The writer whose files are committed by another operator: what it hands out when, names, and restores."""

from __future__ import annotations

from engine.elements.batch import Batch
from engine.elements.errors import StorageError
from operators.files.compaction import PENDING, FileCommittable, FileCommitter, committable_of, delete
from operators.files.compaction.file_committer import CLEAN_UP
from operators.files.formats import TextRowFormat
from operators.files.writing import (
    Buckets,
    BucketState,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    PartEncoder,
    PartNames,
    PendingFile,
    RecoverableWriter,
    ResumeHandle,
    RollingPolicy,
    UniqueNames,
)
from operators.transactions import CommitRequest
from state_backends.files import MemoryFileSystem

KEEPING = DefaultRollingPolicy(max_part_size_bytes=8, rollover_interval_ms=1000, inactivity_interval_ms=100)

PART = PartNames("part", "", 0)


class Task:
    """One subtask in one attempt."""

    def __init__(
        self,
        fs: MemoryFileSystem | None = None,
        *,
        policy: RollingPolicy | None = None,
        attempt: int = 1,
        subtask: int = 0,
        restored: list[BucketState] | None = None,
        resumes: bool = True,
        names: PartNames = PART,
    ) -> None:
        self.fs = MemoryFileSystem() if fs is None else fs
        self.files = RecoverableWriter(self.fs, "out", UniqueNames(1, attempt, subtask), resumes=resumes)
        self._encoder = PartEncoder(TextRowFormat())
        unique = UniqueNames(1, attempt, subtask)
        self.writer = Buckets(self.files, self._encoder, policy or KEEPING, names, unique=unique)
        self.writer.initialize(restored or [])

    def write(self, bucket: str, *rows: str, now_ms: int = 0) -> None:
        self.writer.write(bucket, self._encoder.encode(Batch(list(rows))), list(rows), now_ms)

    def hand_out(self, *, flush: bool = False) -> list[FileCommittable]:
        return [committable_of(*one) for one in self.writer.hand_out(flush=flush)]

    def commit(self, committables: list[FileCommittable]) -> None:
        FileCommitter(self.files).commit([CommitRequest(one) for one in committables])

    def visible(self) -> dict[str, str]:
        return {
            path: self.fs.read_bytes(path).decode()
            for path in self.fs.walk_files("out")
            if not path.rpartition("/")[2].startswith(".")
        }


def unique(number: int, attempt: int = 1, subtask: int = 0) -> str:
    return f"00000001-0000-{attempt:04x}-{subtask:04x}-{number:012x}"


def kinds(committables: list[FileCommittable]) -> list[str]:
    return [one[0] for one in committables]


def test_each_instance_of_a_bucket_has_a_name_and_counts_from_zero() -> None:
    """Names of two subtasks, or of two attempts, never meet."""
    task = Task(policy=OnCheckpointRollingPolicy(), names=PartNames("rows", ".txt", 0))
    task.write("a", "1")
    task.write("b", "2")
    first = task.hand_out()
    task.write("a", "3")
    second = task.hand_out()

    assert [one[3] for one in first] == [f"a/rows-{unique(0)}-0.txt", f"b/rows-{unique(1)}-0.txt"]
    assert [one[3] for one in second] == [f"a/rows-{unique(0)}-1.txt"]


def test_a_bucket_is_dropped_one_checkpoint_after_it_became_empty() -> None:
    """A bucket that is written to in every checkpoint keeps its name; one that pauses gets another."""
    task = Task(policy=OnCheckpointRollingPolicy())
    task.write("a", "1")
    task.hand_out()
    assert list(task.writer.active) == ["a"]
    task.hand_out()
    assert list(task.writer.active) == []
    task.write("a", "2")

    assert [one[3] for one in task.hand_out()] == [f"a/part-{unique(1)}-0"]


def test_an_open_part_stays_and_its_old_handle_is_handed_out() -> None:
    """The handle is handed out once: with the snapshot after the one that it was made for."""
    task = Task()
    task.write("a", "1")
    assert task.hand_out() == []
    (state,) = task.writer.persist()
    assert state.in_progress == (f"a/.part-{unique(0)}-0.inprogress.{unique(0)}", f"a/part-{unique(0)}-0", 2, 0)

    handed_out = task.hand_out()
    assert handed_out == [(CLEAN_UP, "a", *state.in_progress[:3])]
    assert task.hand_out() == []


def test_at_the_end_everything_is_handed_out() -> None:
    """The rolling policy does not matter."""
    task = Task()
    task.write("a", "1")

    handed_out = task.hand_out(flush=True)

    assert kinds(handed_out) == [PENDING]
    task.commit(handed_out)
    assert task.visible() == {f"out/a/part-{unique(0)}-0": "1\n"}


def test_a_restore_cuts_the_open_part_and_goes_on() -> None:
    """Its next part has a name of its own."""
    task = Task()
    task.write("a", "1")
    states = task.writer.persist()
    task.write("a", "lost")

    again = Task(task.fs, attempt=2, restored=states)
    again.write("a", "2")
    again.write("a", "345678")
    again.write("a", "9")
    again.commit(again.hand_out(flush=True))

    assert again.visible() == {
        f"out/a/part-{unique(0)}-0": "1\n2\n345678\n",
        f"out/a/part-{unique(0, attempt=2)}-0": "9\n",
    }


def test_a_writer_that_cannot_resume_hands_the_part_out_as_it_was() -> None:
    """The part comes with the next checkpoint, and not before."""
    task = Task(resumes=False)
    task.write("a", "1")
    states = task.writer.persist()
    task.write("a", "lost")

    again = Task(task.fs, attempt=2, restored=states, resumes=False)
    assert again.visible() == {}
    again.write("a", "2")
    again.commit(again.hand_out(flush=True))

    assert sorted(again.visible().values()) == ["1\n", "2\n"]


def test_pending_files_of_a_sink_in_one_operator_are_handed_out() -> None:
    """The state of such a sink is understood: a job may turn to committers."""
    task = Task()
    task.write("a", "1")
    (pending,) = task.hand_out(flush=True)
    state = BucketState("a", [(3, [tuple(pending[2:])])])

    again = Task(task.fs, attempt=2, restored=[state])

    assert again.hand_out() == [pending]


def test_files_to_be_compacted_have_hidden_names() -> None:
    """Readers never see them, even when they have their final names."""
    task = Task(names=PART._replace(hidden=True))
    task.write("a", "1")
    (pending,) = task.hand_out(flush=True)

    assert pending[3] == f"a/.part-{unique(0)}-0"
    task.commit([pending])
    assert task.visible() == {}


# --- the committer ----------------------------------------------------------------------------------------------


def test_a_committer_may_be_asked_again() -> None:
    """Visible files stay unchanged."""
    task = Task()
    task.write("a", "1")
    handed_out = task.hand_out(flush=True)
    for _ in range(3):
        task.commit(handed_out)

    assert list(task.visible().values()) == ["1\n"]


def test_a_file_that_is_neither_pending_nor_committed_is_lost() -> None:
    """It is not an error, since no restart helps, but it is reported by its final name."""
    task = Task()
    lost: list[str] = []
    committer = FileCommitter(task.files, lost=lost.extend)

    committer.commit([CommitRequest(committable_of("a", PendingFile("a/.gone", "a/gone", 1)))])

    assert lost == ["a/gone"]


class Disk:
    """Writes down the order in which it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def commit_after_recovery(self, pending: PendingFile) -> bool:
        self.calls.append(f"commit {pending.target}")
        return True

    def clean_up(self, handle: ResumeHandle) -> bool:
        self.calls.append(f"clean up {handle.target}")
        return True

    def delete(self, relative: str) -> None:
        if relative == "gone":
            raise FileNotFoundError(relative)
        self.calls.append(f"delete {relative}")
        if relative == "stuck":
            raise StorageError("read-only")

    def sync_directories(self) -> None:
        self.calls.append("sync")


def test_sources_are_deleted_behind_the_names_of_what_they_became() -> None:
    """A crash must not take both source and result. A source that cannot be deleted stays, and is counted."""
    disk, counted = Disk(), []
    committables = [
        delete("", "old"),
        delete("", "gone"),
        delete("", "stuck"),
        committable_of("", PendingFile(".new.tmp", "new", 3)),
        (CLEAN_UP, "", ".part.tmp", "part", 3),
    ]

    FileCommitter(disk, lambda name, amount: counted.append(name)).commit(list(map(CommitRequest, committables)))

    assert disk.calls == ["commit new", "clean up part", "sync", "delete old", "delete stuck", "sync"]
    assert counted == ["numCompactedFilesLeft"]


def test_deleted_sources_do_not_come_back_after_a_power_cut() -> None:
    """Their deletion is durable, since the next checkpoint does not ask for it again."""
    task = Task()
    task.fs.make_dirs("out/a")
    with task.fs.open_write("out/a/.old") as file:
        file.write(b"1")
        file.fsync()
    for directory in (".", "out", "out/a"):
        task.fs.fsync_dir(directory)

    task.commit([delete("a", "a/.old")])
    task.fs.crash()

    assert list(task.fs.walk_files("out")) == []
