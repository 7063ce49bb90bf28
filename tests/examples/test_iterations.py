"""The reachability example finds the same vertices as a search, under any fault on the way."""

from __future__ import annotations

import pytest

from examples import iterations


@pytest.mark.parametrize("mode", iterations.MODES)
def test_the_loop_finds_what_the_search_finds(mode: str) -> None:
    """Killed while travellers are on their way round, and restored with them."""
    result, oracle, pairs, logged = iterations.run(mode, ["towns[1]@1300us"])

    assert pairs.keys() == iterations.search()
    assert set(pairs.values()) == {1}
    assert oracle.held == (mode != "at-least-once")
    assert result.restores[-1].checkpoint_id is not None
    assert logged


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The graph with its feedback edge, and a line for each mode."""
    iterations.main()
    lines = capsys.readouterr().out.splitlines()

    assert any("~> [1] travellers   side output on: feedback: hash, 4 channels" in line for line in lines)
    assert [line.split()[0] for line in lines[-4:]] == list(iterations.MODES)
    assert all("the pairs of the search" in line for line in lines[-4:])
