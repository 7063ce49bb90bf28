"""The table of the page on architecture that says where things are: each name is defined in the file beside it."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.project import ROOT

_PAGE = ROOT / "docs" / "architecture.md"
_NAME_OR_PATH = re.compile(r"`(\w+(?:\.\w+)?)`|\]\(\.\./([\w/]+\.py)\)")


def _rows() -> list[str]:
    section = _PAGE.read_text(encoding="utf-8").partition("## Where is what?")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def _named(row: str) -> dict[str, str]:
    """By name: the file that is linked next."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    for name, path in _NAME_OR_PATH.findall(row.split(" | ", 1)[1]):
        if name:
            waiting.append(name)
        else:
            found.update(dict.fromkeys(waiting, path))
            waiting.clear()
    assert not waiting, waiting
    return found


def _defined(source: str) -> set[str]:
    """Functions, classes and constants of a module, and the methods of its classes as ``Class.method``."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def test_the_table_answers_what_a_newcomer_asks() -> None:
    """Twelve questions."""
    assert len(_rows()) == 12


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.split(" | ")[0].strip("| "))
def test_what_is_named_is_there(row: str) -> None:
    """A name that has moved, or a file, fails here."""
    named = _named(row)
    assert named, row
    for name, path in named.items():
        assert name in _defined((ROOT / path).read_text(encoding="utf-8")), f"{name} is not in {path}"
