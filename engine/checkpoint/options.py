"""Which barriers a snapshot gets (Flink: ``CheckpointOptions.forConfig``).

At-least-once mode: barriers that block nobody. Savepoints, and everything while unaligned checkpoints are off:
aligned without a timeout. Unaligned without a timeout (or with 0): unaligned. Else aligned with that timeout.
"""

from __future__ import annotations

from engine.elements.events import AlignmentType, CheckpointOptions, SnapshotKind


def configured_options(
    *, exactly_once: bool = True, unaligned: bool = False, aligned_timeout_ns: int | None = None
) -> CheckpointOptions:
    """What an ordinary checkpoint carries; ``aligned_timeout_ns`` ``None`` or 0 means unaligned at once."""
    if not exactly_once:
        return CheckpointOptions(AlignmentType.AT_LEAST_ONCE)
    if not unaligned:
        return CheckpointOptions(AlignmentType.ALIGNED)
    if not aligned_timeout_ns:
        return CheckpointOptions(AlignmentType.UNALIGNED)
    return CheckpointOptions(AlignmentType.ALIGNED, aligned_timeout_ns=aligned_timeout_ns)


def options_for(configured: CheckpointOptions, kind: SnapshotKind) -> CheckpointOptions:
    """What a snapshot of ``kind`` carries in a job whose ordinary checkpoints carry ``configured``."""
    if kind is SnapshotKind.SAVEPOINT and configured.alignment is not AlignmentType.AT_LEAST_ONCE:
        # A savepoint must be readable by another job: no in-flight data of this one.
        return CheckpointOptions(AlignmentType.ALIGNED, kind)
    return CheckpointOptions(configured.alignment, kind, configured.aligned_timeout_ns)


def needs_channel_state(options: CheckpointOptions) -> bool:
    """Whether records in flight may become part of the snapshot."""
    return options.alignment is AlignmentType.UNALIGNED or options.timeoutable
