"""A mutant: the engine with one mistake that a developer really made, switched on for the length of a ``with``.

The switch replaces functions of the shipped code from outside; nothing in the shipped code knows of it. A mutant says
what it was made after, how a search for it looks (a job and a mix of cases), and which invariants may name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.explore.cases import Setting
from engine.explore.run import Subject

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    ``mistake``    what the engine does now, in a sentence; ``safeguard``: what is taken away;
    ``source``     who made it, or warns of it;
    ``subject``    the job that is searched;
    ``modes``      those that the search draws one of; ``config``: settings of every run;
    ``kinds``      kinds of faults that a run may get;
    ``caught_by``  invariants one of which must be what the search reports;
    ``in_other_processes``  it shows only where a run is made again in a process with another hash seed.
    """

    name: str
    mistake: str
    safeguard: str
    source: str
    patch: Patch
    subject: Callable[[], Subject]
    caught_by: frozenset[str]
    modes: tuple[str, ...] = ("aligned",)
    config: Mapping[str, Setting] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("crash",)
    in_other_processes: bool = False


@contextmanager
def replaced(owner: Any, **members: Any) -> Iterator[None]:
    """``owner`` (a class or module) with other members, put back afterwards."""
    missing = object()
    before = {name: vars(owner).get(name, missing) for name in members}
    try:
        for name, value in members.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextmanager
def together(*patches: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield
