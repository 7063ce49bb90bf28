"""One bucket of a file sink: its open part and its pending ones (Flink: ``Bucket`` of ``StreamingFileSink``, and
``FileWriterBucket``, whose files are committed by another operator).

Naming: a final name is ``{prefix}-{owner}-{counter}{suffix}``. If the owner is a subtask, each bucket has its own next
counter; a new or restored bucket starts at the greatest counter of its subtask. So two finished files never share a
name, even when a bucket became inactive and appears again. Otherwise the owner is an *instance* of a bucket, with a
unique name, which counts from 0. Then subtasks share no counter, and the state has none.

Rules:

* A record goes to the open part. If there is none, one is opened; otherwise the rolling policy decides first. A closed
  part is pending for the next checkpoint.
* A snapshot closes the open part if the policy says so. It books pending files under the checkpoint's id (without
  pending files it books nothing), and persists the part that is still open. The state holds all of this, and the files
  booked under ids that are not confirmed yet.
* A confirmation commits the files booked under its id and all earlier ones, strictly. Resume handles of *earlier* ids
  are outdated and cleaned up if the writer needs it. A restore still begins at the handle of the confirmed one.
* A restore resumes the open part, cut to its persisted length. The part keeps its creation time, which is also its
  last update. A writer that cannot resume commits the part as it was persisted. Then all booked files are committed,
  leniently.
* Two restored buckets of one id become one: the open part of the later one is closed and becomes pending.

Where another operator commits:

* Before each barrier a bucket hands out its pending files. First it closes the open part if the policy says so, or if
  no records follow. It also hands out the previous snapshot's resume handle, outdated once this snapshot is complete.
* The state holds only the open part. Pending files have gone to the committer before the barrier.
* Files that a restore does not resume are handed out with the next checkpoint, as are the pending files in the state of
  a one-operator sink.
"""

from __future__ import annotations

import posixpath
from typing import Any, NamedTuple, Protocol

from operators.files.writing.part_files import PartEncoder, PartFile, Rows
from operators.files.writing.recoverable_writer import PendingFile, RecoverableWriter, ResumeHandle
from operators.files.writing.rolling_policies import EventRule, RollingPolicy
from state_backends.base import list_of, number, optional, path_below, row, whole

_RESTORED = -(2**63)
"""Stands for the id of the checkpoint that a bucket was restored from: before all others."""


def check_bucket_id(bucket: object) -> str:
    """``bucket``, if it is a directory in the sink's that readers see. Raises ``TypeError``, ``ValueError``."""
    if not isinstance(bucket, str):
        raise TypeError(f"a bucket is a str, got {type(bucket).__name__} {bucket!r}")
    for part in bucket.split("/") if bucket else ():
        if part in ("", ".", "..") or part.startswith((".", "_")) or "\0" in part:
            raise ValueError(
                f"bucket {bucket!r} is no path below the sink's directory that readers see: parts must not be "
                "empty, '..', or start with '.' or '_'"
            )
    try:
        bucket.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(
            f"bucket {bucket!r} has a lone surrogate at index {problem.start}, which stands in no path; clean it with"
            " bucket.encode('utf-8', 'replace').decode()"
        ) from None
    return bucket


class PartNames(NamedTuple):
    """The final names of the parts of one ``owner``: a subtask, or an instance of a bucket. ``hidden``: for files that
    are to be compacted."""

    prefix: str
    suffix: str
    owner: int | str
    hidden: bool = False

    def target(self, bucket_id: str, counter: int) -> str:
        """The path of part ``counter`` of a bucket, relative to the sink's directory."""
        dot = "." if self.hidden else ""
        return posixpath.join(bucket_id, f"{dot}{self.prefix}-{self.owner}-{counter}{self.suffix}")


class BucketsListener(Protocol):
    """Is notified about buckets (Flink: ``BucketLifeCycleListener``, ``FileLifeCycleListener``)."""

    def bucket_created(self, bucket_id: str) -> None:
        """A record has created a bucket. A restored bucket is not reported."""

    def bucket_inactive(self, bucket_id: str) -> None:
        """All files of a bucket are committed and no part is open: after a confirmation, or a restore."""

    def part_opened(self, bucket_id: str, target: str) -> None:
        """A part was begun, not resumed; ``target`` is its future path relative to the sink's directory."""


