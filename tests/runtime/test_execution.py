"""A run as a whole: kills by name, reports, resuming, changed jobs, and runs that could never end."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobChangedError, JobFailedError
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.observe.trace_events import AttemptStarted, RunEnded, RunStarted
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from engine.runtime.job import TaskKilledError
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.files.sinks import FileSink, read_committed
from operators.sources import CollectionSource, SequenceSource
from state_backends.files import MemoryFileSystem
from tests.runtime.support import MS, US, Trace, every, execution, expected_counts, run, running_count

RECORDS = 60


def count_job(parallelism: int = 2) -> Job:
    """A count whose rows go to files."""
    job = Job("counted", parallelism=parallelism)
    pairs = job.source(SequenceSource(0, RECORDS, splits=4), name="numbers").key_by(
        lambda number: number % 5, value=lambda number: (number % 5, 1)
    )
    return pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count").sink(FileSink("rows"), name="out")


def rows_of(files: MemoryFileSystem) -> list[str]:
    return read_committed(files, "/out/rows").get("", [])


EXPECTED_ROWS = sorted(f"[{key},{count}]" for key, count in expected_counts(RECORDS, 5).elements())


@pytest.mark.parametrize(
    ("target", "killed"),
    [
        ("numbers[1]", {"numbers[1]"}),
        ("numbers", {"numbers[0]", "numbers[1]"}),
        ("count -> out[0]", {"count -> out[0]"}),
        ("count -> out", {"count -> out[0]", "count -> out[1]"}),
        ("count[1]", {"count -> out[1]"}),
        ("out", {"count -> out[0]", "count -> out[1]"}),
    ],
)
def test_kills_go_by_subtask_vertex_or_operator(target: str, killed: set[str]) -> None:
    """A name means one subtask or all of a vertex; an operator stands for the vertex it is chained into.

    The first of several ends the attempt, so the seed decides which one is seen to fail.
    """
    failed = set()
    for seed in range(10):
        made = execution(count_job(), kills=[(target, 10 * US)], restart=NoRestart(), seed=str(seed))

        result = made.run()

        failed |= {task.name for task in result.tasks if task.state == "failed"}
        assert result.error is not None
        assert isinstance(result.error.__cause__, TaskKilledError)
    assert failed == killed


def test_an_unknown_target_is_an_error_with_a_suggestion() -> None:
    """A misspelt task is refused before the run, with the nearest name and the list of tasks."""
    made = execution(count_job())

    with pytest.raises(ConfigurationError) as raised:
        made.kill("cuont[1]", 5)

    for part in ("'cuont[1]'", "did you mean 'count[1]'?", "numbers[0]", "count -> out[1]"):
        assert part in str(raised.value)


def test_a_kill_before_the_start_is_refused() -> None:
    """A run starts at 0."""
    with pytest.raises(ConfigurationError, match="-1 ns: a run starts at 0"):
        execution(count_job()).kill("count", -1)


def test_a_kill_after_the_end_strikes_nothing() -> None:
    """A kill planned for later than the end of the job has no effect."""
    result = run(count_job(), kills=[("count", 10**15)])

    assert result.attempts == 1


def test_the_result_tells_what_happened() -> None:
    """Times, records, tasks, restores and counters of a run with one restart add up."""
    trace = Trace()

    result = run(
        count_job(1),
        kills=[("count", 30 * US)],
        instruments=[trace],
        batch_size=5,
        checkpoint_interval=every(records=20),
        restart=FixedDelayRestart(3, 7 * US),
    )

    assert (result.state, result.error, result.attempts, result.incarnation) == ("finished", None, 2, 1)
    assert result.started_ns == START_NS
    assert [(one.attempt, one.checkpoint_id, one.time_ns - START_NS) for one in result.restores] == [
        (1, None, 0),
        (2, 1, 37 * US),
    ]
    tasks = {task.name: (task.vertex, task.subtask, task.records_in, task.records_out) for task in result.tasks}
    assert tasks == {
        "numbers[0]": ("numbers", 0, RECORDS - 20, RECORDS - 20),
        "count -> out[0]": ("count -> out", 0, RECORDS - 20, 0),
    }
    assert RECORDS + 10 <= result.source_records <= RECORDS + 15
    assert result.raise_on_failure() is result
    assert [one.state for one in trace.of(RunEnded)] == ["finished"]
    started = trace.of(RunStarted)[0]
    assert (started.job, started.mode, started.seed, started.incarnation) == ("counted", "aligned", "0", 1)
    assert started.plan_fingerprint == count_job(1).plan().fingerprint
    assert [one.attempt for one in trace.of(AttemptStarted)] == [1, 2]
    assert trace.events[-1].time_ns == result.ended_ns


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_a_resume_goes_on_where_the_checkpoint_was_taken(parallelism: int) -> None:
    """At any parallelism, and with the clock of the checkpoint, it completes the output of the first run."""
    files = MemoryFileSystem()
    settings: dict[str, Any] = {"file_system": files, "checkpoint_interval": every(ns=8 * US), "batch_size": 4}
    first = execution(count_job(2), kills=[("numbers", 22 * US)], restart=NoRestart(), **settings).run()
    before = rows_of(files)
    assert first.state == "failed"
    assert 0 < len(before) < RECORDS

    second = execution(count_job(parallelism), restore=True, incarnation=2, **settings).run().raise_on_failure()

    assert second.restores[0].checkpoint_id == 2
    assert second.started_ns == START_NS + 16 * US
    assert second.source_records == RECORDS - 32
    assert rows_of(files) == EXPECTED_ROWS
    assert min(row.checkpoint_id for row in second.checkpoints.rows()) > 2


def test_a_resume_without_checkpoints_starts_from_the_beginning() -> None:
    """Where no checkpoint was completed there is no state to restore, and the run begins anew."""
    files = MemoryFileSystem()

    result = execution(count_job(), file_system=files, restore=True).run().raise_on_failure()

    assert result.restores[0].checkpoint_id is None
    assert rows_of(files) == EXPECTED_ROWS


def test_resuming_a_finished_job_adds_nothing() -> None:
    """The last checkpoint holds the ends of all splits: a resume ends at once with the same output."""
    files = MemoryFileSystem()
    run(count_job(), file_system=files)

    result = execution(count_job(), file_system=files, restore=True, incarnation=2).run().raise_on_failure()

    assert result.source_records == 0
    assert rows_of(files) == EXPECTED_ROWS


def test_a_changed_job_is_refused_by_uid() -> None:
    """State that no operator claims stops the resume, unless that is allowed; the error names the uid."""
    files = MemoryFileSystem()
    run(count_job(), file_system=files)
    changed = Job("counted", parallelism=2)
    changed.source(SequenceSource(0, RECORDS, splits=4), name="numbers").sink(FileSink("other"), name="other")

    with pytest.raises(JobChangedError, match="count"):
        execution(changed, file_system=files, restore=True, incarnation=2).run()

    allowed = execution(changed, file_system=files, restore=True, incarnation=2, allow_non_restored_state=True).run()
    assert allowed.raise_on_failure().restores[0].checkpoint_id == 1


class Keeper(Operator):
    """Keeps a list in operator state, when told to."""

    def __init__(self, asks: bool, seen: list[Any]) -> None:
        self._asks = asks
        self._seen = seen

    def initialize_state(self) -> None:
        if self._asks:
            self._state = self.context.operator_backend().list_state("kept")
            self._seen.append(list(self._state.get()))
            self._state.update(["treasure"])

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(Batch(batch.values))


def test_operator_state_that_nobody_asks_for_is_refused() -> None:
    """It may hold data that waits for its checkpoint: the error names it, no restart follows; if allowed it is lost."""
    files = MemoryFileSystem()
    seen: list[Any] = []

    def keeper(incarnation: int, *, asks: bool, **settings: Any) -> Execution:
        job = Job("keeper").source(SequenceSource(0, 5), name="numbers")
        job.via(partial(Keeper, asks, seen), name="keeper", uid="keeper").collect([], name="out")
        return execution(job._job, file_system=files, restore=incarnation > 1, incarnation=incarnation, **settings)

    keeper(1, asks=True).run().raise_on_failure()
    keeper(2, asks=True).run().raise_on_failure()
    refused = keeper(3, asks=False).run()
    assert refused.attempts == 1
    with pytest.raises(JobFailedError, match=r"operator state of 'keeper' .* that it does not ask for") as told:
        refused.raise_on_failure()
    assert told.value.exit_code == JobChangedError.exit_code
    keeper(4, asks=False, allow_non_restored_state=True).run().raise_on_failure()
    keeper(5, asks=True).run().raise_on_failure()

    assert seen == [[], ["treasure"], []]


class Spender(Operator):
    """Charges its task a millisecond for each batch."""

    def process_batch(self, batch: Batch) -> None:
        self.context.spend(1 * MS)


def test_time_an_operator_spends_is_the_tasks_time() -> None:
    """``spend`` keeps the task from starting another element for that long."""
    job = Job("spending").source(CollectionSource([1, 2, 3, 4]), name="numbers").rebalance()
    job.via(Spender, name="spender").collect([])

    result = run(job._job, batch_size=1, checkpoint_interval=None)

    assert result.ended_ns - START_NS == 4 * MS + 1 * US


def test_a_run_in_which_nothing_can_happen_any_more_says_who_waits() -> None:
    """A lost message would leave the job waiting forever: the run detects this and names the waiting tasks."""
    made = execution(count_job(1), checkpoint_interval=None)

    def lose_everything(_progress: Any) -> None:
        made.kernel.run(5)

    made._run_kernel = lose_everything  # type: ignore[method-assign, assignment]

    with pytest.raises(AssertionError, match=r"nothing is left to happen, but the job is running: .*count -> out\[0\]"):
        made.run()


def test_a_failing_open_fails_the_attempt() -> None:
    """An operator that cannot be opened fails the job with its error, and no task is left running."""

    class Stubborn(Operator):
        def open(self) -> None:
            raise OSError("device is not there")

    job = Job("stubborn").source(SequenceSource(0, 5)).via(Stubborn, name="stubborn")
    job.collect([])

    result = execution(job._job, restart=NoRestart()).run()

    assert isinstance(result.error, JobFailedError)
    assert "device is not there" in str(result.error)
    assert all(task.state in ("failed", "canceled") for task in result.tasks)


def test_bugs_are_not_taken_for_failures_of_the_job() -> None:
    """A broken invariant inside an operator is raised as it is: it is no reason to restart."""

    class Broken(Operator):
        def process_batch(self, batch: Batch) -> None:
            raise AssertionError("invariant broken")

    job = Job("broken").source(SequenceSource(0, 5)).via(Broken, name="broken")
    job.collect([])

    with pytest.raises(AssertionError, match="invariant broken"):
        execution(job._job).run()


def test_without_a_storage_checkpoints_stay_in_memory() -> None:
    """A run that is given no storage restarts from its own checkpoints all the same."""
    results = CollectedResults()
    config = RunConfig(checkpoint_interval=every(ns=10 * US), batch_size=4)
    made = Execution(running_count(Job("memory"), RECORDS, results).plan(), config)
    made.kill("count", 30 * US)

    result = made.run().raise_on_failure()

    assert result.restores[1].checkpoint_id is not None
    assert Counter(results.records) == expected_counts(RECORDS)
