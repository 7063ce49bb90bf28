"""One run of a search by itself, as a row of a table of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.explore.run import FinishedCase, Violation


@dataclass(frozen=True, slots=True)
class MadeRun:
    """``faults``: the kinds of those that struck, in their order; ``violates``: the names of the invariants;
    ``digest``: of the trace; ``rows``: committed in the end."""

    number: int
    seed: str
    mode: str
    outcome: str
    digest: str
    events: int
    choices: int
    processes: int
    rows: int
    judged_by_ledger: bool
    faults: tuple[str, ...]
    violates: tuple[str, ...]
    violation: str | None
    """The first violation in words; ``None`` = none."""

    @classmethod
    def of(
        cls, number: int, seed: str, finished: FinishedCase, digest: str, violations: Sequence[Violation]
    ) -> MadeRun:
        """The run with this number; ``violations``: those of its report."""
        return cls(
            number,
            seed,
            finished.view.config.mode,
            finished.outcome,
            digest,
            finished.events,
            len(finished.choices),
            finished.incarnations,
            sum(map(len, finished.committed.values())),
            finished.judged_by_ledger,
            tuple(fault.kind for fault in finished.faults),
            tuple(dict.fromkeys(one.invariant for one in violations)),
            str(violations[0]) if violations else None,
        )
