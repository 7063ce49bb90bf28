"""Many cases in one test: a failure names the case that it happened in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(**named: object) -> Iterator[None]:
    """Around one case of a loop: what is raised inside, failed assertions too, gets a line with these values."""
    try:
        yield
    except BaseException as problem:
        problem.add_note("in the case " + ", ".join(f"{name}={value!r}" for name, value in named.items()))
        raise