class PartSettings(NamedTuple):
    """The settings that all buckets of one subtask share."""

    writer: RecoverableWriter
    encoder: PartEncoder
    policy: RollingPolicy
    event_rule: EventRule
    listener: BucketsListener | None = None


class BucketState(NamedTuple):
    """A bucket in the state, as plain values.

    ``booked``       (checkpoint id, its pending files) in ascending order;
    ``in_progress``  the open part and when it was created, in ms.
    """

    bucket_id: str
    booked: list[tuple[int, list[tuple[str, str, int]]]]
    in_progress: tuple[str, str, int, int] | None = None


_FILE = row(path_below, path_below, whole)

BUCKET_STATE = row(
    path_below, list_of(row(number, list_of(_FILE))), more=(optional(row(path_below, path_below, whole, number)),)
)
"""The shape of a :class:`BucketState`. (In checkpoints of older versions buckets had no open parts.)"""


class Bucket:
    """One bucket of one subtask.

    ``pending`` are files closed since the last snapshot, ``pending_by_checkpoint`` those of snapshots that
    have not been confirmed yet.
    """

    __slots__ = (
        "_outdated", "_persisted", "_settings", "id", "names", "next_counter", "part", "pending",
        "pending_by_checkpoint",
    )  # fmt: skip

    def __init__(self, bucket_id: str, names: PartNames, next_counter: int, settings: PartSettings) -> None:
        self.id = bucket_id
        self.names = names
        self.next_counter = next_counter
        self.part: PartFile | None = None
        self.pending: list[PendingFile] = []
        self.pending_by_checkpoint: dict[int, list[PendingFile]] = {}
        self._settings = settings
        self._persisted: dict[int, ResumeHandle] = {}
        """By checkpoint, if the writer needs them cleaned up."""
        self._outdated: ResumeHandle | None = None
        """The handle of the newest snapshot; the next one hands it out."""

    @property
    def is_active(self) -> bool:
        """Whether it has a file that is not committed, or not handed out."""
        return self.part is not None or bool(self.pending or self.pending_by_checkpoint or self._outdated)

    # --- records ------------------------------------------------------------------------------------------

    def write(self, rows: Rows, count: int, records: list[Any] | None, now_ms: int) -> None:
        """Write ``count`` rows. ``records`` are their records, for policies that need them."""
        settings = self._settings
        rule, at = settings.event_rule, 0
        if rule.never:
            while at < count:
                at = (self.part or self._open_part(now_ms)).add(rows, at, count, now_ms)
            return
        limit, should_roll = rule.size_limit_bytes, settings.policy.should_roll_on_event
        while at < count:
            part = self.part
            if limit is None:
                assert records is not None, "the policy wants to see records"
                if part is not None and should_roll(part, records[at]):
                    self.close_part()
                at = (self.part or self._open_part(now_ms)).add(rows, at, at + 1, now_ms)
            else:
                if part is not None and part.size_bytes > limit:
                    self.close_part()
                at = (self.part or self._open_part(now_ms)).add_up_to(limit, rows, at, count, now_ms)

    def _open_part(self, now_ms: int) -> PartFile:
        settings = self._settings
        target = self.names.target(self.id, self.next_counter)
        self.part = settings.encoder.open(settings.writer.open(target), self.id, now_ms)
        self.next_counter += 1
        if settings.listener is not None:
            settings.listener.part_opened(self.id, target)
        return self.part

    def close_part(self) -> None:
        """Close the open part, if there is one; it is committed with the next completed checkpoint."""
        if self.part is not None:
            self.pending.append(self.part.close_for_commit())
            self.part = None

    def on_processing_time(self, now_ms: int) -> None:
        if self.part is not None and self._settings.policy.should_roll_on_processing_time(self.part, now_ms):
            self.close_part()

    # --- checkpoints --------------------------------------------------------------------------------------

    def on_snapshot(self, checkpoint_id: int) -> BucketState:
        """Book pending files under ``checkpoint_id``; returns the state."""
        self._close_if_due(False)
        if self.pending:
            self.pending_by_checkpoint[checkpoint_id] = self.pending
            self.pending = []
        state = self.persist()
        if self._outdated is not None and self._settings.writer.requires_cleanup():
            self._persisted[checkpoint_id] = self._outdated
        self._outdated = None
        return state._replace(booked=[(known, [(*file,) for file in files]) for known, files in self.booked()])

    def _close_if_due(self, flush: bool) -> None:
        part, policy = self.part, self._settings.policy
        if part is not None and (flush or policy.rolls_on_every_checkpoint or policy.should_roll_on_checkpoint(part)):
            self.close_part()

    def persist(self) -> BucketState:
        """The open part alone, if there is one: all other files were handed out."""
        if self.part is None:
            return BucketState(self.id, [])
        self._outdated = self.part.persist()
        return BucketState(self.id, [], (*self._outdated, self.part.created_at_ms))

    def hand_out(self, flush: bool) -> list[PendingFile | ResumeHandle]:
        """The files that another operator commits with the next checkpoint, and the handle that is outdated then.
        ``flush``: no records follow."""
        self._close_if_due(flush)
        handed_out: list[PendingFile | ResumeHandle] = [*self.pending]
        if self._outdated is not None:
            handed_out.append(self._outdated)
        self.pending, self._outdated = [], None
        return handed_out

    def booked(self) -> list[tuple[int, list[PendingFile]]]:
        """The booked files by checkpoint, ascending."""
        return sorted(self.pending_by_checkpoint.items())

    def on_confirmed(self, checkpoint_id: int) -> None:
        """Commit the files booked under all checkpoints up to ``checkpoint_id``, oldest first."""
        writer = self._settings.writer
        for known, _ in self.booked():
            if known <= checkpoint_id:
                for file in self.pending_by_checkpoint.pop(known):
                    writer.commit(file)
        for known in sorted(known for known in self._persisted if known < checkpoint_id):
            writer.clean_up(self._persisted.pop(known))

    # --- restore ------------------------------------------------------------------------------------------

    def restore(self, state: BucketState) -> list[str]:
        """Take over ``state``, and commit the pending files. Returns the final names of files that are neither pending
        nor committed."""
        self.take_over(state)
        pending, self.pending = self.pending, []
        return [file.target for file in pending if not self._settings.writer.commit_after_recovery(file)]

    def take_over(self, state: BucketState) -> None:
        """Resume the open part, or else make it pending; take over the booked files."""
        writer = self._settings.writer
        if state.in_progress is not None:
            temporary, target, size_bytes, created_at_ms = state.in_progress
            resumed = ResumeHandle(temporary, target, size_bytes)
            if writer.supports_resume():
                self.part = self._settings.encoder.open(writer.recover(resumed), self.id, created_at_ms)
                if writer.requires_cleanup():
                    self._persisted[_RESTORED] = resumed
            else:
                self.pending.append(resumed.as_pending())
        self.pending += [PendingFile(*file) for _, files in state.booked for file in files]

    def merge(self, later: Bucket) -> None:
        """Take over the open part of another restored bucket of this id."""
        assert not later.pending_by_checkpoint, "a restored bucket has committed what was booked"
        later.close_part()
        self.pending += later.pending
        later.pending = []

    def dispose(self) -> None:
        """Close the open part without any promise."""
        part, self.part = self.part, None
        if part is not None:
            part.dispose()

    def uncommitted(self) -> list[tuple[str, str]]:
        """For people: files that readers do not see yet, by how far they are, and their amount."""
        booked = self.pending_by_checkpoint.items()
        told = [(f"for checkpoint {number}", f"{len(files)} closed") for number, files in booked]
        told += [("since the last checkpoint", f"{len(self.pending)} closed")] if self.pending else []
        return told if self.part is None else [*told, ("open", f"{self.part.size_bytes:,} B")]

    def fingerprint(self) -> object:
        part = self.part
        return (
            self.id,
            self.names.owner,
            self.next_counter,
            self._outdated,
            None if part is None else (part.stream.temporary, part.size_bytes, part.created_at_ms, part.last_update_ms),
            tuple(self.pending),
            tuple((known, tuple(files)) for known, files in self.booked()),
        )
