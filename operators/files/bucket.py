"""Buckets of a file sink: their ids, and the state of one bucket (Flink: ``Bucket``).

Naming (StreamingFileSink): a final name is ``{prefix}-{subtask}-{counter}{suffix}``. Each bucket has its
own next counter; a new bucket starts at the greatest counter of its subtask. So two finished files never
share a name, also when a bucket became inactive and appears again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

from operators.files.recoverable_writer import InProgressFile, PendingFile

_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\{\[\]^\x7f]""")


def partition_path(**columns: object) -> str:
    """A bucket id in Hive's style: ``partition_path(year=2013, day=1)`` is ``"year=2013/day=1"``.

    Special characters are written as ``%XX``; ``None`` and the empty text as ``__DEFAULT_PARTITION__``
    (Flink: ``PartitionPathUtils``).
    """
    parts = []
    for name, value in columns.items():
        text = "" if value is None else str(value)
        parts.append(f"{_escape(name)}={_escape(text) or '__DEFAULT_PARTITION__'}")
    return "/".join(parts)


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match.group()):02X}", text)


def check_bucket_id(bucket: object) -> str:
    """``bucket``, if it is a directory below the sink's that readers see. Raises ``TypeError``, ``ValueError``."""
    if not isinstance(bucket, str):
        raise TypeError(f"a bucket is a str, got {type(bucket).__name__} {bucket!r}")
    for part in bucket.split("/") if bucket else ():
        if part in ("", ".", "..") or part.startswith((".", "_")) or "\0" in part:
            raise ValueError(
                f"bucket {bucket!r} is no path below the sink's directory that readers see: parts must not be "
                "empty, '..', or start with '.' or '_'"
            )
    return bucket


class RollingPolicy(Protocol):
    """When a part file is closed besides at every checkpoint (Flink: ``CheckpointRollingPolicy``)."""

    rolls_on_event: bool
    """Whether ``should_roll_on_event`` can ever be true; if not, it is never asked and batches are written whole."""

    def should_roll_on_event(self, size_bytes: int, opened_at_ms: int, now_ms: int) -> bool:
        """Whether the open part is closed before the next record is written to it."""


class OnCheckpointRollingPolicy:
    """Parts are closed at checkpoints and at no other time, so nothing open is ever in the state."""

    rolls_on_event = False

    def should_roll_on_event(self, size_bytes: int, opened_at_ms: int, now_ms: int) -> bool:
        """Never."""
        return False


@dataclass(slots=True)
class Bucket:
    """One bucket of one subtask.

    ``pending`` are files closed since the last snapshot, ``pending_by_checkpoint`` those of snapshots that
    have not been confirmed yet.
    """

    id: str
    next_counter: int
    open_file: InProgressFile | None = None
    pending: list[PendingFile] = field(default_factory=list)
    pending_by_checkpoint: dict[int, list[PendingFile]] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether it holds anything that is not committed."""
        return bool(self.open_file or self.pending or self.pending_by_checkpoint)

    def close_part(self) -> None:
        """Close the open file, if there is one; it is committed with the next completed checkpoint."""
        if self.open_file is not None:
            self.pending.append(self.open_file.close_for_commit())
            self.open_file = None

    def on_snapshot(self, checkpoint_id: int) -> None:
        """Book what is pending under ``checkpoint_id``; nothing pending books nothing."""
        if self.pending:
            self.pending_by_checkpoint[checkpoint_id] = self.pending
            self.pending = []

    def take_confirmed(self, checkpoint_id: int) -> list[PendingFile]:
        """Take out the files of all checkpoints up to ``checkpoint_id``, oldest first."""
        confirmed = sorted(known for known in self.pending_by_checkpoint if known <= checkpoint_id)
        return [file for known in confirmed for file in self.pending_by_checkpoint.pop(known)]
