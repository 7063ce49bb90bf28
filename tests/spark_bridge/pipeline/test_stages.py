"""Everything that a subtask reads is there when its stage begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine import Job
from spark_bridge.pipeline.stages import explain_stages, stages_of
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.transform_jobs import period_sums


@pytest.mark.parametrize("build", jobs.ALL, ids=lambda build: build.__name__)
def test_a_stage_reads_from_earlier_ones_only(build: Callable[[int], Job]) -> None:
    """Each subtask is in one stage."""
    plan = build(3).plan()
    stages = stages_of(plan)
    stage_of = {one.vertex: stage.number for stage in stages for one in stage.subtasks}
    assert sorted(one.index for stage in stages for one in stage.subtasks) == list(range(len(plan.subtasks)))
    assert all(stage_of[edge.source_vertex] < stage_of[edge.target_vertex] for edge in plan.edges)


def test_rows_for_a_later_stage_pass_through_and_are_spread() -> None:
    """Rows of the stage itself go to their own partition."""
    plan = jobs.unequal_ends(3).plan()
    first, *_, last = stages_of(plan)
    assert [first.partition_of(one.index) for one in first.subtasks] == list(range(len(first.subtasks)))
    assert {first.partition_of(one.index) for one in last.subtasks} <= set(range(len(first.subtasks)))


def test_the_stage_of_a_transform_has_two_passes() -> None:
    """The explanation names the function that runs between them."""
    told = explain_stages(period_sums().plan())
    assert told.count(", in two passes") == 2
    assert ", on executors, in two passes\n  between them, for each closed period: the function of sums" in told
