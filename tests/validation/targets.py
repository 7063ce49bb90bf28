"""Validation targets: figures that are known, and what the simulator measures instead.

A target is a function of a :class:`Size` that yields figures. Its test runs it at a small size. ``make validate`` runs
all at full size and writes ``docs/validation.md``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import fsum, sqrt
from pkgutil import iter_modules
from textwrap import dedent
from time import perf_counter
from typing import Any, NamedTuple

import tests.validation


class Figure(NamedTuple):
    """One number that is known, and what was measured.

    ``tolerance``       the greatest relative error; 0: both are equal;
    ``standard_error``  of a measured mean.
    """

    case: str
    expected: float
    measured: float
    tolerance: float
    standard_error: float = 0.0

    @property
    def error(self) -> float:
        """Relative to what is expected; absolute if that is 0."""
        return abs(self.measured - self.expected) / (abs(self.expected) or 1)

    @property
    def holds(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance

    @property
    def is_plausible(self) -> bool:
        """Whether it holds, or differs by no more than four standard errors: all that a small run can tell."""
        return self.holds or abs(self.measured - self.expected) <= 4 * self.standard_error


def mean_figure(case: str, expected: float, values: Sequence[float], tolerance: float) -> Figure:
    """The mean of independent values."""
    count = len(values)
    mean = fsum(values) / count
    squares = fsum((value - mean) ** 2 for value in values)
    return Figure(case, expected, mean, tolerance, sqrt(squares / (count - 1) / count) if count > 1 else 0.0)


class Size(NamedTuple):
    """How large a target is run: the seeds, and whether at full size."""

    seeds: range
    full: bool

    def of(self, quick: int, full: int) -> int:
        """One of two numbers."""
        return full if self.full else quick


@dataclass(frozen=True)
class Target:
    """``study``: the functions that a researcher would write; their lines are counted. ``missed``: why a figure is
    outside of its tolerance, by its case."""

    id: str
    question: str
    run: Callable[[Size], Iterator[Figure]]
    study: tuple[Callable[..., Any], ...]
    seeds: int
    quick_seeds: int
    missed: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """Where it is, without the package."""
        return self.run.__module__.rpartition(".")[2]

    @property
    def lines(self) -> int:
        """Lines of the study, without those of comments."""
        return sum(map(_lines_of, self.study))

    def measure(self, *, full: bool = False) -> list[Figure]:
        """Run it; its figures."""
        return list(self.run(Size(range(self.seeds if full else self.quick_seeds), full)))


class Measured(NamedTuple):
    """The figures of a target, the seconds they took, and whether it was run at full size."""

    figures: list[Figure]
    seconds: float
    full: bool


TARGETS: dict[str, Target] = {}


def target(
    id: str,
    question: str,
    *,
    study: Sequence[Callable[..., Any]],
    seeds: int = 1,
    quick_seeds: int = 1,
    missed: Mapping[str, str] | None = None,
) -> Callable[[Callable[[Size], Iterator[Figure]]], Target]:
    """Register a function as a target."""

    def register(run: Callable[[Size], Iterator[Figure]]) -> Target:
        assert id not in TARGETS, id
        TARGETS[id] = Target(id, question, run, tuple(study), seeds, quick_seeds, missed or {})
        return TARGETS[id]

    return register


def all_targets() -> dict[str, Target]:
    """Every target, by id."""
    for module in sorted(one.name for one in iter_modules(tests.validation.__path__)):
        if module.startswith("test_v"):
            import_module(f"tests.validation.{module}")
    return TARGETS


def measure(id: str, *, full: bool) -> Measured:
    """Run a target, and take the time."""
    began = perf_counter()
    return Measured(TARGETS[id].measure(full=full), perf_counter() - began, full)


def assert_plausible(one: Target) -> None:
    """The quick test of a target."""
    figures = one.measure()
    assert figures, f"{one.id} has measured nothing"
    wrong = [figure for figure in figures if not figure.is_plausible and figure.case not in one.missed]
    assert not wrong, "\n".join([f"{one.id} {figure}, error {figure.error:.2%}" for figure in wrong])


def _lines_of(function: Callable[..., Any]) -> int:
    """Lines of code of a function, its docstring and empty lines left out."""
    text = dedent(inspect.getsource(function))
    node = ast.parse(text).body[0]
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef)), function
    documented = set[int]()
    if ast.get_docstring(node) is not None:
        documented = set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        1 for number, line in lines if number not in documented and line.strip() and not line.strip().startswith("#")
    )
