"""The notebooks run from top to bottom, and each value that a cell shows has a form for notebooks."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.house.project import ROOT

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


def _shown(source: str, names: dict[str, Any]) -> object:
    """Run a cell as a notebook does: its value is that of the expression at its end."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_promises(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every code cell runs, shows HTML, and keeps no output of an earlier run."""
    monkeypatch.chdir(tmp_path)
    cells = [one for one in json.loads(path.read_text("utf-8"))["cells"] if one["cell_type"] == "code"]
    names: dict[str, Any] = {}

    shown = [_shown("".join(cell["source"]), names) for cell in cells]

    assert len(shown) >= 5
    assert all(cell["outputs"] == [] for cell in cells)
    for value in shown:
        assert value._repr_html_().startswith("<"), value  # type: ignore[attr-defined]
        assert len(repr(value)) < 300
    assert "counts each record once, mode at-least-once counts 1 record twice" in repr(shown[-1])


def test_there_are_notebooks() -> None:
    """The test above would pass without any."""
    assert NOTEBOOKS
