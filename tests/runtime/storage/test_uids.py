"""An operator that is given a uid keeps the state it had under its generated uid."""

from __future__ import annotations

from engine.graph.job import Job
from engine.runtime.config import CostModel, RunConfig
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from tests.runtime.support import US, every, execution


def counting(results: CollectedResults, *, uid: str | None = None) -> Job:
    """Counts ten numbers, all under one key."""
    job = Job("uids")
    numbers = job.source(SequenceSource(0, 10), name="numbers")
    keyed = numbers.key_by(lambda number: 0, value=lambda number: 1)
    add = keyed.reduce(lambda left, right: left + right, name="count", **({} if uid is None else {"uid": uid}))
    return add.collect(results, name="out")


def test_state_is_found_by_the_uid_that_was_made_before() -> None:
    """The count goes on with its state, although the operator has another uid now."""
    files, results = MemoryFileSystem(), CollectedResults()
    settings = {"file_system": files, "batch_size": 1, "cost": CostModel(), "checkpoint_interval": every(ns=4 * US)}
    killed = execution(
        counting(CollectedResults()),
        kills=[("count", 6 * US)],
        restart=RunConfig(mode="none").restart_strategy(),
        **settings,  # type: ignore[arg-type]
    )
    assert killed.run().state == "failed"

    again = execution(counting(results, uid="total"), restore=True, incarnation=2, **settings).run()  # type: ignore[arg-type]

    assert again.raise_on_failure().restores[0].checkpoint_id is not None
    assert results.records == list(range(1, 11))
