"""When a checkpoint begins, what it waits for, when it is complete, and how long it is kept. ``coordinator`` takes the
events; its docstring describes each of its parts. ``coordinator_messages`` holds the messages of tasks and the
coordinator's answers. Beside it: ``subtask_gateways`` (events of operator coordinators around a barrier),
``stop_with_savepoint``, and ``checkpoint_statistics``, the table.
"""

from __future__ import annotations

from engine.checkpoint.coordinator.checkpoint_statistics import (
    CheckpointRow as CheckpointRow,
    CheckpointStatistics as CheckpointStatistics,
    CheckpointStatus as CheckpointStatus,
    RestoreRow as RestoreRow,
    SubtaskRow as SubtaskRow,
    spreads as spreads,
)
from engine.checkpoint.coordinator.coordinator import (
    FINAL_CHECKPOINT as FINAL_CHECKPOINT,
    CheckpointCoordinator as CheckpointCoordinator,
)
from engine.checkpoint.coordinator.coordinator_config import (
    CoordinatorConfig as CoordinatorConfig,
    JobStatus as JobStatus,
)
from engine.checkpoint.coordinator.coordinator_messages import (
    NONE_COMPLETED as NONE_COMPLETED,
    NONE_SUBSUMED as NONE_SUBSUMED,
    Acknowledge as Acknowledge,
    ArmPeriodicTimer as ArmPeriodicTimer,
    ArmTimeout as ArmTimeout,
    CoordinatorInstruction as CoordinatorInstruction,
    Decline as Decline,
    DisarmPeriodicTimer as DisarmPeriodicTimer,
    DisarmTimeout as DisarmTimeout,
    DiscardAcknowledgedState as DiscardAcknowledgedState,
    DiscardCheckpoint as DiscardCheckpoint,
    DiscardPendingCheckpoint as DiscardPendingCheckpoint,
    DiscardSharedState as DiscardSharedState,
    FailJob as FailJob,
    FinishedState as FinishedState,
    IgnoredBecause as IgnoredBecause,
    InitializeLocation as InitializeLocation,
    MessageIgnored as MessageIgnored,
    NotifyAborted as NotifyAborted,
    NotifyComplete as NotifyComplete,
    NotifyCoordinatorsAborted as NotifyCoordinatorsAborted,
    NotifyCoordinatorsComplete as NotifyCoordinatorsComplete,
    RequestCompleted as RequestCompleted,
    RequestFailed as RequestFailed,
    SendTrigger as SendTrigger,
    SnapshotOperatorCoordinators as SnapshotOperatorCoordinators,
    SubtaskCheckpointMetrics as SubtaskCheckpointMetrics,
    TaskId as TaskId,
    WriteMetadata as WriteMetadata,
)
from engine.checkpoint.coordinator.deployment import (
    CheckpointEdge as CheckpointEdge,
    CheckpointGraph as CheckpointGraph,
    TaskStatus as TaskStatus,
)
from engine.checkpoint.coordinator.pending import TriggerRequest as TriggerRequest
from engine.checkpoint.coordinator.retained_checkpoints import CompletedCheckpoint as CompletedCheckpoint
from engine.checkpoint.coordinator.shared_state_registry import (
    RestoreMode as RestoreMode,
    SharedState as SharedState,
    SharingFilesStrategy as SharingFilesStrategy,
)
from engine.checkpoint.coordinator.spread import Spread as Spread
from engine.checkpoint.coordinator.stop_with_savepoint import (
    FailGlobally as FailGlobally,
    StartScheduler as StartScheduler,
    StopFailed as StopFailed,
    StopInstruction as StopInstruction,
    StopScheduler as StopScheduler,
    StopSucceeded as StopSucceeded,
    StopWithSavepoint as StopWithSavepoint,
    TaskTermination as TaskTermination,
    TriggerSynchronousSavepoint as TriggerSynchronousSavepoint,
)
from engine.checkpoint.coordinator.subtask_gateways import CoordinatorGateways as CoordinatorGateways
