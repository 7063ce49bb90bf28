"""The ledger as an invariant of cases, and of jobs in other forms: columns, loops, input that was pruned."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from engine import CheckpointInterval, CollectedResults, CollectSink, ColumnSource, CostModel, Job, RunConfig
from engine.elements.events import StopMode
from engine.explore.cases import EXACTLY_ONCE, FIFO, Case
from engine.explore.ledger import EffectLedger, EffectsInvariant, Place
from engine.explore.run import World, run_case
from engine.faults.fault import parse_fault
from engine.runtime.channels import TracedBatch
from engine.runtime.execution import Execution
from examples import iterations
from state_backends import MemoryFileSystem
from tests.explore.ledger.jobs import audited, config
from tests.explore.subjects import counting_subject, order_dependent_subject

BASE = Case(config={"batch_size": 1, "checkpoint_interval": "6rec"}, scheduler=FIFO)


def test_expected_effects_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each input and parallelism; cases that differ otherwise share them."""
    subject, asked = counting_subject(), list[object]()
    in_world = subject.in_world
    monkeypatch.setattr(subject, "in_world", lambda *told: asked.append(told[2]) or in_world(*told))
    pruned = replace(BASE, dropped={"numbers/sequence-0-of-2": ((0, 2),)})
    for case in (BASE, replace(BASE, seed="other"), BASE.with_config(parallelism=1), pruned, pruned):
        EffectsInvariant.of(subject, case, EXACTLY_ONCE)
    assert asked == [{}, {}, pruned.dropped]


@pytest.mark.parametrize(
    "where", ["source.emit#5", "source.emit#9", "source.emit#14", "manifest.rename#1", "complete.decide#2"]
)
def test_a_process_that_dies_is_followed_into_the_next(where: str) -> None:
    """Over the death of a process, and its resume from what is durable, nothing is lost or doubled."""
    subject = counting_subject()
    case = replace(BASE, faults=(parse_fault(f"crash:process@after:{where}"),))
    invariant = EffectsInvariant.of(subject, case, EXACTLY_ONCE)
    finished = run_case(subject, case, [invariant], provenance=invariant.ledger)
    assert finished.incarnations == 2
    assert finished.violations == []
    assert invariant.found is not None
    assert invariant.found.problem is None
    assert [restart.incarnation for restart in invariant.ledger.restarts] == [1, 2]


def test_rows_taken_from_a_reader_are_a_violation() -> None:
    """The invariant looks at the rows that readers see, and its violation has the records as data."""
    subject = counting_subject()
    world = World()
    invariant = EffectsInvariant.of(subject, BASE, EXACTLY_ONCE)
    run_case(subject, BASE, world=world, provenance=invariant.ledger)
    sink: Any = world.sinks["out"]
    del sink._results.records[0]
    finished = run_case(subject, BASE)
    finished.view.world = world
    invariant.finished(finished)
    (violation,) = invariant.violations
    assert violation.invariant == "effects"
    assert violation.details["kind"] == "lost"
    assert violation.details["records"] == 1


def test_a_job_that_depends_on_the_order_is_judged_by_its_effects() -> None:
    """Its rows differ from run to run; that each record reaches its key and readers once does not."""
    subject = order_dependent_subject()
    invariant = EffectsInvariant.of(subject, BASE, EXACTLY_ONCE)
    finished = run_case(subject, BASE, [invariant], provenance=invariant.ledger)
    assert finished.violations == []
    assert invariant.found is not None
    assert invariant.found.unsettled == 0


def test_columns_become_rows_with_causes() -> None:
    """A job over columns is judged like one over rows."""

    def columns(results: CollectedResults) -> Job:
        job = Job("columns", max_parallelism=16)
        numbers = job.source(ColumnSource({"n": list(range(300))}), name="numbers", uid="numbers", parallelism=1)
        keyed = numbers.key_by(lambda row: row["n"] % 3, value=lambda row: (row["n"] % 3, 1))
        counts = keyed.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", uid="count", parallelism=2)
        counts.sink(CollectSink(results), name="out", uid="out", parallelism=1)
        return job

    run = audited(config(), ["count[0]@130us"], make=columns)
    assert run.result.attempts == 2
    assert run.told() == []
    assert run.ledger.effects()[Place("out", "output")].total() == 300


def test_records_that_go_round_a_loop_keep_their_causes() -> None:
    """A job that is killed while records go round ends with their causes; its cells are not judged."""
    settings = RunConfig(
        mode="unaligned",
        seed="1",
        batch_size=8,
        checkpoint_interval=CheckpointInterval.parse("100us"),
        cost=CostModel(source_record_ns=1_000, record_ns=1_000, link_latency_ns=5_000),
    )
    run = audited(settings, ["towns[1]@330us"], make=partial(iterations.job, roads="300"), sees=False)
    assert run.result.attempts == 2
    restart = run.ledger.restarts[-1]
    assert sum(map(len, restart.part.in_flight.values())) > 0
    assert run.told() == []
    assert run.found.unsettled > 0


def test_a_loop_stops_with_a_savepoint_under_a_ledger() -> None:
    """Records that come back after the savepoint are passed over, whatever class their batch has."""
    settings = RunConfig(
        mode="unaligned",
        seed="1",
        batch_size=8,
        checkpoint_interval=CheckpointInterval.parse("400us"),
        cost=CostModel(source_record_ns=1_000, record_ns=1_000, link_latency_ns=5_000),
    )
    plan = iterations.job(CollectedResults()).plan()
    execution = Execution(
        plan, settings, file_system=MemoryFileSystem(), output_dir="/out", provenance=EffectLedger(keeps_rows=False)
    )
    execution.savepoint(300_000, "/saved", stop=StopMode.SUSPEND)
    assert execution.run().state == "stopped"


def test_causes_go_with_their_records_when_a_batch_is_cut() -> None:
    """Split, taken apart by position or by cause: each record keeps its own."""
    batch = TracedBatch([10, 11, 12, 13], [1, 2, 3, 4], None, ["a", "b", "b", "c"])
    first, rest = batch.split(1)
    picked = batch.take([3, 1])
    assert isinstance(first, TracedBatch)
    assert isinstance(rest, TracedBatch)
    assert isinstance(picked, TracedBatch)
    assert (first.causes, rest.causes) == (["a"], ["b", "b", "c"])
    assert (picked.values, picked.causes) == ([13, 11], ["c", "b"])
    assert [(cause, part.values) for cause, part in batch.by_cause()] == [("a", [10]), ("b", [11, 12]), ("c", [13])]
