"""A job as a Structured Streaming query: one batch after the other, each with one action, and more for transforms."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from engine.graph.plan import ExecutionPlan
from engine.observe.trace_events import Instrument
from engine.runtime.config import RunConfig
from engine.runtime.storage import SavepointRestore
from spark_bridge.batch_function import run_function
from spark_bridge.batch_times import timed_batch
from spark_bridge.crossing import RowSchema, parse_schema
from spark_bridge.jvm import beside, is_connection_error
from spark_bridge.pipeline.batch_driver import BatchDriver
from spark_bridge.pipeline.batch_execution import BatchExecution
from spark_bridge.pipeline.batch_stages import FRAMES, BatchStages, without_functions
from spark_bridge.pipeline.checksums import Sent, SentOutputs, differing_attempts, not_deterministic
from spark_bridge.pipeline.executor_checks import check_executors, cores_of, few_cores
from spark_bridge.pipeline.giving_up import told
from spark_bridge.pipeline.period_files import ClosedPeriod, store_results
from spark_bridge.pipeline.stage_closing import ClosingOrder, closing_function
from spark_bridge.pipeline.stage_function import ROW_SCHEMA, Rows, StageOrder, stage_function
from spark_bridge.pipeline.stages import stages_of
from spark_bridge.pipeline.subtask_batch import BatchOrder
from spark_bridge.result_columns import See
from spark_bridge.session import SessionSettings, get_session, session_log_tail
from spark_bridge.transform import SparkTransform
from state_backends.codec import default_codec
from state_backends.snapshots import WORKING_DIR_NAME, CheckpointStorage

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_WEIR = ("engine", "operators", "state_backends", "spark_bridge")


class SparkDataflow:
    """Moves rows with Spark. ``source_rows``: the frame of the present batch, set before each."""

    def __init__(self) -> None:
        self.source_rows: DataFrame
        self._order: BatchOrder
        self._sent: Accumulator[Sent] | None = None

    def source(self) -> DataFrame:
        self._attempts().value = {}
        return self.source_rows

    def stored(self, partitions: int) -> DataFrame:
        return self.source_rows.sparkSession.range(0, partitions, 1, partitions)

    def run(self, frame: DataFrame, order: StageOrder) -> DataFrame:
        self._order = order.batch
        order = replace(order, tell=self._attempts().add)
        return self._mapped(frame, order, stage_function(order))

    def close(self, frame: DataFrame, order: ClosingOrder) -> DataFrame:
        return self._mapped(frame, order.stage, closing_function(order))

    def _mapped(self, frame: DataFrame, order: StageOrder, function: Callable[[Rows], Rows]) -> DataFrame:
        from pyspark.sql import functions as f

        if order.stage.number and not order.stored:
            frame = frame.repartitionById(len(order.stage.subtasks), f.col("target"))
        return frame.mapInArrow(function, ROW_SCHEMA)

    def told(self, frame: DataFrame) -> list[tuple[int, bytes]]:
        from pyspark.sql import functions as f

        try:
            rows = frame.where(f.col("subtask") < 0).select("subtask", "payload").collect()
        except Exception:
            self._check_attempts(self._order)
            raise
        return [(row.subtask, bytes(row.payload)) for row in rows]

    def schema(self, ddl: str) -> RowSchema:
        return parse_schema(ddl)

    def results(self, spec: SparkTransform, closed: Sequence[ClosedPeriod], label: str, see: See) -> Sequence[str]:
        reader = self.source_rows.sparkSession.read.schema(parse_schema(spec.rows_schema).spark)
        frame = reader.parquet(*(_hadoop_path(one.directory) for one in closed))
        store = partial(store_results, directory=closed[0].directory)
        with timed_batch(label, sum(one.rows for one in closed)):
            return run_function(
                spec.fn, frame, store, label=label, result_schema=spec.result_schema, period_column=spec.period_column,
                see=see,
            )  # fmt: skip

    def _attempts(self) -> Accumulator[Sent]:
        if self._sent is None:
            context = self.source_rows.sparkSession.sparkContext
            self._sent = context.accumulator({}, SentOutputs())  # type: ignore[arg-type]
        return self._sent

    def _check_attempts(self, order: BatchOrder) -> None:
        """Spark gives up when the output of a stage has changed, and does not say whose."""
        subtask = differing_attempts(self._attempts().value, order.barrier.checkpoint_id)
        if subtask is not None:
            raise not_deterministic(order.plan, subtask, order.barrier.checkpoint_id)


def _hadoop_path(path: str) -> str:
    """A path for Spark's readers, which take brackets and stars for patterns."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def run_query(session: SparkSession, driver: BatchDriver, flow: SparkDataflow) -> None:
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
                flow.source_rows = rows
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
    flow, types = SparkDataflow(), tuple(default_codec().registry.of_users())

    def run_all(driver: BatchDriver) -> None:
        send_modules_of_the_job()
        session = get_session(None if master is None else SessionSettings(master=master))
        directories = [posixpath.join(storage.job_dir, WORKING_DIR_NAME), output_dir]
        try:
            probe = f".weir-probe-{posixpath.basename(storage.job_dir)}"
            check_executors(session, directories, probe, incarnation, (without_functions(driver.plan), types))
        except Exception as error:
            raise told(error, session_log_tail) from None
        if (note := few_cores(driver.plan, cores_of(session))) is not None:
            driver.notes.append(note)
        try:
            run_query(session, driver, flow)
        finally:
            # Those of a driver that has died, too.
            shutil.rmtree(os.path.join(storage.job_dir, FRAMES), ignore_errors=True)

    return BatchExecution(
        plan,
        config,
        storage=storage,
        incarnation=incarnation,
        output_dir=output_dir,
        run_batch=BatchStages(flow, types).run,
        run_all=run_all,
        restore=restore,
        restore_from=restore_from,
        instruments=instruments,
    )
