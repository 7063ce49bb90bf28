"""What the page about the ledger shows is what happens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from examples import ledger
from tests.house.documents import transcripts
from tests.house.project import ROOT

PAGE = (ROOT / "docs" / "ledger.md").read_text("utf-8")


def test_the_example_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The transcript of the example is in the page, line by line."""
    ledger.main()
    assert f"$ python -m examples.ledger\n{capsys.readouterr().out}" in PAGE


@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_the_program_prints_what_the_page_shows(hash_seed: str) -> None:
    """Whatever the hash seed."""
    ((program, printed),) = transcripts.printing_programs(PAGE)
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(
        [sys.executable, "-c", program.text], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == printed
