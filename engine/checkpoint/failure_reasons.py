"""Why a checkpoint failed, and what each reason means for the failure budget (Flink: ``CheckpointFailureReason``).

A reason has two properties. *Counted*: does it use up the tolerable failures? Only five do; the others say that the
checkpoint came at a bad moment, not that checkpointing is broken. *Pre-flight*: it happens before any task saw the
trigger, so no task can be blamed for it.
"""

from __future__ import annotations

from enum import Enum


class CheckpointFailureReason(Enum):
    """The reasons by Flink's names (1.20)."""

    PERIODIC_SCHEDULER_SHUTDOWN = "periodic checkpoints are not being scheduled"
    TOO_MANY_CHECKPOINT_REQUESTS = "too many checkpoint requests are waiting"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "the minimum pause since the last completed checkpoint is not over"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "not all required tasks are running"
    IO_EXCEPTION = "an I/O error"
    BLOCKING_OUTPUT_EXIST = "the job has a blocking output"
    CHECKPOINT_ASYNC_EXCEPTION = "writing the snapshot of a task failed"
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = "a shared channel-state stream failed because of another checkpoint"
    CHECKPOINT_EXPIRED = "the checkpoint did not complete within its timeout"
    CHECKPOINT_SUBSUMED = "a newer checkpoint completed first"
    CHECKPOINT_DECLINED = "a task declined the checkpoint"
    CHECKPOINT_DECLINED_TASK_NOT_READY = "a task was not ready yet"
    CHECKPOINT_DECLINED_TASK_CLOSING = "a task was closing or partly finished"
    CHECKPOINT_DECLINED_SUBSUMED = "a barrier of a newer checkpoint arrived during alignment"
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = "a cancel marker arrived from upstream"
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = "an input ended during alignment"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "the coordinator has shut down"
    CHECKPOINT_COORDINATOR_SUSPEND = "the job left the running state"
    JOB_FAILOVER_REGION = "the job is being restored"
    TASK_FAILURE = "a task failed"
    TASK_CHECKPOINT_FAILURE = "a task failed while it took the snapshot"
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = "a notification could not be delivered to a task"
    FINALIZE_CHECKPOINT_FAILURE = "the checkpoint could not be finalized"
    TRIGGER_CHECKPOINT_FAILURE = "the checkpoint could not be triggered"

    @property
    def counted(self) -> bool:
        """Whether it counts against the tolerable failures."""
        return self in _COUNTED

    @property
    def pre_flight(self) -> bool:
        """Whether it happens before any task saw the trigger."""
        return self in _PRE_FLIGHT


_COUNTED = (
    CheckpointFailureReason.IO_EXCEPTION,
    CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
    CheckpointFailureReason.CHECKPOINT_DECLINED,
    CheckpointFailureReason.CHECKPOINT_EXPIRED,
    CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
)

_PRE_FLIGHT = (
    CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN,
    CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS,
    CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS,
    CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING,
    CheckpointFailureReason.IO_EXCEPTION,
    CheckpointFailureReason.BLOCKING_OUTPUT_EXIST,
)
