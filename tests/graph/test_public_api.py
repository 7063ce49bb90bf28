"""``engine`` itself: every public name is there, and importing it loads nothing heavy."""

from __future__ import annotations

import ast
import configparser
import sys
from pathlib import Path

import pytest

import engine
from tests.hash_seeds import printed

ROOT = Path(engine.__file__).parents[1]


def declared_names() -> dict[str, str]:
    """Name -> module of every import that type checkers see."""
    tree = ast.parse(Path(engine.__file__).read_text(encoding="utf-8"))
    (guard,) = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: str(statement.module)
        for statement in guard.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_version_is_the_distributions() -> None:
    """The version is written in two places, and they agree."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")

    assert engine.__version__ == parser["metadata"]["version"]


def test_both_lists_agree() -> None:
    """Names for type checkers are names that are loaded on demand, and each has one home."""
    loaded = {**engine._HOMES, **{name: module.rpartition(".")[0] for name, module in engine._MODULES.items()}}

    assert declared_names() == loaded
    assert len(set(engine.__all__)) == len(engine.__all__)


@pytest.mark.parametrize("name", engine.__all__)
def test_every_name_can_be_loaded(name: str) -> None:
    """Each public name is the object of that name in its home module, and dir() lists it."""
    value = getattr(engine, name)

    assert name in dir(engine)
    if name in engine._HOMES:
        assert value is getattr(sys.modules[engine._HOMES[name]], name)


def test_unknown_name() -> None:
    """Another name is an AttributeError as in any module."""
    with pytest.raises(AttributeError, match="module 'engine' has no attribute 'nothing'"):
        engine.nothing


def loaded_after(program: str) -> set[str]:
    """Top-level modules loaded after a program ran in a fresh process."""
    code = f"{program}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    return set(printed(code, "0").split())


HEAVY = {"networkx", "click", "rich", "pyspark", "pyarrow", "pandas", "numpy"}


def test_import_is_light() -> None:
    """``import engine`` loads no dependency at all."""
    assert not loaded_after("import engine") & (HEAVY | {"msgpack", "sortedcontainers"})


def test_graph_modules_are_light() -> None:
    """The fluent API and the plan of a job load nothing heavy; networkx, which takes 0.1 s, is for loops."""
    begin = "from engine import Job, SequenceSource; job = Job('x'); numbers = job.source(SequenceSource(0, 2))"
    assert not loaded_after(f"{begin}; numbers.map(str).print(); job.plan()") & HEAVY
    loop = f"{begin}; loop = numbers.iterate(); loop.close_with(loop.map(int)); loop.print()"
    assert loaded_after(f"{loop}; job.plan()") & HEAVY == {"networkx"}
