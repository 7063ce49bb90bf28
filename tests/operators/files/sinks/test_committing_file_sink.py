"""The file sink in several operators: struck at every single call to the file system, back to older checkpoints, in
real jobs, and in place of the sink in one operator.

The rules that must hold are those of :mod:`tests.operators.files.attempts`, as for the sink in one operator.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.errors import ConfigurationError, OutputAheadError, UserFunctionError
from engine.graph.job import Job
from engine.runtime.config import CostModel
from operators.files.compaction import CompactionStrategy
from operators.files.formats import JsonLinesRowFormat
from operators.files.sinks import FileSink, read_committed
from operators.files.sinks.committing_file_sink import CommittingFileSink
from operators.files.sinks.compaction_operators import CompactCoordinatorOperator
from operators.files.writing import BulkTextFormat, DefaultRollingPolicy
from operators.sources import SequenceSource
from operators.transactions import messages
from state_backends.files import FaultRule, FileFault, FileSystem, MemoryFileSystem
from tests.operators.files.attempts import CHUNK, KINDS, Numbers, Pipeline, by_parity, undisturbed_calls
from tests.operators.harness import Checkpoint, Harness
from tests.runtime.support import US, every, execution


def sink_of(**settings: Any) -> FileSink:
    return FileSink("rows", bucket=by_parity, **settings)


EVERY_OTHER = CompactionStrategy(checkpoints=2)
SINKS: dict[str, CommittingFileSink] = {
    "on checkpoints": sink_of().with_committer(),
    "open for long": sink_of(rolling_policy=DefaultRollingPolicy(max_part_size_bytes=5)).with_committer(),
    "never resumed": sink_of(rolling_policy=DefaultRollingPolicy(), resumes=False).with_committer(),
    "compacted": sink_of().compacting(EVERY_OTHER),
    "compacted by size": sink_of(rolling_policy=DefaultRollingPolicy(max_part_size_bytes=3)).compacting(
        CompactionStrategy(size_threshold_bytes=8)
    ),
    "gzip compacted": sink_of(format=BulkTextFormat(JsonLinesRowFormat())).compacting(EVERY_OTHER),
}


def run_of(sink: CommittingFileSink, disk: MemoryFileSystem | None = None) -> Numbers:
    return Numbers(sink, disk, records=15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS)
def test_one_fault_at_any_call(sink: CommittingFileSink, kind: FileFault) -> None:
    """All records are visible once in the end, and no hidden file is left but one whose deletion failed."""
    calls = undisturbed_calls(run_of(sink))
    for at_call in range(1 + KINDS.index(kind), calls + 1, len(KINDS)):
        run = run_of(sink)
        run.run([FaultRule(kind, at_call=at_call)])
        run.run_to_the_end()
        left_by_deletion = run.struck == "delete" and kind is not FileFault.CRASH_BEFORE
        assert len(run.hidden()) <= left_by_deletion, at_call


@given(st.sampled_from(sorted(SINKS)), st.lists(st.integers(1, 160), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_crashes_during_recoveries(name: str, calls: list[int]) -> None:
    """A crash in every attempt but the last."""
    run = run_of(SINKS[name])
    for at_call in calls:
        run.run([FaultRule(FileFault.CRASH_AFTER, at_call=at_call)])
    run.run_to_the_end()


@given(
    st.sampled_from(["on checkpoints", "open for long", "never resumed"]),
    st.lists(st.tuples(st.integers(1, 160), st.integers(0, 2)), min_size=1, max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_older_checkpoints_take_back_what_newer_ones_have_committed(name: str, faults: list[tuple[int, int]]) -> None:
    """The newest cannot be read: visible files of later ones are hidden, and their records come again."""
    run = run_of(SINKS[name])
    for at_call, back in faults:
        run.run([FaultRule(FileFault.CRASH_BEFORE, at_call=at_call)])
        run.go_back(back)
    run.run_to_the_end()


@pytest.mark.parametrize("name", ["open for long", "never resumed", "compacted when open"])
def test_a_zombie_writes_to_what_nobody_looks_at(name: str) -> None:
    """The open part is by then a copy; the original that was set aside is deleted once the copy is visible."""
    open_for_long = DefaultRollingPolicy()
    settings: dict[str, CommittingFileSink] = {
        "open for long": FileSink("rows", rolling_policy=open_for_long).with_committer(),
        "never resumed": FileSink("rows", rolling_policy=open_for_long, resumes=False).with_committer(),
        "compacted when open": FileSink("rows", rolling_policy=open_for_long).compacting(EVERY_OTHER),
    }
    fs = MemoryFileSystem()
    zombie = Pipeline(settings[name], fs, None)
    zombie.process([1])
    checkpoint = zombie.checkpoint(1)

    successor = Pipeline(settings[name], fs, checkpoint, attempt=2)
    zombie.process([666, 667])
    successor.process([2, 3])
    zombie.process([668])
    zombie.snapshot(2)
    successor.checkpoint(2)
    zombie.process([669])
    zombie.close()
    successor.finish()
    for checkpoint_id in (3, 4, 5):
        successor.checkpoint(checkpoint_id)
    assert read_committed(fs, "/out/rows") == {"": ["1", "2", "3"]}
    assert not [path for path in fs.walk_files("/out/rows") if ".setaside." in path]


def test_going_back_behind_a_compaction_is_an_error_and_no_loss() -> None:
    """The sources that the older checkpoint needs are deleted; the job reports that and does not go on without them."""
    run = run_of(SINKS["compacted"])
    assert run.run()
    run.completed = [one for one in run.completed if one[1] == 2 * CHUNK]
    run.attempt += 1
    checkpoint, position = run.completed[-1]

    pipeline = Pipeline(run.sink, run.disk, checkpoint, attempt=2)

    def go_on() -> None:
        for known in (90, 91, 92):
            pipeline.process([position])
            pipeline.checkpoint(known)

    # No restart brings the rows back, so this error ends the job.
    with pytest.raises(OutputAheadError, match="was to be compacted but is gone"):
        go_on()


# --- in jobs ----------------------------------------------------------------------------------------------------

JOB_RECORDS = 40


def rows_job(sink: FileSink, parallelism: int = 2) -> Job:
    job = Job("rows", parallelism=parallelism)
    numbers = job.source(SequenceSource(0, JOB_RECORDS, splits=4), name="numbers", uid="numbers").rebalance()
    return numbers.map(lambda number: number, name="same", uid="same").sink(sink, name="out", uid="out")


def committed(files: FileSystem, sink: FileSink) -> Counter[int]:
    if not files.exists("/out/rows"):
        return Counter()
    rows = read_committed(files, "/out/rows", sink.format)
    return Counter(int(row) for lines in rows.values() for row in lines)


def run_polled(made: Any, files: FileSystem, sink: FileSink, *, once: bool) -> Any:
    """Run, while a reader looks again and again: rows never disappear, and are never there twice."""
    seen: Counter[int] = Counter()

    def step(_progress: Any) -> None:
        nonlocal seen
        while made.kernel.run(9) and not made.kernel.stopped:
            now = committed(files, sink)
            assert seen <= now
            assert not once or max(now.values(), default=1) == 1
            seen = now

    made._run_kernel = step
    return made.run()


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "aligned-timeout", "at-least-once"])
@pytest.mark.parametrize("name", ["open for long", "compacted", "compacted by size"])
def test_a_killed_job_shows_everything_once(name: str, mode: str) -> None:
    """Killed in any of its operators, twice, while a reader looks."""
    sink, once = SINKS[name], mode != "at-least-once"
    cost = CostModel(record_ns=200, link_latency_ns=3_000, storage_latency_ns=2_000)
    operators = ["same", "out", "out-committer", "out-compactor", "out-compact-coordinator"]
    for number, at_us in enumerate(range(5, 100, 24)):
        files = MemoryFileSystem()
        job = rows_job(sink)
        names = {operator.name for vertex in job.plan().vertices for operator in vertex.operators}
        target = [one for one in operators if one in names][-1 - number % (3 if sink.compaction else 2)]
        made = execution(
            job, file_system=files, kills=[(target, at_us * US), ("numbers", (at_us + 20) * US)], mode=mode,
            checkpoint_interval=every(records=5), restart=FixedDelayRestart(5, 1_000), cost=cost, batch_size=3,
            seed=str(number), inline_state_bytes=0,
        )  # fmt: skip
        run_polled(made, files, sink, once=once).raise_on_failure()

        rows = committed(files, sink)
        assert rows.keys() == dict.fromkeys(range(JOB_RECORDS)).keys()
        assert not once or rows == Counter(range(JOB_RECORDS))


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
@pytest.mark.parametrize("name", ["open for long", "compacted"])
def test_a_job_resumes_at_another_parallelism(name: str, before: int, after: int) -> None:
    """Open parts, pending files and requests are divided among the new subtasks."""
    sink = SINKS[name]
    for at_us in range(4, 13, 4):
        files = MemoryFileSystem()
        settings: dict[str, Any] = {"file_system": files, "checkpoint_interval": every(records=4), "batch_size": 2}
        first = execution(
            rows_job(sink, before), kills=[("numbers", at_us * US)], restart=NoRestart(), **settings
        ).run()
        assert first.error is not None
        execution(rows_job(sink, after), restore=True, incarnation=2, **settings).run().raise_on_failure()

        assert committed(files, sink) == Counter(range(JOB_RECORDS))


@pytest.mark.parametrize("name", ["open for long", "compacted"])
def test_a_job_turns_from_one_operator_to_committers(name: str) -> None:
    """The state of the sink with the same uid is understood: open parts go on, pending ones are handed out."""
    policy = DefaultRollingPolicy(max_part_size_bytes=5)
    sink = SINKS[name]
    for at_us in range(6, 18, 3):
        files = MemoryFileSystem()
        settings: dict[str, Any] = {"file_system": files, "checkpoint_interval": every(records=4), "batch_size": 2}
        first = execution(
            rows_job(sink_of(rolling_policy=policy)), kills=[("numbers", at_us * US)], restart=NoRestart(), **settings
        ).run()
        assert first.error is not None
        execution(rows_job(sink), restore=True, incarnation=2, **settings).run().raise_on_failure()

        assert committed(files, sink) == Counter(range(JOB_RECORDS))


def test_turning_to_committers_at_an_older_checkpoint() -> None:
    """What the sink in one operator committed later is taken back, and is in no later checkpoint."""
    fs, one_operator = MemoryFileSystem(), FileSink("rows")

    def started(spec: FileSink, **options: Any) -> list[Harness]:
        return [Harness(spec.create_operator(), fs=fs, subtask=at, parallelism=2, **options) for at in range(2)]

    def snapshot(subtasks: list[Harness], checkpoint_id: int) -> Checkpoint:
        taken = Checkpoint(checkpoint_id)
        for harness in subtasks:
            harness.snapshot(checkpoint_id, taken)
        return taken

    before = started(one_operator)
    checkpoints = []
    for checkpoint_id in (1, 2):
        for harness in before:
            harness.process([checkpoint_id])
        checkpoints.append(snapshot(before, checkpoint_id))
        for harness in before:
            harness.complete(checkpoint_id)
    assert read_committed(fs, "/out/rows") == {"": ["1", "1", "2", "2"]}

    after = started(one_operator.with_committer(), restored=checkpoints[0], incarnation=2)
    assert read_committed(fs, "/out/rows") == {"": ["1", "1"]}
    again = started(one_operator.with_committer(), restored=snapshot(after, 3), incarnation=3)
    assert [harness.context.operator.union_list_state("part-counters").get() for harness in again] == [[], []]


def test_without_checkpoints_files_are_visible_at_the_end() -> None:
    """An attempt that is repeated replaces the files that the one before has published."""
    for name in ("on checkpoints", "compacted"):
        files = MemoryFileSystem()
        made = execution(
            rows_job(SINKS[name], 1), file_system=files, mode="none", kills=[("numbers", 20 * US)],
            restart=FixedDelayRestart(2, 0),
        )  # fmt: skip
        made.run().raise_on_failure()

        assert committed(files, SINKS[name]) == Counter(range(JOB_RECORDS))


def test_one_seed_makes_the_same_files() -> None:
    """Names and bytes, after a failure too."""
    outputs = []
    for _ in range(2):
        files = MemoryFileSystem()
        execution(
            rows_job(SINKS["compacted"]), file_system=files, kills=[("out", 9 * US)], seed="7",
            checkpoint_interval=every(records=5), restart=FixedDelayRestart(5, 0),
        ).run().raise_on_failure()  # fmt: skip
        outputs.append({path: files.read_bytes(path) for path in files.walk_files("/out")})

    assert outputs[0] == outputs[1]
    assert any("compacted-part-" in path for path in outputs[0])


# --- mistakes ---------------------------------------------------------------------------------------------------


def test_the_output_of_another_run_is_refused() -> None:
    """A new job does not mix its files with those of another run; no restart helps, so none is tried."""
    disk = MemoryFileSystem()
    assert run_of(SINKS["on checkpoints"], disk).run()

    with pytest.raises(OutputAheadError, match="output of another run"):
        Pipeline(SINKS["on checkpoints"], disk, None, incarnation=2)


def test_a_record_that_does_not_fit_is_named() -> None:
    """The error also names the function that the record does not fit."""
    pipeline = Pipeline(SINKS["on checkpoints"], MemoryFileSystem(), None)
    with pytest.raises(UserFunctionError, match=r"(?s)row format.*object"):
        pipeline.harnesses[0].process([object()])
    with pytest.raises(UserFunctionError, match=r"(?s)bucket function.*'text'"):
        pipeline.harnesses[0].process(["text"])


def test_settings_are_checked() -> None:
    """They are checked where they are given."""
    with pytest.raises(ConfigurationError, match="compaction_ns_per_byte is -1"):
        sink_of().compacting(EVERY_OTHER, compaction_ns_per_byte=-1)
    with pytest.raises(ConfigurationError, match="checkpoints is 0"):
        sink_of().compacting(CompactionStrategy(checkpoints=0))


def test_the_coordinator_packs_a_checkpoint_when_its_barrier_goes_on() -> None:
    """In mode at-least-once, early files for the next checkpoint wait: a restore from this one writes to it."""

    def files(known: int) -> list[Any]:
        named = [f".{known}-{number}" for number in range(2)]
        return messages(known, 0, 1, [("pending", "b", f"b/.{name}.tmp", f"b/{name}", 6) for name in named])

    harness = Harness(CompactCoordinatorOperator(SINKS["compacted by size"]))
    harness.process(files(1))
    harness.process(files(2))
    assert harness.take_values() == []

    checkpoint = harness.snapshot(1)
    assert [[one[3] for one in request[1]] for request in harness.take_values()] == [["b/.1-0", "b/.1-1"]]
    again = Harness(CompactCoordinatorOperator(SINKS["compacted by size"]), attempt=2, restored=checkpoint)
    again.finish()
    assert again.take_values() == []

    harness.finish()
    assert [[one[3] for one in request[1]] for request in harness.take_values()] == [["b/.2-0", "b/.2-1"]]


def test_compaction_takes_time_by_the_size_of_its_sources() -> None:
    """The task of the compactor pays for it, a request at a time."""
    sink = sink_of().compacting(CompactionStrategy(checkpoints=1), compaction_ns_per_byte=1_000_000)
    pipeline = Pipeline(sink, MemoryFileSystem(), None)
    pipeline.process(range(4))
    pipeline.checkpoint(1)
    compactor = pipeline.harnesses[2]
    before_ns = compactor.context.now_ns
    compactor.operator.on_processing_time_ns(before_ns)

    assert compactor.context.now_ns - before_ns == 4_000_000
    assert compactor.counter("numFilesCompacted") == 1
