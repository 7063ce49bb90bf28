"""A job in batches commits what it commits in the simulator, whatever order rows cross in."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from engine import (
    BulkTextFormat,
    CollectedResults,
    CollectionSource,
    CsvRowFormat,
    DiskLog,
    FileSink,
    GeneratorSource,
    Job,
    JobGraphError,
    JsonLinesRowFormat,
    KeyedProcessFunction,
    KeyTypeMismatchError,
    LogSink,
    TextRowFormat,
    UserFunctionError,
)
from engine.cli.settings import load_job
from engine.runtime.execution import Execution
from operators.basic import ListCheckpointed
from operators.log.disk import committed_records
from spark_bridge.pipeline.batch_driver import BatchDriver
from spark_bridge.pipeline.query import send_modules_of_the_job
from state_backends import LocalFileSystem
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.local_stages import is_portable
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated

BuildJob = Callable[[int], Job]


@pytest.mark.parametrize("build", jobs.ALL, ids=lambda build: build.__name__)
def test_the_committed_rows_are_those_of_the_simulator(build: BuildJob, tmp_path: Path) -> None:
    """Over several batches, and each checkpoint is a consistent cut."""
    simulated(build(2), tmp_path / "simulated", config())
    result, oracle = in_batches(build(2), tmp_path / "batches", config(), seed=1)
    assert result.error is None, result.error
    expected = jobs.committed(tmp_path / "simulated" / "out")
    assert jobs.committed(tmp_path / "batches" / "out") == expected
    assert sum(expected.values()) >= 40
    assert len(oracle.verdicts) >= 3
    assert sum(verdict.records_sent for verdict in oracle.verdicts) >= 600, "the records of the channels are counted"
    assert oracle.held, "a record was sent and not received in its batch, or the other way round"


@pytest.mark.parametrize(
    "options",
    [
        {"state_backend": "lsm", "snapshot": "incremental"},
        {"state_backend": "lsm"},
        {"state_backend": "heap", "snapshot": "incremental"},
        {"state_backend": "changelog"},
        {"state_backend": "changelog:lsm"},
        {"state_backend": "changelog:lsm", "snapshot": "incremental", "inline_state_bytes": 0},
        {"state_backend": "rocksdb"},
        {"state_backend": "rocksdb", "snapshot": "incremental"},
        {"inline_state_bytes": 0, "retained": 1},
    ],
    ids=str,
)
def test_every_backend_keeps_its_state_from_batch_to_batch(options: dict[str, Any], tmp_path: Path) -> None:
    """Full and incremental, inlined and in files."""
    if options.get("state_backend") == "rocksdb":
        pytest.importorskip("rocksdict")
    simulated(jobs.word_count(), tmp_path / "simulated", config())
    result, _ = in_batches(jobs.word_count(), tmp_path / "batches", config(**options))
    assert result.error is None, result.error
    assert jobs.committed(tmp_path / "batches" / "out") == jobs.committed(tmp_path / "simulated" / "out")


def test_a_batch_is_the_same_whatever_order_its_rows_cross_in(tmp_path: Path) -> None:
    """Also the order within a file: a subtask takes its blocks by number."""
    contents = []
    for seed in range(4):
        directory = tmp_path / str(seed)
        in_batches(jobs.word_count(), directory, config(), seed=seed)
        contents.append({path.name: path.read_bytes() for path in sorted((directory / "out/counts").glob("part-*"))})
    assert contents[0], "no file was committed"
    assert all(content == contents[0] for content in contents)


def test_a_source_that_has_ended_does_not_run_again(tmp_path: Path) -> None:
    """Its operators finish once, and the vertex is over in the checkpoints that follow."""
    seen: list[BatchDriver] = []
    result, _ = in_batches(jobs.unequal_ends(), tmp_path, config(), watch=seen.append)
    assert result.error is None
    by_name = {task.name: task for task in result.tasks}
    assert by_name["short[0]"].records_out + by_name["short[1]"].records_out == 10
    assert result.source_records == 910


def test_results_can_be_collected_by_the_driver(tmp_path: Path) -> None:
    """A transactional collection commits where its object is."""
    results = CollectedResults()
    job = Job("collected", parallelism=2)
    job.source(CollectionSource(range(400)), name="numbers").rebalance().map(lambda one: one + 1).collect(results)
    result, _ = in_batches(job, tmp_path, config())
    assert result.error is None
    assert sorted(results.records) == list(range(1, 401))


def test_an_error_of_a_function_names_operator_and_record_and_commits_nothing_of_its_batch(tmp_path: Path) -> None:
    """It is the error of the simulator, raised where the driver is."""

    def fussy(number: int) -> int:
        if number == 333:
            raise ValueError("not this one")
        return number

    job = Job("fussy", parallelism=2)
    numbers = job.source(CollectionSource(range(600)), name="numbers").rebalance()
    numbers.map(fussy, name="picky").sink(FileSink("rows"), uid="sink")
    result, _ = in_batches(job, tmp_path, config(100))
    assert isinstance(result.error, UserFunctionError), result.error
    assert "'picky'" in str(result.error)
    assert "333" in str(result.error)
    rows = sorted(int(line) for _, line in jobs.committed(tmp_path / "out"))
    assert rows == list(range(300)), "the batches before are committed, and this one is not"


@pytest.mark.parametrize("build", jobs.ALL, ids=lambda build: build.__name__)
def test_a_job_can_travel_to_executors(build: BuildJob, tmp_path: Path) -> None:
    """The order of a batch, with the functions of the job in it, can be pickled."""
    orders: list[Any] = []

    def note(driver: BatchDriver) -> None:
        inner = driver.run
        driver.run = lambda order: (orders.append(order), inner(order))[1]

    in_batches(build(2), tmp_path, config(), watch=note, stop_after=2)
    assert len(orders) == 2
    assert all(map(is_portable, orders))


def test_a_long_input_makes_the_order_of_a_batch_no_larger(tmp_path: Path) -> None:
    """Generators run on executors: the driver sends a function and positions, never records."""
    sizes: list[int] = []

    def note(driver: BatchDriver) -> None:
        inner = driver.run
        driver.run = lambda order: (sizes.append(len(cloudpickle.dumps(order))), inner(order))[1]

    for count in (1_000, 100_000_000):
        job = Job("long")
        job.source(GeneratorSource(lambda start, stop: [1] * (stop - start), count)).sink(FileSink("rows"), uid="sink")
        in_batches(job, tmp_path / str(count), config(100), watch=note, stop_after=3)
    assert len(sizes) == 6
    assert max(sizes[3:]) < max(sizes[:3]) + 100


def test_the_simulator_knows_nothing_of_batches(tmp_path: Path) -> None:
    """A plan that has run in batches runs in the simulator: nothing in it was changed."""
    job = jobs.word_count()
    in_batches(job, tmp_path, config())
    assert Execution(job.plan(), config(), output_dir=str(tmp_path / "again")).run().error is None


@pytest.mark.parametrize("way", ["rebalance", "rescale"])
def test_records_in_turn_go_on_where_the_batch_before_has_ended(way: str, tmp_path: Path) -> None:
    """Each partition of a log gets what it gets in the simulator: no subtask gets the first record of each batch."""
    found = []
    for world in ("simulated", "batches"):
        job = Job("turns")
        numbers = job.source(CollectionSource(range(100)), name="numbers", parallelism=1)
        rows = getattr(numbers, way)().map(lambda number: number, name="rows", parallelism=3)
        rows.sink(LogSink("rows", log=DiskLog("log"), partitions=3), name="log", parallelism=3)
        if world == "simulated":
            simulated(job, tmp_path / world, config(10))
        else:
            in_batches(job, tmp_path / world, config(10))
        partitions = committed_records(LocalFileSystem(), str(tmp_path / world / "out" / "log"), "rows")
        found.append([sorted(record.value for record in partition) for partition in partitions])
    assert found[1] == found[0]
    assert sorted(map(len, found[0])) == [33, 33, 34]


@pytest.mark.parametrize("build", [jobs.unequal_ends, jobs.windows], ids=lambda build: build.__name__)
def test_a_subtask_that_has_ended_before_others_keeps_its_state_in_files(build: BuildJob, tmp_path: Path) -> None:
    """Each checkpoint has files of its own: state that is not written again would be missing in the next one."""
    result, _ = in_batches(build(3), tmp_path / "batches", config(inline_state_bytes=0, retained=1))
    assert result.error is None, result.error
    simulated(build(3), tmp_path / "simulated", config())
    assert jobs.committed(tmp_path / "batches" / "out") == jobs.committed(tmp_path / "simulated" / "out")


def test_keys_of_two_types_do_not_meet(tmp_path: Path) -> None:
    """The senders are in different processes: 1 of one and True of another would be one key."""
    job = Job("mixed", parallelism=2)
    numbers = job.source(CollectionSource([1, True] * 50, splits=2), name="numbers").key_by(lambda number: number)
    numbers.reduce(lambda one, other: one, uid="first").sink(FileSink("rows"), uid="sink")
    result, _ = in_batches(job, tmp_path, config(30))
    assert isinstance(result.error, KeyTypeMismatchError), result.error
    assert "all keys of a stream have one type" in str(result.error)
    assert not jobs.committed(tmp_path / "out")


class Alarm(KeyedProcessFunction):
    """Sets a timer in processing time."""

    def process_element(self, value: Any, ctx: Any) -> tuple[()]:
        ctx.register_processing_time_timer(ctx.processing_time_ms() + 5)
        return ()


class AlarmWithState(Alarm, ListCheckpointed):
    """The same beside operator state, which another operator keeps."""


@pytest.mark.parametrize("function", [Alarm, AlarmWithState])
def test_a_timer_in_processing_time_fails_its_batch(function: type[KeyedProcessFunction], tmp_path: Path) -> None:
    """It is known only when it is set; it would fire once per batch."""
    job = Job("alarms")
    numbers = job.source(CollectionSource(range(10)), name="numbers").key_by(lambda number: number)
    numbers.process(function(), name="alarm").sink(FileSink("rows"), uid="sink")
    result, _ = in_batches(job, tmp_path, config())
    assert isinstance(result.error, JobGraphError), result.error
    assert "'alarm' sets a timer in processing time" in str(result.error)


_ELSEWHERE = """
import pickle, sys
order = pickle.load(open(sys.argv[1], "rb"))
print([operator.factory().__class__.__name__ for vertex in order.plan.vertices for operator in vertex.operators])
"""


def test_the_modules_of_a_job_travel_with_it(tmp_path: Path) -> None:
    """An executor cannot import the job file, nor a module beside it."""
    (tmp_path / "helper_of_the_job.py").write_text("def twice(number):\n    return number * 2\n")
    (tmp_path / "the_job.py").write_text(
        "from engine import CollectionSource, FileSink, Job\nfrom helper_of_the_job import twice\n\n\n"
        "def plus_one(number):\n    return twice(number) + 1\n\n\n"
        "job = Job('travels')\njob.source(CollectionSource([1])).map(plus_one).sink(FileSink('rows'))\n"
    )
    orders: list[Any] = []

    def note(driver: BatchDriver) -> None:
        inner = driver.run
        driver.run = lambda order: (orders.append(order), inner(order))[1]

    in_batches(load_job(str(tmp_path / "the_job.py"), {}).job, tmp_path / "run", config(), watch=note, stop_after=1)
    send_modules_of_the_job()
    (tmp_path / "order").write_bytes(cloudpickle.dumps(orders[0]))
    answer = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, str(tmp_path / "order")],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert answer.returncode == 0, answer.stderr
    assert "MapOperator" in answer.stdout


@pytest.mark.parametrize(
    "written",
    [
        JsonLinesRowFormat(), CsvRowFormat(["a", "b"], delimiter=";"), TextRowFormat("\r\n"),
        BulkTextFormat(JsonLinesRowFormat(), compression="xz"),
    ],
    ids=lambda written: type(written).__name__,
)  # fmt: skip
def test_file_formats_travel(written: Any) -> None:
    """They hold encoders that cannot; these are made anew."""
    row = "text" if isinstance(written, TextRowFormat) else {"a": 1, "b": "ü"}
    copied = pickle.loads(pickle.dumps(written))
    assert copied.encode(row) == written.encode(row)
    assert getattr(copied, "compression", None) == getattr(written, "compression", None)
