"""A job that reads one log on disk and writes another: exactly once through everything, and judged by V9."""

from __future__ import annotations

import pytest

from engine.explore.invariants import invariants_for
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import FaultMix
from operators.log.disk.consumer_groups import consumer_lag
from operators.log.disk.log_reader import committed_records
from state_backends.files import LocalFileSystem
from tests.explore.run.chained_logs import chained, write_orders
from tests.explore.subjects import case_with

ORDERS = 12
EXPECTED = [[(partition, sum(range(n + 1))) for n in range(ORDERS)] for partition in range(2)]
CONFIG = {"batch_size": 2, "checkpoint_interval": "5rec"}


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("chain") / "orders")
    write_orders(LocalFileSystem(), path, ORDERS)
    return path


def run(orders: str, *faults: str, mix: FaultMix | None = None, seed: str = "0") -> FinishedCase:
    subject = Subject(lambda parallelism: chained(orders, parallelism))
    invariants = invariants_for()
    finished = run_case(subject, case_with(CONFIG, *faults, mix=mix, seed=seed), invariants)
    (v9,) = [one for one in invariants if one.name == "V9"]
    assert getattr(v9, "skipped", None) is None
    return finished


def written(finished: FinishedCase) -> list[list[object]]:
    files = finished.view.world.files
    return [[one.value for one in records] for records in committed_records(files, "/out/sums", "sums")]


def test_nothing_befalls_it(orders: str) -> None:
    """Aborted orders are in no sum, the sums are in order, V9 has judged the log, and the group has no lag."""
    finished = run(orders)
    assert (finished.outcome, finished.violations) == ("finished", [])
    assert written(finished) == EXPECTED
    assert [one.lag for one in consumer_lag(finished.view.world.files, orders, "orders", "chain")] == [0, 0]


@pytest.mark.parametrize(
    "faults",
    [
        ["crash:process@before:sink.commit#3", "lose-unsynced:*#1"],
        ["crash:process@after:sink.pre-commit#3", "lose-unsynced:*#1"],
        ["crash:process@before:sink.request#9", "crash:process@before:restore.recover-and-commit#1"],
        ["crash:process@after:manifest.rename#2", "answer-lost:commit#1"],
        ["crash:orders[0]@after:barrier.inject#2"],
        ["missing:open_random */orders/topics/orders/0/*#2"],
        ["write-error:fsync */sums/topics/*#3"],
    ],
)
def test_each_crash_is_survived(orders: str, faults: list[str]) -> None:
    """A power cut between the commits of two partitions, a second death in recovery, a disk that fails once."""
    finished = run(orders, *faults)
    assert (finished.outcome, finished.violations) == ("finished", [])
    assert len(finished.faults) == len(faults)
    assert written(finished) == EXPECTED


@pytest.mark.parametrize("seed", range(6))
def test_chance_finds_nothing(orders: str, seed: int) -> None:
    """Deaths, power cuts, lost answers and disks that fail, as they come."""
    chances = {"crash": 40_000, "answer-lost": 20_000, "lose-unsynced": 50_000, "write-error": 5_000, "missing": 5_000}
    finished = run(orders, mix=FaultMix(per_million=chances, most=4), seed=str(seed))
    assert finished.violations == []
    if finished.outcome == "finished":
        assert written(finished) == EXPECTED
