"""Loops that are stopped, moved and started again: a snapshot holds the records on their way round."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.checkpoint.restore import NoRestart, UnsupportedMappingError
from engine.elements.errors import JobChangedError, JobFailedError
from engine.elements.events import StopMode
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.storage import SavepointRestore
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.scenarios.random.loop_jobs import FEEDBACK, SHAPES, Kill, loop_job

MOVABLE = sorted(FEEDBACK.keys() - {"by default"})
TARGET = "/saved"


@dataclass
class Plan:
    """A loop, and with which parallelism it goes on."""

    shape: dict[str, Any]
    before: dict[str, int]
    behind: dict[str, int]
    config: dict[str, Any]
    at_ns: int


@st.composite
def plans(draw: st.DrawFn, *modes: str) -> Plan:
    """Jobs whose feedback may be given to other subtasks."""
    sizes = st.fixed_dictionaries({"head": st.integers(1, 3), "body": st.integers(1, 3)})
    mode = draw(st.sampled_from(modes))
    config: dict[str, Any] = {
        "mode": mode,
        "seed": str(draw(st.integers(0, 10**6))),
        "batch_size": draw(st.sampled_from((1, 3, 20))),
        "channel_capacity": draw(st.sampled_from((None, 1, 4))),
        "checkpoint_interval": CheckpointInterval(time_ns=draw(st.sampled_from((4_000, 9_000)))),
        "tolerable_failures": 10**6,
        "cost": CostModel(
            source_record_ns=1_000,
            record_ns=draw(st.sampled_from((0, 300, 2_000))),
            link_latency_ns=draw(st.sampled_from((0, 700, 3_000))),
            link_bytes_per_s=draw(st.sampled_from((None, 50_000_000))),
        ),
    }
    if mode == "aligned-timeout":
        config["aligned_timeout_ns"] = draw(st.sampled_from((1, 2_000)))
    shape = {
        "shape": draw(st.sampled_from(sorted(SHAPES))),
        "tokens": 40,
        "feedback": draw(st.sampled_from(MOVABLE)),
        "sources": draw(st.integers(1, 2)),
    }
    return Plan(shape, draw(sizes), draw(sizes), config, draw(st.sampled_from(range(3_000, 33_000, 1_777))))


@pytest.mark.slow
@settings(max_examples=30)
@given(plans("aligned", "unaligned", "aligned-timeout"), st.sampled_from([None, *StopMode]))
def test_a_savepoint_goes_on_with_another_parallelism(plan: Plan, stop: StopMode | None) -> None:
    """Stopped, drained or not, and moved: together the two jobs count every trip once. Without stopping, what the
    second counts comes behind the savepoint."""
    files = MemoryFileSystem()
    first = loop_job(**plan.shape, **plan.before)
    execution = first.prepared(RunConfig(**plan.config), file_system=files)
    execution.savepoint(plan.at_ns, TARGET, stop=stop)
    (saved,) = first.checked(execution).savepoints
    if saved.path is None:
        # The job was over, or about to end.
        assert first.output == first.expected
        return
    second = loop_job(**plan.shape, **plan.behind, results=first.results if stop else None)
    execution = second.prepared(
        RunConfig(**plan.config),
        file_system=files,
        storage=CheckpointStorage(MemoryFileSystem(), "/other", "loop"),
        restore_from=SavepointRestore(saved.path),
    )
    second.checked(execution)

    if stop is not None:
        assert second.output == second.expected
    else:
        assert first.output == first.expected
        assert not second.output - second.expected


@pytest.mark.slow
@settings(max_examples=30)
@given(plans("aligned", "unaligned", "aligned-timeout"))
def test_a_dead_job_is_resumed_with_another_parallelism(plan: Plan) -> None:
    """From its newest checkpoint, with whatever that holds in flight on feedback edges and on others."""
    files = MemoryFileSystem()
    first = loop_job(**plan.shape, **plan.before)
    dying = {**plan.config, "restart": NoRestart()}
    victim = Kill("out[0]", 2, plan.at_ns // 4)
    execution = first.prepared(RunConfig(**dying), [victim], storage=CheckpointStorage(files, "/saved", "loop"))
    if first.ended(execution).state == "finished":
        assert first.output == first.expected
        return
    second = loop_job(**plan.shape, **plan.behind, results=first.results)
    again = {"storage": CheckpointStorage(files, "/saved", "loop"), "restore": True, "incarnation": 2}
    result = second.checked(second.prepared(RunConfig(**plan.config), **again))

    assert result.restores[0].checkpoint_id is not None
    assert second.output == second.expected


@settings(max_examples=30)
@given(plans("at-least-once"), st.sampled_from(list(StopMode)))
def test_at_least_once_loses_nothing_when_it_is_moved(plan: Plan, stop: StopMode) -> None:
    """Every trip is counted, whatever is on its way round when the job stops."""
    files = MemoryFileSystem()
    first = loop_job(**plan.shape, **plan.before)
    execution = first.prepared(RunConfig(**plan.config), file_system=files)
    execution.savepoint(plan.at_ns, TARGET, stop=stop)
    (saved,) = first.checked(execution).savepoints
    if saved.path is not None:
        second = loop_job(**plan.shape, **plan.behind, results=first.results)
        start = SavepointRestore(saved.path)
        second.checked(second.prepared(RunConfig(**plan.config), file_system=files, restore_from=start))

    assert not first.expected - Counter(first.results.records)


def test_pointwise_feedback_cannot_be_given_to_others() -> None:
    """The error says what to do about records between two subtasks, and following it helps."""
    files = MemoryFileSystem()
    settings_: dict[str, Any] = {"batch_size": 3, "cost": CostModel(record_ns=300, link_latency_ns=700)}
    first = loop_job(feedback="by default", head=2, body=2)
    execution = first.prepared(RunConfig(**settings_), file_system=files)
    execution.savepoint(15_000, TARGET, stop=StopMode.SUSPEND)
    (saved,) = first.checked(execution).savepoints
    assert saved.path is not None

    def resumed(feedback: str) -> Counter[Any]:
        second = loop_job(feedback=feedback, head=3, body=3, results=first.results)
        start = {"file_system": files, "restore_from": SavepointRestore(saved.path or "")}
        second.checked(second.prepared(RunConfig(**settings_), **start))
        return second.output

    with pytest.raises(UnsupportedMappingError) as caught:
        resumed("by default")
    assert str(caught.value) == (
        "edge 'trip>again>loop#0': the checkpoint holds records that were on their way back to the head of an "
        "iteration, from 2 to 2 subtasks, and the job now has 3 and 3\n"
        "  records on a forward edge belong to one pair of subtasks and to nobody else\n"
        "  keep the parallelism of both operators, or close the iteration with feedback.rebalance()"
    )
    assert resumed("rebalance") == first.expected


def test_feedback_without_keys_cannot_be_spread_by_key() -> None:
    """Where the partitioning of the feedback changes to keys, the old records have none; no savepoint would help."""
    files = MemoryFileSystem()
    settings_: dict[str, Any] = {"batch_size": 3, "cost": CostModel(record_ns=300, link_latency_ns=700)}
    first = loop_job(feedback="rebalance")
    execution = first.prepared(RunConfig(**settings_), file_system=files)
    execution.savepoint(15_000, TARGET, stop=StopMode.SUSPEND)
    path = first.checked(execution).savepoints[0].path or ""
    second = loop_job(feedback="keyed")

    with pytest.raises(JobChangedError, match=r"restore with the partitioning that the job had$"):
        second.checked(second.prepared(RunConfig(**settings_), file_system=files, restore_from=SavepointRestore(path)))


def test_a_job_that_cannot_restart_dies_with_its_records_stored() -> None:
    """The dying run of these tests does end in failure, or they would say nothing."""
    made = loop_job(tokens=40)
    config = RunConfig(
        restart=NoRestart(), checkpoint_interval=CheckpointInterval(time_ns=4_000), cost=CostModel(record_ns=300)
    )

    with pytest.raises(JobFailedError):
        made.run(config, [Kill("out[0]", 2, 1_000)])
