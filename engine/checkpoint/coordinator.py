"""The checkpoint coordinator: when a checkpoint begins, what it waits for, when it is complete (or not).

Theory of operation (Flink: ``CheckpointCoordinator``)
-----------------------------------------------------
*Life.* IDLE: requests are served, periodic ones fail. SCHEDULING (``start``: all tasks run): the timer is armed too.
``stop`` (the job left the running state, for whatever reason) aborts everything queued and pending. SHUT_DOWN is final.

*Timer.* One planned time. Firing: plan += interval, then a periodic request is submitted. No drift, no coupling to
completions; a request that comes too early for the pause is dropped and the plan moved to the end of the pause.
(Flink draws a random delay for the first firing; here a driver may pass one in as ``first_delay_ns``, otherwise the
first firing comes after one interval.)

*Trigger.* Choose a request, make the plan, draw an id (a later failure leaves a gap), register the checkpoint and arm
its timeout, initialize the location, send the triggers. One trigger at a time.

*Completion.* All tasks acknowledged -> write the metadata -> only when that is durable: retain it, subsume surplus
ones, abort older pending ones, then notify the tasks; delete what was subsumed last. Metadata is written for one
checkpoint at a time, and nothing aborts a checkpoint whose metadata is being written: it may be durable already.
(Flink has both because it holds the coordinator's lock meanwhile.) A driver must therefore hear the outcome of a
``WriteMetadata`` before it asks for the ``restore_point``.

*Ids* start at 1, grow, and are never used twice, restarts included.

*Attempts.* Messages carry the attempt they were sent in; those of an older attempt change nothing.

Every ``InitializeLocation``, ``WriteMetadata``, ``DiscardPendingCheckpoint`` and ``DiscardCheckpoint`` must be
answered: triggers wait for the first, restores for the second, and with more than ``max_concurrent`` deletions
outstanding nothing new is triggered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

from engine.checkpoint.completed_store import CompletedCheckpoint, CompletedCheckpointStore, JobStatus
from engine.checkpoint.coordinator_config import CoordinatorConfig
from engine.checkpoint.failure_manager import CheckpointFailureManager
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import (
    NONE_SUBSUMED,
    Acknowledge,
    ArmPeriodicTimer,
    ArmTimeout,
    CoordinatorInstruction,
    CoordinatorInstructions,
    Decline,
    DisarmPeriodicTimer,
    DisarmTimeout,
    DiscardAcknowledgedState,
    DiscardCheckpoint,
    DiscardPendingCheckpoint,
    FailJob,
    IgnoredBecause,
    InitializeLocation,
    MessageIgnored,
    NotifyAborted,
    NotifyComplete,
    RequestCompleted,
    RequestFailed,
    SendTrigger,
    TaskId,
)
from engine.checkpoint.options import options_for
from engine.checkpoint.pending import PendingCheckpoint, PendingPhase
from engine.checkpoint.plan import (
    CheckpointGraph,
    PartlyFinishedUnionStateError,
    TasksNotRunningError,
    TaskStatus,
    compute_checkpoint_plan,
)
from engine.checkpoint.requests import (
    CheckpointRequestDecider,
    Decision,
    RequestedForm,
    Situation,
    TriggerRequest,
)
from engine.checkpoint.statistics import CheckpointStatistics
from engine.elements.events import CheckpointBarrier

_REMEMBERED_EXPIRED = 16
"""Expired ids that are told apart from unknown ones (Flink: ``NUM_GHOST_CHECKPOINT_IDS``)."""

_Out = list[CoordinatorInstruction]


class CoordinatorState(Enum):
    """Where in its life the coordinator is."""

    IDLE = "idle"
    SCHEDULING = "scheduling"
    SHUT_DOWN = "shut_down"
