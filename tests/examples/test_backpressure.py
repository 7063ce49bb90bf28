"""The text of the comparison of modes under backpressure agrees with its numbers."""

from __future__ import annotations

import pytest

from examples import backpressure


def longest_ms(mode: str, slowdown: float) -> float:
    rows = backpressure.run(mode, slowdown=slowdown)[0].checkpoints.rows()
    return max(row.end_to_end_ns or 0 for row in rows) / backpressure.MS


def test_only_barriers_that_overtake_are_not_slowed_down() -> None:
    """Ten times slower writers make an aligned checkpoint ten times longer, an unaligned one not at all."""
    assert longest_ms("aligned", 40.0) == pytest.approx(10 * longest_ms("aligned", 4.0), rel=0.05)
    assert longest_ms("unaligned", 40.0) == longest_ms("unaligned", 4.0)
    # The timeout, and what is left of the record that a writer has in service then: 40 us.
    assert 0.5 <= longest_ms("aligned-timeout", 40.0) <= 0.54


@pytest.mark.parametrize("mode", backpressure.MODES)
def test_what_a_crash_does_to_the_counts(mode: str) -> None:
    """Exactly-once modes count each record once; at-least-once counts as many twice as its cut foretold."""
    result, oracle, counted = backpressure.run(mode, slowdown=1.0, kills=["count[0]@14ms"])
    restored = result.restores[-1].checkpoint_id
    assert restored is not None
    verdict = oracle.verdict(restored)
    assert verdict is not None

    assert counted == backpressure.RECORDS + verdict.orphans
    assert (verdict.orphans > 0) == (mode == "at-least-once")


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every mode has its line."""
    backpressure.main()

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-4:]] == list(backpressure.MODES)
