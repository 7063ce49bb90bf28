"""A comparison in a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.elements.errors import ConfigurationError
from engine.view import side_by_side
from examples.teaching import counting


def test_the_value_of_a_cell_is_the_comparison(tmp_path: Path) -> None:
    """It has one line, a table of measures by mode, and the page of both runs, which can be saved."""
    fault = "crash:count[0]@after:ack.send#1"
    both = side_by_side(counting.job, faults=[fault], batch_size=1, checkpoint_interval="2rec")

    assert repr(both) == f"<Comparison: {both.verdict}>"
    assert both.table.columns == ("measure", "mode aligned", "mode at-least-once")
    assert "records counted twice" in both.table["measure"]
    html = both._repr_html_()
    assert "<caption>measured in each run</caption>" in html
    assert html.count("<iframe srcdoc=") == 1
    both.save(str(tmp_path / "two.html"))
    assert (tmp_path / "two.html").read_text("utf-8") == both.text


@pytest.mark.parametrize("modes", [["aligned"], ["aligned", "aligned"], ["aligned", "none"], []])
def test_modes_that_cannot_be_compared(modes: list[str]) -> None:
    """Two different modes that take checkpoints are needed, before anything runs."""
    with pytest.raises(ConfigurationError, match=r'fix: modes=\["aligned", "at-least-once"\]'):
        side_by_side(counting.job, modes)
