"""Programs on pages about columns, windows, two inputs, requests, joins, ranks and patterns print the pages' output."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs"
TRANSCRIPT = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def transcripts() -> list[object]:
    """Every program that is followed by its output."""
    found = []
    for name in ("columnar", "event-time-and-windows", "two-inputs", "async-io", "joins", "ranking", "patterns"):
        pairs = TRANSCRIPT.findall((PAGES / f"{name}.md").read_text("utf-8"))
        found += [pytest.param(*pair, id=f"{name} {number}") for number, pair in enumerate(pairs, 1)]
    assert len(found) == 10
    return found


@pytest.mark.parametrize(("program", "output"), transcripts())
def test_a_page_shows_what_its_program_prints(program: str, output: str) -> None:
    """The output is equal to the character."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "page", "exec"), {"__name__": "page"})

    assert printed.getvalue() == output
