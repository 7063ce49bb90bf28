"""``expected()`` of a job file: the rows that the job must commit, stated by its author.

It serves jobs that the second opinion cannot evaluate: with operators of their own, services with effects outside, or
dependence on the virtual clock::

    def expected(inputs, keys="3"):
        return {"out": [(number % int(keys), number) for number in inputs["numbers"]]}

* It returns rows by sink: by ``uid``, or ``uid/bucket``. A row that is a ``str`` is the text that readers see (for a
  sink in memory, the ``repr`` of the record); anything else is a record, and is written as the sink writes it.
* Its arguments are those parameters of ``job()`` that it names, as texts, and as ``inputs`` the records of each source,
  by uid, split after split. Without ``inputs`` it is valid for the whole input only: it is not called for part of the
  input, as in a smaller case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.elements.errors import JobFileError, WeirError


@dataclass(frozen=True, slots=True)
class Expected:
    """``call``: the function, with its parameters; ``takes_inputs``: whether it names ``inputs``; ``path``: its
    file."""

    call: Callable[..., object]
    takes_inputs: bool
    path: str

    def rows(self, inputs: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Its return value. Raises :class:`JobFileError` when it raises an exception, or returns anything else."""
        try:
            said = self.call(inputs=inputs) if self.takes_inputs else self.call()
        except WeirError:
            raise
        except Exception as error:
            raise JobFileError(
                f"{self.path}: expected() raised {type(error).__name__}: {error}\n  fix the function"
            ) from error
        if not isinstance(said, Mapping) or not all(
            isinstance(name, str) and isinstance(rows, Iterable) and not isinstance(rows, str)
            for name, rows in said.items()
        ):
            raise JobFileError(
                f"{self.path}: expected() returned {type(said).__name__} instead of rows by sink\n"
                "  fix: return a dict such as {'out': [(1, 'a'), (2, 'b')]}, by the uid of each sink"
            )
        return {name: list(rows) for name, rows in said.items()}
