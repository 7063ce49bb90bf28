"""The program on the page about columns prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "columnar.md"


def test_the_page_shows_what_its_program_prints() -> None:
    """To the character."""
    ((program, output),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "page", "exec"), {"__name__": "page"})

    assert printed.getvalue() == output
