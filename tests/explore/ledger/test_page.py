"""The page about the ledger shows the real output."""

from __future__ import annotations

import pytest

from examples import ledger
from tests.hash_seeds import printed
from tests.house.documents import transcripts
from tests.house.project import ROOT

PAGE = (ROOT / "docs" / "ledger.md").read_text("utf-8")


def test_the_example_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The transcript of the example is in the page, line by line."""
    ledger.main()
    assert f"$ python -m examples.ledger\n{capsys.readouterr().out}" in PAGE


@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_the_program_prints_what_the_page_shows(hash_seed: str) -> None:
    """It does under every hash seed."""
    ((program, shown),) = transcripts.printing_programs(PAGE)
    assert printed(program.text, hash_seed) == shown
