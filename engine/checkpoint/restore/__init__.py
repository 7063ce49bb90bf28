"""After a failure: ``restart`` decides whether and when the job is deployed again, ``restore_plan`` which state
each new subtask gets. ``redistribution`` splits keyed and operator state over another parallelism, ``state_mapping``
the records in flight.
"""

from __future__ import annotations

from engine.checkpoint.restore.restart import (
    ExponentialDelayRestart as ExponentialDelayRestart,
    FailureRateRestart as FailureRateRestart,
    FixedDelayRestart as FixedDelayRestart,
    NoRestart as NoRestart,
    RestartStrategy as RestartStrategy,
)
from engine.checkpoint.restore.restore_plan import (
    RestorePlan as RestorePlan,
    RestoreTarget as RestoreTarget,
    RestoreVertex as RestoreVertex,
    UnmatchedStateError as UnmatchedStateError,
    check_finished_markers as check_finished_markers,
    plan_restore as plan_restore,
)
from engine.checkpoint.restore.state_mapping import (
    ChannelStateEdge as ChannelStateEdge,
    UnsupportedMappingError as UnsupportedMappingError,
    needs_filter as needs_filter,
    plan_channel_state as plan_channel_state,
)
