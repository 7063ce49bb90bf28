"""The cut oracle judges from the channel counters alone, and says which way a cut is wrong."""

from __future__ import annotations

from engine.observe.cut_oracle import CutOracle, judge
from engine.observe.trace_events import CheckpointCut, RunEnded


def test_equal_counters_are_a_consistent_cut() -> None:
    """Nothing sent and not received, nothing received and not sent."""
    verdict = judge(CheckpointCut(5, 1, 3, channels=4, records_sent=20, differences=()))

    assert verdict.consistent
    assert (verdict.checkpoint_id, verdict.channels, verdict.records_sent) == (3, 4, 20)


def test_orphans_and_records_in_transit_are_told_apart() -> None:
    """One channel's surplus does not make up for another's gap."""
    verdict = judge(CheckpointCut(5, 1, 3, 4, 20, differences=((0, 10, 12), (1, 7, 5), (2, 1, 2))))

    assert (verdict.orphans, verdict.in_transit) == (3, 2)
    assert not verdict.consistent


def test_one_bad_checkpoint_is_enough() -> None:
    """The oracle holds only if every completed checkpoint was consistent; other events do not matter."""
    oracle = CutOracle()
    oracle(CheckpointCut(5, 1, 1, 1, 10, ()))
    oracle(RunEnded(6, "finished"))
    assert oracle.held
    oracle(CheckpointCut(7, 1, 2, 1, 10, ((0, 1, 2),)))
    oracle(CheckpointCut(8, 2, 3, 1, 10, ()))

    assert not oracle.held
    assert [verdict.checkpoint_id for verdict in oracle.verdicts] == [1, 2, 3]


def test_a_verdict_is_found_by_the_latest_checkpoint_of_that_id() -> None:
    """Ids are looked up newest first; an unknown one has no verdict."""
    oracle = CutOracle()
    oracle(CheckpointCut(5, 1, 1, 1, 10, ((0, 1, 2),)))
    oracle(CheckpointCut(9, 2, 1, 1, 10, ()))
    found = oracle.verdict(1)

    assert found is not None
    assert (found.attempt, found.consistent) == (2, True)
    assert oracle.verdict(2) is None
