"""One run of a job on Spark, with the result of a run in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.elements.errors import StorageError, WeirError
from engine.graph.plan import ExecutionPlan, SubtaskPlan
from engine.observe.trace_events import AttemptStarted, Instrument, RunEnded, RunStarted, TraceEvent
from engine.runtime.config import RunConfig
from engine.runtime.execution import ExecutionResult
from engine.runtime.job import FAILED, FINISHED, Restore, TaskReport
from engine.runtime.kernel import START_NS, ChoiceRecorder
from engine.runtime.storage import RestoredJob, SavepointRestore, unusable_storage
from spark_bridge.pipeline.batch_driver import BatchDriver, RunBatch
from spark_bridge.pipeline.refusals import check_plan
from state_backends.snapshots import CheckpointStorage

RunAll = Callable[[BatchDriver], None]
"""Runs batches until the job is over."""

_DEFAULT_RECORDS = 1_000_000


class BatchExecution:
    """A run, prepared. ``storage`` is held by this process. ``run_batch`` runs the subtasks of one batch, ``run_all``
    one batch after the other."""

    def __init__(
        self,
        plan: ExecutionPlan,
        config: RunConfig,
        *,
        storage: CheckpointStorage,
        incarnation: int,
        output_dir: str,
        run_batch: RunBatch,
        run_all: RunAll,
        restore: bool = False,
        restore_from: SavepointRestore | None = None,
        instruments: Sequence[Instrument] = (),
    ) -> None:
        """``restore``: go on from the newest usable checkpoint in ``storage``, from nothing if there is none;
        ``restore_from``: start from this savepoint or checkpoint.

        Raises :class:`engine.elements.errors.JobGraphError` when the job cannot run in batches.
        """
        check_plan(plan, config)
        interval = config.checkpoint_interval
        records = (interval and interval.records) or _DEFAULT_RECORDS
        # Long enough for all the records, which take virtual time.
        span_ns = max(1_000_000_000, 2 * records * config.cost.source_record_ns)
        self.driver = BatchDriver(
            plan,
            config,
            storage,
            incarnation,
            output_dir,
            run_batch,
            source_records=records,
            interval_ns=(interval and interval.time_ns) or span_ns,
            instruments=instruments,
        )
        self._instruments = instruments
        self._config = config
        self._incarnation = incarnation
        self._run_all = run_all
        self._restore = restore
        self._restore_from = restore_from

    def run(self) -> ExecutionResult:
        """Run to the end. A failed job is a result, not an exception."""
        driver = self.driver
        error: Exception | None = None
        restored, problems = self._starting_point()
        started_ns = START_NS if restored is None else max(START_NS, restored.timestamp_ns)
        checkpoint_id = None if restored is None else restored.checkpoint_id
        plan, config = driver.plan, self._config
        self._trace(
            RunStarted(started_ns, plan.job_name, plan.fingerprint, config.mode, config.seed, self._incarnation)
        )
        self._trace(AttemptStarted(started_ns, 1, checkpoint_id))
        try:
            driver.begin(restored)
            if not driver.is_over:
                self._run_all(driver)
        except WeirError as failure:
            error = failure
        except OSError as failure:
            error = unusable_storage(driver.files.storage.job_dir, failure)
        finally:
            driver.close()
        state = FINISHED if error is None else FAILED
        self._trace(RunEnded(driver.now_ns, state))
        return ExecutionResult(
            state=state,
            error=error,
            attempts=1,
            incarnation=self._incarnation,
            started_ns=started_ns,
            ended_ns=driver.now_ns,
            restores=(Restore(1, checkpoint_id, started_ns, problems),),
            source_records=driver.source_records,
            checkpoints=driver.checkpoints,
            counters=driver.counters,
            tasks=tuple(map(self._report, driver.plan.subtasks)),
            choices=ChoiceRecorder("0"),
            notes=tuple(driver.notes),
            events_executed=0,
            losses=tuple(driver.losses),
        )

    def _report(self, subtask: SubtaskPlan) -> TaskReport:
        came, went = self.driver.records.get(subtask.index, (0, 0))
        vertex = self.driver.plan.vertices[subtask.vertex].name
        state = FINISHED if self.driver.is_over else FAILED
        return TaskReport(subtask.name, vertex, subtask.subtask, came, went, state, 1, came, went)

    def _trace(self, event: TraceEvent) -> None:
        for instrument in self._instruments:
            instrument(event)

    def _starting_point(self) -> tuple[RestoredJob | None, tuple[str, ...]]:
        files = self.driver.files
        if self._restore_from is not None:
            files.adopt(self._restore_from)
        if not self._restore and self._restore_from is None:
            return None, ()
        restored, problems = files.latest()
        if restored is None and (problems or self._restore_from is not None):
            # A fresh start would commit a second time the records that these checkpoints have committed.
            raise StorageError("\n  ".join(["there is nothing to start from", *problems]))
        return restored, problems
