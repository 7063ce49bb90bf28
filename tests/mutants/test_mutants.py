"""Every safeguard is needed: without it, the search finds out within a thousand runs, and names the right invariant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from engine.explore.search import explore
from operators.basic import simple_sinks as sinks
from tests.mutants import hunt as hunting
from tests.mutants.ablation import AREAS, NOT_FOUND, PAGE, is_explained, page_of, rows_of
from tests.mutants.areas import BY_AREA, AreaMutant
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.hunt import MOST_RUNS, campaign_of, hunt, hunt_in_area
from tests.mutants.mutant import Mutant, replaced

QUICK = (
    "alignment skipped", "offset one late", "commit on barrier", "manifest before data", "announced before visible",
)  # fmt: skip
QUICK_BY_AREA = ("files outlive their last user", "times of a join not read")
HEALTHY_RUNS = 60

by_name = pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)


def check_caught(mutant: Mutant) -> None:
    """The search finds the mutant, and the invariant that it names is one that explains it."""
    catch = hunt(mutant)
    assert catch is not None, f"no run of {MOST_RUNS} noticed: {mutant.mistake}"
    assert catch.invariant in mutant.caught_by, (catch.invariant, catch.text)


@pytest.mark.parametrize("mutant", [one for one in CATALOGUE if one.name in QUICK], ids=lambda mutant: mutant.name)
def test_a_few_mutants_are_caught(mutant: Mutant) -> None:
    """Some mistakes of several kinds, each found and explained."""
    check_caught(mutant)


@pytest.mark.parametrize("mutant", [one for one in BY_AREA if one.name in QUICK_BY_AREA], ids=lambda one: one.name)
def test_a_few_mutants_of_areas_are_caught(mutant: AreaMutant) -> None:
    """On their examples, with default settings: the first runs notice."""
    catch = hunt_in_area(mutant, 10)
    assert is_explained(mutant, catch), catch


@contextmanager
def snapshots_refused() -> Iterator[None]:
    def refusing(sink: object, checkpoint_id: int) -> None:
        raise ValueError(f"no snapshot for checkpoint {checkpoint_id}")

    with replaced(sinks._TransactionalCollect, snapshot_state=refusing):
        yield


def test_a_mutant_under_which_no_run_ends_is_caught_by_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is measured before the mistake is made; then the first run says what it waits for."""
    monkeypatch.setattr(hunting, "MOST_ATTEMPTS", 3)
    mutant = replace(CATALOGUE[0], patch=snapshots_refused)
    catch = hunt(mutant, 1)
    assert catch is not None
    assert (catch.runs, catch.invariant) == (1, "V13")
    assert "no snapshot for checkpoint" in catch.text


@pytest.mark.slow
@by_name
def test_each_mutant_is_caught(mutant: Mutant) -> None:
    """Each mistake of the catalogue is found within a thousand runs and explained by the right invariant."""
    check_caught(mutant)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [one for one in BY_AREA if not one.why_not], ids=lambda mutant: f"{mutant.area}: {mutant.name}"
)
def test_each_mutant_of_an_area_is_caught_with_default_settings(mutant: AreaMutant) -> None:
    """Without modes, faults or settings given, a minute of ``weir explore`` finds it and names the broken rule."""
    catch = hunt_in_area(mutant)
    assert is_explained(mutant, catch), catch


@pytest.mark.slow
@by_name
def test_without_its_mutant_the_same_search_finds_nothing(mutant: Mutant) -> None:
    """The mistake makes the search succeed: on the engine as it is, the same runs do not violate any rule."""
    if mutant.in_other_processes:
        pytest.skip("no search in this process")
    subject = mutant.subject()
    report = explore(lambda: subject, campaign_of(mutant, HEALTHY_RUNS))
    assert report.failures == []


def test_a_mutant_ends_with_its_block() -> None:
    """After the ``with`` the engine is what it was."""
    for mutant in CATALOGUE:
        before = campaign_members(mutant)
        with mutant.patch():
            assert campaign_members(mutant) != before, mutant.name
        assert campaign_members(mutant) == before, mutant.name


def campaign_members(mutant: Mutant) -> tuple[object, ...]:
    from engine.checkpoint.barriers import SingleCheckpointHandler
    from engine.checkpoint.barriers.alignment import BarrierAlignment
    from engine.checkpoint.coordinator.shared_state_registry import SharedStateRegistry
    from engine.graph import partitioner
    from engine.runtime.job.failover import Failover
    from engine.runtime.storage import restored_channels
    from engine.runtime.tasks import AsyncSnapshot
    from operators.databases.database_sink import DatabaseSinkOperator
    from operators.files.bucketing.bucketing_parts import BucketingParts
    from operators.files.sinks import FileSinkOperator
    from operators.files.writing import Buckets
    from operators.log.connectors import TransactionalLogSink
    from operators.log.memory_transaction_log import MemoryTransactionLog
    from operators.sources import SourceOperator
    from operators.table.partitions.streaming_file_writer import StreamingFileWriterOperator
    from operators.table.staging.staged_sink import _FinalizerOperator
    from operators.time import EventClock
    from operators.transactions.committer_machine import CommitterMachine
    from state_backends.changelog.history import LogHistory
    from state_backends.snapshots import checkpoint_location, checkpoint_streams

    del mutant
    owners = (
        SharedStateRegistry, SingleCheckpointHandler, BarrierAlignment, partitioner, restored_channels,
        restored_channels._Edge, AsyncSnapshot, Failover, sinks._TransactionalCollect, sinks.CollectedResults,
        MemoryTransactionLog, SourceOperator, checkpoint_streams.FsCheckpointStream, checkpoint_location,
        DatabaseSinkOperator, BucketingParts, Buckets, FileSinkOperator, TransactionalLogSink, _FinalizerOperator,
        StreamingFileWriterOperator, CommitterMachine, EventClock, LogHistory,
    )  # fmt: skip
    return tuple(value for owner in owners for _, value in sorted(vars(owner).items()) if callable(value))


def test_the_page_lists_every_mutant() -> None:
    """The ablation page names each mutant with its source, in order, and says why one is not found."""
    page = PAGE.read_text()
    assert [row[:3] for row in rows_of(page)] == [
        (mutant.name, mutant.safeguard, mutant.source) for mutant in CATALOGUE
    ]
    by_area = rows_of(page, AREAS)
    assert [row[:4] for row in by_area] == [(one.area, one.name, one.source, one.on) for one in BY_AREA]
    assert [row[4].startswith(NOT_FOUND) for row in by_area] == [bool(one.why_not) for one in BY_AREA]
    assert page_of(page, rows_of(page), by_area) == page
    assert page_of(page, rows_of(page)[:1], by_area[:2]).count("\n| ") == 2 + 1 + 2
