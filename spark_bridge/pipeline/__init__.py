"""Jobs on Spark: the operators, state backends and sinks of a job run on executors, a batch at a time, and each batch
ends with a checkpoint of Weir. ``batch_execution`` is one run; ``batch_driver`` decides about its batches, with
``coordinator_desk`` for operator coordinators and ``completion`` for operators that act after a checkpoint. ``query``
and ``batch_source`` are the streaming query. ``stages`` cuts the plan, ``batch_stages`` goes through a batch,
``stage_function`` runs one partition of a stage, ``subtask_batch`` one subtask in it, in its ``subtask_surroundings``;
``packed_elements`` are the bytes in between, and ``checksums`` compares them. ``stage_closing`` and
``period_files`` are for Spark transforms. ``refusals`` names the jobs that cannot run there.
"""

from __future__ import annotations

from spark_bridge.pipeline.batch_execution import BatchExecution as BatchExecution
from spark_bridge.pipeline.query import spark_execution as spark_execution
from spark_bridge.pipeline.refusals import check_plan as check_plan
from spark_bridge.pipeline.stages import explain_stages as explain_stages
from spark_bridge.session import check_installed as check_installed
