"""A check of many vectors in one test: it reports all complaints together, each under the name of its vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.conformance.compare import Vector


def check_each(vectors: Iterable[Vector], check: Callable[[Vector], Iterable[str]]) -> None:
    """Fail with all complaints of ``check`` about the vectors. An error for one vector does not skip the others."""
    found = []
    for vector in vectors:
        try:
            found += [f"{vector['name']}: {text}" for text in check(vector)]
        except Exception as problem:
            found.append(f"{vector['name']}: {type(problem).__name__}: {problem}")
    if found:
        pytest.fail("\n".join(found), pytrace=False)
