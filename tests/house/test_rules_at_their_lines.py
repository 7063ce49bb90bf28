"""A rule that a mutant breaks is told at the line that serves it, with the mutant's name."""

from __future__ import annotations

import re

from tests.house.project import PACKAGES, python_files
from tests.mutants.areas import BY_AREA
from tests.mutants.catalogue import CATALOGUE


def test_every_mutant_is_named_where_its_rule_bites() -> None:
    """Each mutant is named once in the program, and the program names no other."""
    named = [
        name
        for path in python_files(*PACKAGES)
        for comment in re.findall(r"# .*?\(mutants? (\".*\")\)\.$", path.read_text("utf-8"), re.MULTILINE)
        for name in re.findall(r'"([^"]*)"', comment)
    ]

    assert sorted(named) == sorted(mutant.name for mutant in (*CATALOGUE, *BY_AREA))
