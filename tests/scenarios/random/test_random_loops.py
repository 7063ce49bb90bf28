"""Random jobs with loops and random faults: every trip is counted once, in at-least-once mode at least once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.checkpoint.restore import FixedDelayRestart
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import JOB_MANAGER
from tests.scenarios.random.loop_jobs import FEEDBACK, SHAPES, Kill, LoopRun, loop_job

EXACTLY_ONCE = ("aligned", "unaligned", "aligned-timeout")


@dataclass
class Plan:
    """One job to run, and its faults."""

    made: LoopRun
    config: RunConfig
    kills: list[Kill]


@st.composite
def loop_jobs(draw: st.DrawFn) -> LoopRun:
    return loop_job(
        draw(st.sampled_from(sorted(SHAPES))),
        tokens=draw(st.sampled_from((0, 1, 15, 40, 60))),
        feedback=draw(st.sampled_from(sorted(FEEDBACK))),
        sources=draw(st.integers(1, 2)),
        head=draw(st.integers(1, 3)),
        body=draw(st.integers(1, 3)),
        rebalanced=draw(st.booleans()),
    )


@st.composite
def plans(draw: st.DrawFn, mode: str) -> Plan:
    """A job, costs, settings and kills."""
    made = draw(loop_jobs())
    names = st.sampled_from([subtask.name for subtask in made.job.plan().subtasks])
    cost = CostModel(
        source_record_ns=draw(st.sampled_from((0, 1_000))),
        record_ns=draw(st.sampled_from((0, 0, 300, 2_500))),
        link_latency_ns=draw(st.sampled_from((0, 0, 700))),
        link_bytes_per_s=draw(st.sampled_from((None, None, 50_000_000))),
        storage_latency_ns=draw(st.sampled_from((0, 0, 2_000))),
        stragglers=draw(st.dictionaries(names, st.sampled_from((0.5, 3.0)), max_size=1)),
        slow_links=draw(st.dictionaries(names, st.sampled_from((500, 3_000, 20_000)), max_size=2)),
    )
    intervals = [CheckpointInterval(time_ns=ns) for ns in (3_000, 10_000, 25_000)]
    special: dict[str, Any] = {}
    if mode == "aligned-timeout":
        special["aligned_timeout_ns"] = draw(st.sampled_from((1, 700, 5_000)))
    config = RunConfig(
        mode=mode,
        seed=str(draw(st.integers(0, 10**6))),
        batch_size=draw(st.sampled_from((1, 2, 7, 64))),
        channel_capacity=draw(st.sampled_from((None, 1, 3, 50))),
        output_capacity=draw(st.sampled_from((0, 0, 5))),
        checkpoint_interval=draw(st.sampled_from((CheckpointInterval(records=11), *intervals))),
        retained=draw(st.integers(1, 3)),
        inline_state_bytes=draw(st.sampled_from((0, 20 * 1024))),
        tolerable_failures=10**6,
        checkpoint_timeout_ns=draw(st.sampled_from((200_000, 600 * 10**9))),
        min_pause_ns=draw(st.sampled_from((0, 2_000))),
        restart=FixedDelayRestart(9, draw(st.sampled_from((0, 1_000, 50_000)))),
        failover=draw(st.sampled_from(("full", "region"))),
        checkpoints_after_tasks_finish=draw(st.sampled_from((True, True, False))),
        cost=cost,
        **special,
    )
    # Some right after a checkpoint, while the next one is on its way: sampled, for plain numbers would be small ones.
    delays = st.sampled_from((0, 1, 300, 900, 2_100, 4_000, 7_700, 12_000, 20_000, 33_000))
    targets = st.one_of(names, names, st.just(JOB_MANAGER))
    kills = draw(st.lists(st.builds(Kill, targets, st.integers(0, 4), delays), max_size=3))
    return Plan(made, config, kills)


@pytest.mark.parametrize("examples", [30, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_every_trip_is_counted_once(mode: str, examples: int) -> None:
    """The committed counts are those of one undisturbed pass, and every checkpoint was a consistent cut."""

    @settings(max_examples=examples)
    @given(plans(mode))
    def check(plan: Plan) -> None:
        plan.made.run(plan.config, plan.kills)

        assert plan.made.output == plan.made.expected
        assert plan.made.oracle.held

    check()


@settings(max_examples=40)
@given(plans("at-least-once"))
def test_at_least_once_loses_no_trip(plan: Plan) -> None:
    """Every count that one pass gives is committed; no cut leaves a record behind."""
    plan.made.run(plan.config, plan.kills)

    assert not plan.made.expected - plan.made.output
    assert all(verdict.in_transit == 0 for verdict in plan.made.oracle.verdicts)


def test_a_checkpoint_that_no_record_follows_is_tried_again() -> None:
    """The last interval in records is over when one of the tasks before the loop is about to close: it declines. No
    record is left to bring the next checkpoint, and until one comes, inner heads wait for barriers of this one."""
    made = loop_job("nested", tokens=60, feedback="custom", sources=2, head=2, body=2, rebalanced=False)
    config = RunConfig(
        seed="4",
        batch_size=1,
        output_capacity=5,
        checkpoint_interval=CheckpointInterval(records=11),
        retained=1,
        tolerable_failures=10**6,
        restart=FixedDelayRestart(9, 0),
        cost=CostModel(source_record_ns=1_000, record_ns=2_500, storage_latency_ns=2_000, stragglers={"out[0]": 3.0}),
        inline_state_bytes=0,
    )

    made.run(config, [Kill(JOB_MANAGER, 0, 0)])

    assert made.output == made.expected
