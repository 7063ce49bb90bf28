"""The job as a whole. ``job_manager`` takes the reports of tasks; ``task_deployment`` builds and starts the tasks of an
attempt, and knows which go down together; ``checkpoint_driver`` carries out the checkpoint coordinator's instructions;
``failover`` decides which tasks are deployed after a failure. ``requested_savepoints`` holds the savepoints that users
ask for, ``operator_coordinators`` the coordinators that operators bring along. ``end_of_input`` decides which tasks may
finish and when; ``job_state`` and ``record_counts`` say how far the job has come.
"""

from __future__ import annotations

from engine.runtime.job.failover import NO_RESTART_HELPS as NO_RESTART_HELPS, TaskKilledError as TaskKilledError
from engine.runtime.job.job_manager import JobManager as JobManager
from engine.runtime.job.job_state import (
    ENDED as ENDED,
    FAILED as FAILED,
    FINISHED as FINISHED,
    RUNNING as RUNNING,
    STOPPED as STOPPED,
)
from engine.runtime.job.operator_coordinators import OperatorCoordinators as OperatorCoordinators
from engine.runtime.job.record_counts import TaskReport as TaskReport
from engine.runtime.job.requested_savepoints import SavepointOrder as SavepointOrder, SavepointReport as SavepointReport
from engine.runtime.job.task_deployment import Restore as Restore
