"""The page about Spark: its programs on sinks print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.house.project import ROOT

_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("section", ["## Sinks"])
def test_programs_print_what_the_page_says(
    section: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block by block, in one directory, each with the names of those before it."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    text = page.partition(f"\n{section}\n")[2].partition("\n## ")[0]
    names: dict[str, Any] = {}
    printed, compared = io.StringIO(), 0
    for language, block in _BLOCK.findall(text):
        if language == "python":
            with contextlib.redirect_stdout(printed):
                exec(block, names)
        else:
            assert printed.getvalue() == block
            printed, compared = io.StringIO(), compared + 1
    assert compared > 0
    assert printed.getvalue() == ""
