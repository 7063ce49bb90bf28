"""What comes after a failure: ``restart`` says whether and when the job is deployed again, ``restore_plan`` which state
each new subtask gets. ``redistribution`` splits keyed and operator state over another parallelism, ``state_mapping``
the records in flight.
"""

from __future__ import annotations

from engine.checkpoint.restore.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from engine.checkpoint.restore.restore_plan import (
    RestorePlan,
    RestoreTarget,
    RestoreVertex,
    UnmatchedStateError,
    check_finished_markers,
    plan_restore,
)
from engine.checkpoint.restore.state_mapping import (
    ChannelStateEdge,
    UnsupportedMappingError,
    needs_filter,
    plan_channel_state,
)

__all__ = [
    "ChannelStateEdge",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FixedDelayRestart",
    "NoRestart",
    "RestartStrategy",
    "RestorePlan",
    "RestoreTarget",
    "RestoreVertex",
    "UnmatchedStateError",
    "UnsupportedMappingError",
    "check_finished_markers",
    "needs_filter",
    "plan_channel_state",
    "plan_restore",
]
