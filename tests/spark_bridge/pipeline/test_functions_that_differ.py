"""A subtask runs twice in a batch, as after the loss of an executor, and some receivers read each output."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import CollectionSource, FileSink, Job, JobFailedError
from spark_bridge.pipeline.checksums import Sent, SentOutputs, differing_attempts
from spark_bridge.pipeline.stage_function import StageOrder
from tests.spark_bridge.pipeline import jobs, local_stages
from tests.spark_bridge.pipeline.runs import config, in_batches


def sums(function: Callable[[int], int]) -> Job:
    """Four stages; ``function`` runs in the second, under the name "odd"."""
    job = Job("sums", parallelism=2)
    numbers = job.source(CollectionSource(range(300)), name="numbers", parallelism=1).rebalance()
    pairs = numbers.map(lambda number: (number % 7, function(number)), name="odd").key_by(lambda pair: pair[0])
    added = pairs.reduce(lambda one, other: (one[0], one[1] + other[1]), name="sum")
    added.rebalance().map(lambda pair: pair, name="later").sink(FileSink("rows"), uid="sink")
    return job


def run_twice(monkeypatch: pytest.MonkeyPatch, stage: int, batch: int) -> Sent:
    """Have partition 0 of this stage run twice in this batch: receiver 0 gets the first output, and all others the
    second. Returns what all attempts have told."""
    once, told = local_stages.run_partition, Sent()

    def partition(order: StageOrder, number: int, batches: Iterator[pa.RecordBatch]) -> Any:
        order = replace(order, tell=lambda sent: SentOutputs().addInPlace(told, sent))
        if (order.stage.number, number, order.batch.barrier.checkpoint_id) != (stage, 0, batch):
            return once(order, number, batches)
        rows = list(batches)
        outputs = [pa.Table.from_batches(once(order, number, iter(rows))) for _ in range(2)]
        masks = [pa.array([target > 0 for target in output.column("target").to_pylist()]) for output in outputs]
        return outputs[0].filter(pa.compute.invert(masks[0])).to_batches() + outputs[1].filter(masks[1]).to_batches()

    monkeypatch.setattr(local_stages, "run_partition", partition)
    return told


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_subtask_that_sends_the_same_may_run_twice(
    stage: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In whichever stage: rows, reports and checkpoints fit, whichever attempt they come from."""
    in_batches(sums(lambda number: number), tmp_path / "once", config(100))
    told = run_twice(monkeypatch, stage, 2)
    result, oracle = in_batches(sums(lambda number: number), tmp_path / "run", config(100))
    assert result.error is None, result.error
    assert jobs.committed(tmp_path / "run/out") == jobs.committed(tmp_path / "once/out")
    assert oracle.held
    assert differing_attempts(told, 2) is None


def test_a_subtask_that_sends_something_else_fails_its_batch_and_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With its operators, the batch and the way out; the subtasks after it differ too, and are not. The batch is run
    again afterwards."""
    draws = itertools.count()
    with monkeypatch.context() as patch:
        told = run_twice(patch, 1, 2)
        result, _ = in_batches(sums(lambda _: next(draws)), tmp_path, config(100))
    assert isinstance(result.error, JobFailedError), result.error
    assert "'odd[0]' ran twice in the batch of checkpoint 2, and sent other records" in str(result.error)
    assert "a function of odd is not deterministic" in str(result.error)
    assert "--paranoid" in str(result.error)
    assert sum(jobs.committed(tmp_path / "out").values()) == 100, "the batch before is committed, and this one is not"
    named = differing_attempts(told, 2)
    assert named is not None
    assert sums(lambda _: 0).plan().subtasks[named].name == "odd[0]"
    result, _ = in_batches(sums(lambda _: next(draws)), tmp_path, config(100))
    assert result.error is None, result.error
    assert sum(jobs.committed(tmp_path / "out").values()) == 300


def test_a_subtask_that_sends_the_same_in_another_order_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark's own checksum does not look at the order; a reduce function does."""
    draws = itertools.count()
    run_twice(monkeypatch, 1, 2)
    job = Job("orders", parallelism=2)
    numbers = job.source(CollectionSource(range(300)), name="numbers", parallelism=1).rebalance()

    def both(number: int) -> list[tuple[int, int]]:
        pairs = [(number % 7, one) for one in (1, 2)]
        return pairs if next(draws) % 3 else pairs[::-1]

    first = numbers.flat_map(both, name="odd").key_by(lambda pair: pair[0])
    first.reduce(lambda one, _: one, name="first").sink(FileSink("rows"), uid="sink")
    result, _ = in_batches(job, tmp_path, config(100))
    assert isinstance(result.error, JobFailedError), result.error
    assert "'odd[0]'" in str(result.error)
