"""The job as a whole. ``job_manager`` hears what tasks report; ``task_deployment`` builds and starts the tasks of an
attempt, and knows which go down together; ``checkpoint_driver`` carries out what the checkpoint coordinator says;
``failover`` decides what is deployed after a failure. ``requested_savepoints`` are what users ask for,
``operator_coordinators`` what operators bring along. ``end_of_input`` says who may finish when; ``job_state`` and
``record_counts`` say how far the job has come.
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
from engine.runtime.job.record_counts import TaskReport as TaskReport
from engine.runtime.job.requested_savepoints import SavepointOrder as SavepointOrder, SavepointReport as SavepointReport
from engine.runtime.job.task_deployment import Restore as Restore
