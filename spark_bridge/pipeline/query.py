"""A job as a Structured Streaming query: one batch after the other, each with exactly one action."""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from engine.graph.plan import ExecutionPlan
from engine.observe.trace_events import Instrument
from engine.runtime.config import RunConfig
from engine.runtime.storage import SavepointRestore
from spark_bridge.jvm import beside, is_connection_error
from spark_bridge.pipeline.batch_driver import BatchDriver
from spark_bridge.pipeline.batch_execution import BatchExecution
from spark_bridge.pipeline.checksums import Sent, SentOutputs, differing_attempts, not_deterministic
from spark_bridge.pipeline.executor_checks import check_executors
from spark_bridge.pipeline.giving_up import told
from spark_bridge.pipeline.stage_function import DRIVER, StageOrder, read_report, stage_function
from spark_bridge.pipeline.stages import stages_of
from spark_bridge.pipeline.subtask_batch import BatchOrder, SubtaskReport
from spark_bridge.session import SessionSettings, get_session, session_log_tail
from state_backends.codec import RegisteredType, default_codec
from state_backends.snapshots import WORKING_DIR_NAME, CheckpointStorage

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_WEIR = ("engine", "operators", "state_backends", "spark_bridge")


class SparkStages:
    """Runs the subtasks of a batch on Spark. ``source``: the rows of the present batch, set before each."""

    def __init__(self, plan: ExecutionPlan, types: Sequence[RegisteredType]) -> None:
        self.source: DataFrame
        self.types = tuple(types)
        self._stages = stages_of(plan)
        self._subtask_of = {(one.vertex, one.subtask): one.index for one in plan.subtasks}
        self._sent: Accumulator[Sent] | None = None

    def run(self, order: BatchOrder) -> Sequence[SubtaskReport]:
        """All stages, and one action: it brings the reports."""
        from pyspark.sql import functions as f

        frame, schema = self.source, self.source.schema
        if self._sent is None:
            self._sent = frame.sparkSession.sparkContext.accumulator({}, SentOutputs())  # type: ignore[arg-type]
        self._sent.value = {}
        for stage, following in zip(self._stages, [*self._stages[1:], None], strict=True):
            if stage.number:
                frame = frame.repartitionById(len(stage.subtasks), f.col("target"))
            details = StageOrder(order, stage, following, self.types, self._subtask_of, self._sent.add)
            frame = frame.mapInArrow(stage_function(details), schema)
        try:
            rows = frame.where(f.col("subtask") == DRIVER).select("payload").collect()
        except Exception:
            self._check_attempts(order)
            raise
        return [read_report(bytes(row.payload)) for row in rows]

    def _check_attempts(self, order: BatchOrder) -> None:
        """Spark gives up when the output of a stage has changed, and does not say whose."""
        assert self._sent is not None
        subtask = differing_attempts(self._sent.value, order.barrier.checkpoint_id)
        if subtask is not None:
            raise not_deterministic(order.plan, subtask, order.barrier.checkpoint_id)


def run_query(session: SparkSession, driver: BatchDriver, stages: SparkStages) -> None:
    """Run batches until the job is over.

    Raises the error of the job, and :class:`SparkBridgeError` when Spark gives up.
    """
    from spark_bridge.pipeline.batch_source import FORMAT, BatchSource

    sources = ",".join(str(one.index) for one in stages_of(driver.plan)[0].subtasks)
    failed: list[BaseException] = []
    with _directory() as directory:
        over = os.path.join(directory, "over")

        def run_batch(rows: DataFrame, _number: int) -> None:
            try:
                stages.source = rows
                driver.run_batch()
                if driver.is_over:
                    with open(over, "x", encoding="utf-8"):
                        pass
            except BaseException as error:
                failed.append(error)
                raise

        try:
            session.dataSource.register(BatchSource)
            query = (
                session.readStream.format(FORMAT)
                .options(subtasks=sources, over=over)
                .load()
                .writeStream.foreachBatch(run_batch)
                .option("checkpointLocation", os.path.join(directory, "query"))
                .trigger(availableNow=True)
                .start()
            )
            try:
                beside(query.awaitTermination)
            finally:
                # No batch may go on once the storage is released.
                beside(partial(_stop, session, query))
        except Exception as error:
            raise told(failed[0] if failed else error, session_log_tail) from None


def _stop(session: SparkSession, query: StreamingQuery) -> None:
    try:
        # A query in the middle of a batch, after Ctrl-C, would end it first.
        session.sparkContext.cancelJobGroup(str(query.runId))
        query.stop()
    except Exception as error:
        # With the JVM the query is gone, too.
        if not is_connection_error(error):
            raise


def send_modules_of_the_job() -> None:
    """Have functions of modules that are not installed travel with the job: executors cannot import the job file, nor a
    module beside it."""
    from pyspark import cloudpickle

    installed = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path is None or name == "__main__" or name.partition(".")[0] in _WEIR:
            continue
        if not any(os.path.realpath(path).startswith(root + os.sep) for root in installed):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


@contextmanager
def _directory() -> Iterator[str]:
    """Spark's own logs of the query: they are of no use to the next process."""
    directory = tempfile.mkdtemp(prefix="weir-query-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def spark_execution(
    plan: ExecutionPlan,
    config: RunConfig,
    *,
    master: str | None,
    storage: CheckpointStorage,
    incarnation: int,
    output_dir: str,
    restore: bool = False,
    restore_from: SavepointRestore | None = None,
    instruments: Sequence[Instrument] = (),
) -> BatchExecution:
    """A run of a job on Spark, prepared. ``master``: the URL of a Spark master, ``None`` = two local cores.

    Raises what :class:`BatchExecution` raises. The run starts the session; a caller that wants to know before whether
    it can start calls :func:`check_installed`.
    """
    stages = SparkStages(plan, default_codec().registry.of_users())

    def run_all(driver: BatchDriver) -> None:
        send_modules_of_the_job()
        session = get_session(None if master is None else SessionSettings(master=master))
        directories = [posixpath.join(storage.job_dir, WORKING_DIR_NAME), output_dir]
        try:
            check_executors(session, directories, f".weir-probe-{incarnation}", (driver.plan, stages.types))
        except Exception as error:
            raise told(error, session_log_tail) from None
        run_query(session, driver, stages)

    return BatchExecution(
        plan,
        config,
        storage=storage,
        incarnation=incarnation,
        output_dir=output_dir,
        run_batch=stages.run,
        run_all=run_all,
        restore=restore,
        restore_from=restore_from,
        instruments=instruments,
    )
