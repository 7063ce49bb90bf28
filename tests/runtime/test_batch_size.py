"""Batches have no meaning of their own: what a checkpoint holds does not depend on the batch size."""

from __future__ import annotations

from typing import Any

import pytest

from engine.graph.job import Job
from engine.observe.trace_events import CheckpointCut
from engine.runtime.config import CostModel
from operators.basic import CollectedResults
from operators.sources import CollectionSource, Pause, SequenceSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from state_backends.files import MemoryFileSystem
from tests.runtime.support import BASE_DIR, MS, US, Trace, every, expected_counts, files_below, run, running_count

BATCH_SIZES = (1, 7, 256, 4096)
RECORDS = 2_000


def counted(into: Any) -> Job:
    """A linear job with keyed state and a transactional sink."""
    return running_count(Job("linear"), RECORDS, into, keys=17)


def windowed(into: Any) -> Job:
    """A linear job with event-time windows, whose watermarks go by the virtual clock."""
    job = Job("windows")
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5, lambda number: number).with_interval_ns(37 * US)
    stream = job.source(SequenceSource(0, RECORDS), watermarks=strategy).map(lambda number: (number % 5, number))
    windows = stream.key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows.of(50))
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1])).collect(into)


def checkpoints(build: Any, batch_size: int, interval: Any) -> tuple[list[Any], dict[str, bytes], list[int]]:
    """The committed output, the files of all checkpoints before the end, and the records each of them covers."""
    results, files, trace = CollectedResults(), MemoryFileSystem(), Trace()
    run(
        build(results),
        file_system=files,
        instruments=[trace],
        batch_size=batch_size,
        channel_capacity=100_000,
        checkpoint_interval=interval,
        retained=1_000,
        inline_state_bytes=0,
    )
    cuts = [cut for cut in trace.of(CheckpointCut) if cut.records_sent < RECORDS]
    kept = {
        path: content
        for path, content in files_below(files).items()
        if any(f"/chk-{cut.checkpoint_id}/" in path for cut in cuts)
    }
    return results.records, kept, [cut.records_sent for cut in cuts]


@pytest.mark.parametrize("interval", [every(ns=333 * US), every(records=333)], ids=["by time", "by records"])
@pytest.mark.parametrize("build", [counted, windowed])
def test_checkpoints_are_the_same_bytes_at_every_batch_size(build: Any, interval: Any) -> None:
    """Checkpoint n of a linear job is byte-identical for batch sizes 1, 7, 256 and 4096, and so is the output."""
    output, files, cuts = checkpoints(build, 1, interval)

    assert cuts == [333, 666, 999, 1332, 1665, 1998]
    assert len(files) > 2 * len(cuts)
    for batch_size in BATCH_SIZES[1:]:
        other_output, other_files, other_cuts = checkpoints(build, batch_size, interval)

        assert other_cuts == cuts
        assert other_output == output
        assert other_files == files


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@pytest.mark.parametrize("interval_ns", [1 * US, 12_345, 99_999])
def test_mail_cuts_a_source_batch_at_the_record_of_its_instant(batch_size: int, interval_ns: int) -> None:
    """At virtual time t a source has sent exactly the records whose cost is paid by then, whatever the batch size."""
    trace = Trace()
    job = Job("cut").source(SequenceSource(0, 300)).rebalance().collect([], parallelism=2)

    run(job, instruments=[trace], batch_size=batch_size, checkpoint_interval=every(ns=interval_ns))

    *cuts, last = [cut.records_sent for cut in trace.of(CheckpointCut)]
    assert len(cuts) > 1
    assert cuts == [min(300, -(-(number + 1) * interval_ns // US)) for number in range(len(cuts))]
    assert last == 300


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_mail_more_frequent_than_records_does_not_stop_a_task(batch_size: int) -> None:
    """A record that takes longer than the time between two messages is finished all the same, and in time."""
    trace = Trace()
    job = Job("busy").source(SequenceSource(0, 20)).rebalance().collect([], parallelism=2)

    run(
        job,
        instruments=[trace],
        batch_size=batch_size,
        checkpoint_interval=every(ns=300 * US),
        cost=CostModel(source_record_ns=1 * MS),
    )

    cuts = [cut.records_sent for cut in trace.of(CheckpointCut)]
    assert cuts[:20] == [-(-(number + 1) * 300 // 1_000) for number in range(20)]
    assert cuts[-1] == 20


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_paid_pauses_do_not_depend_on_the_batch_size(batch_size: int) -> None:
    """When records cost no time a source pauses at the record that its input chooses."""
    results, trace = CollectedResults(), Trace()
    job = Job("pause").source(CollectionSource([1, 2, Pause(5), 3, Pause(5), 4])).rebalance()

    run(
        job.collect(results, parallelism=2),
        instruments=[trace],
        batch_size=batch_size,
        checkpoint_interval=every(ns=3 * MS),
        cost=CostModel(source_record_ns=0),
    )

    assert [cut.records_sent for cut in trace.of(CheckpointCut)] == [2, 3, 3, 4]
    assert sorted(results.records) == [1, 2, 3, 4]


def test_the_job_is_right_at_every_batch_size() -> None:
    """The running counts are those of exactly one pass over the input."""
    for batch_size in BATCH_SIZES:
        results = CollectedResults()
        run(counted(results), batch_size=batch_size, checkpoint_interval=every(ns=100 * US))

        assert sorted(results.records) == sorted(expected_counts(RECORDS, 17).elements())


def test_the_storage_directory_is_where_the_helpers_look() -> None:
    """The comparison above looks at real files."""
    files = MemoryFileSystem()
    run(counted([]), file_system=files, checkpoint_interval=every(ns=500 * US))

    assert any(path.startswith(f"{BASE_DIR}/linear/chk-") for path in files_below(files))
