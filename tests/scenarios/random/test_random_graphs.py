"""Random graphs, run in every mode in random ways with random faults: the output is what the graph means.

Exactly-once modes commit each row once, and every snapshot they complete is a consistent cut. At-least-once commits
more, and exactly as much more as the cuts foretell from which the run was restored.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, given, note, settings, strategies as st

from tests.scenarios.random.random_graphs import describe, graphs, meaning
from tests.scenarios.random.random_runs import EXACTLY_ONCE, Driven, Run, drive, left_in_storage, runs
from tests.scenarios.repeated_records import RepeatedRecords

FEW, MANY = 25, 400
EVERY_RECORD = ("count",)
"""Keyed nodes whose output counts a repeated record. (A window that is closed already would open anew.)"""


@st.composite
def exactly_once_runs(draw: st.DrawFn, mode: str) -> Run:
    """Any graph, on a disk that may fail now and then."""
    return draw(runs(mode, draw(graphs()), most_savepoints=1, most_faults=2))


@st.composite
def at_least_once_runs(draw: st.DrawFn) -> Run:
    """A graph all of which restarts after a failure."""
    return draw(runs("at-least-once", draw(graphs(keyed=EVERY_RECORD)), failover="full"))


def searched(examples: int) -> settings:
    """So many examples, the same ones each time, and no long explanation of a failure."""
    return settings(max_examples=examples, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])


def met(driven: Driven) -> Counter[str]:
    """The interesting events of a run."""
    restored = [one.checkpoint_id for one in driven.result.restores if one.checkpoint_id is not None]
    rows = driven.result.checkpoints.rows()
    return Counter(
        {
            "restores": len(restored),
            "restores with records in flight": sum(1 for one in restored if driven.in_flight_bytes(one)),
            "snapshots": len(driven.ledger.completed),
            "snapshots with records in flight": sum(1 for row in rows if row.persisted_bytes),
            "snapshots given up": len(driven.ledger.aborted),
        }
    )


def commit_once(mode: str, examples: int) -> Counter[str]:
    """Search for an exactly-once run with wrong output; returns the events that were met on the way."""
    seen = Counter[str]()

    @searched(examples)
    @given(exactly_once_runs(mode))
    def search(run: Run) -> None:
        note(describe(run.graph))
        driven = drive(run)
        assert driven.committed == meaning(run.graph)
        assert driven.oracle.held
        assert left_in_storage(driven) == set(driven.execution.manager.coordinator.retained.ids)
        seen.update(met(driven))

    search()
    return seen


@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_exactly_once_commits_every_row_once(mode: str) -> None:
    """Under any graph, costs and faults: each row once, consistent cuts, and no needless file in storage."""
    seen = commit_once(mode, FEW)

    assert seen["restores"]
    assert seen["snapshots"] > FEW
    assert bool(seen["snapshots with records in flight"]) == (mode != "aligned")


@pytest.mark.slow
@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_exactly_once_commits_every_row_once_in_many_runs(mode: str) -> None:
    """The same, searched for longer: restores from records in flight and snapshots that are given up among them."""
    seen = commit_once(mode, MANY)

    assert seen["restores"] > MANY // 10
    assert seen["snapshots given up"] > MANY // 10
    assert bool(seen["restores with records in flight"]) == (mode != "aligned")


def repeat_as_foretold(examples: int) -> int:
    """Search for an at-least-once run whose output is not the one foretold; returns how many records were repeated."""
    repeated = 0

    @searched(examples)
    @given(at_least_once_runs())
    def search(run: Run) -> None:
        nonlocal repeated
        note(describe(run.graph))
        with pytest.MonkeyPatch.context() as patch:
            records = RepeatedRecords(run.graph, patch)
            driven = drive(run, instruments=(records,))
        again = records.by_node
        assert driven.committed == meaning(run.graph, again)
        assert all(verdict.in_transit == 0 for verdict in driven.oracle.verdicts)
        repeated += sum(rows.total() for rows in again.values())

    search()
    return repeated


def test_at_least_once_repeats_what_the_cut_foretells() -> None:
    """Every row is there; the rows too many are those of the records between the counters of the restored cut."""
    assert repeat_as_foretold(FEW) > 0


@pytest.mark.slow
def test_at_least_once_repeats_what_the_cut_foretells_in_many_runs() -> None:
    """The same, searched for longer."""
    assert repeat_as_foretold(MANY) > MANY // 10


@settings(max_examples=FEW)
@given(graphs(keyed=EVERY_RECORD).flatmap(lambda graph: runs("none", graph)))
def test_without_checkpoints_a_job_that_is_restarted_begins_anew(run: Run) -> None:
    """Nothing is published before the end, so no kill loses anything; what a finished sink has published stays."""
    committed = drive(run).committed

    assert all(committed[at] >= rows for at, rows in meaning(run.graph).items())


@settings(max_examples=6)
@given(st.sampled_from(EXACTLY_ONCE).flatmap(exactly_once_runs))
def test_a_run_repeats_itself(run: Run) -> None:
    """The same graph, settings and faults: the same events at the same times, and the same bytes in every file."""
    events: tuple[list[Any], list[Any]] = ([], [])
    first, again = (drive(run, instruments=(seen.append,)) for seen in events)

    assert events[0] == events[1]
    assert _contents(first) == _contents(again)


def _contents(driven: Driven) -> dict[str, bytes]:
    return {path: driven.files.read_bytes(path) for path in driven.files.walk_files("/")}
