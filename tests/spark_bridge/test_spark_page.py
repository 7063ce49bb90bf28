"""The page about Spark: its programs on tables and sinks print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engine.cli import main
from tests.house.project import ROOT

_BLOCK = re.compile(r"^```(python|text|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "section",
    ["## A DataFrame as a source", "## Reading what Weir keeps", "## A stream into a log", "## Sinks"],
)
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
            if (name := re.match(r"# (\w+\.py)\n", block)) is not None:
                (tmp_path / name[1]).write_text(block, "utf-8")
            with contextlib.redirect_stdout(printed):
                exec(block, names)
        elif language == "sh":
            made = CliRunner().invoke(main, block.split()[1:])
            assert made.exit_code == 0, made.stderr
        else:
            # `DataFrame.show` prints an empty line after its table.
            assert printed.getvalue().rstrip() == block.rstrip()
            printed, compared = io.StringIO(), compared + 1
    assert compared > 0
    assert printed.getvalue() == ""
