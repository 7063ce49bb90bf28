"""The coverage of a search: which points were visited and struck, which faults there were, how different the runs were.

A search that found nothing proves something only about its coverage. Coverage is added up run by run and merged
over workers; merging is commutative, so it does not matter which worker made which run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.explore.run import FinishedCase, Invariant
from engine.observe.points import POINTS


@dataclass(slots=True)
class CountSpread:
    """Least, greatest and mean of a number over runs."""

    runs: int = 0
    total: int = 0
    least: int = 0
    greatest: int = 0

    def add(self, value: int) -> None:
        self.merge(CountSpread(1, value, value, value))

    def merge(self, other: CountSpread) -> None:
        if not other.runs:
            return
        self.least = min(self.least, other.least) if self.runs else other.least
        self.greatest = max(self.greatest, other.greatest)
        self.runs += other.runs
        self.total += other.total

    @property
    def mean(self) -> int:
        """Rounded down; 0 without runs."""
        return self.total // self.runs if self.runs else 0


@dataclass(slots=True)
class Coverage:
    """``visited``, ``struck``: ``(point, phase)`` -> runs; ``faults``: kind -> how many struck; ``applied``,
    ``happened``: ``sometimes`` property -> runs in which it could happen, and did; ``skipped``: reason why an invariant
    did not judge -> runs; ``behaviours``: the digests of all traces, shortened to eight bytes; ``checked``: runs made
    twice; ``by_ledger``: runs that the ledger judged."""

    runs: int = 0
    events: CountSpread = field(default_factory=CountSpread)
    choices: CountSpread = field(default_factory=CountSpread)
    outcomes: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    visited: Counter[tuple[str, str]] = field(default_factory=Counter)
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    applied: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    behaviours: set[int] = field(default_factory=set)
    checked: int = 0
    by_ledger: int = 0
    processes: int = 0

    def add(
        self, finished: FinishedCase, digest: str, invariants: Sequence[Invariant], sometimes: Mapping[str, bool]
    ) -> None:
        """Add one run; ``digest`` is that of its trace, ``sometimes``: by applicable property, whether it happened."""
        self.runs += 1
        self.by_ledger += finished.judged_by_ledger
        self.processes += finished.incarnations
        self.events.add(finished.events)
        self.choices.add(len(finished.choices))
        self.outcomes[finished.outcome] += 1
        self.modes[finished.view.config.mode] += 1
        self.visited.update(dict.fromkeys(finished.points, 1))
        places = [(fault.point, fault.phase) for fault in finished.faults if fault.point is not None]
        self.struck.update(dict.fromkeys(places, 1))
        self.faults.update(fault.kind for fault in finished.faults)
        self.applied.update(dict.fromkeys(sometimes, 1))
        self.happened.update(name for name, happened in sometimes.items() if happened)
        for invariant in invariants:
            reason = getattr(invariant, "skipped", None)
            if reason is not None:
                self.skipped[f"{invariant.name}: {reason}"] += 1
        self.behaviours.add(int(digest[:16], 16))

    def merge(self, other: Coverage) -> None:
        self.runs += other.runs
        self.checked += other.checked
        self.by_ledger += other.by_ledger
        self.processes += other.processes
        self.events.merge(other.events)
        self.choices.merge(other.choices)
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        self.behaviours |= other.behaviours

    @property
    def vacuous(self) -> list[str]:
        """Properties that could have happened and never did."""
        return sorted(name for name in self.applied if not self.happened[name])

    @property
    def crash_points(self) -> tuple[int, int]:
        """How many ``(point, phase)`` were struck, and how many were visited and could have been struck."""
        reachable = self.reachable
        return sum(1 for one in reachable if self.struck[one]), len(reachable)

    @property
    def reachable(self) -> list[tuple[str, str]]:
        """Every ``(point, phase)`` at which a fault could have struck, in the order of the catalogue."""
        places = [(point, phase) for point, about in POINTS.items() for phase in about.phases]
        return [place for place in places if place in self.visited]

    def as_plain(self) -> dict[str, Any]:
        """For JSON: everything but the digests, of which only the number is given."""
        struck, reachable = self.crash_points
        return {
            "runs": self.runs,
            "processes": self.processes,
            "distinct": len(self.behaviours),
            "run_twice": self.checked,
            "events": _spread(self.events),
            "choice_points": _spread(self.choices),
            "outcomes": _ordered(self.outcomes.items()),
            "modes": _ordered(self.modes.items()),
            "faults": _ordered(self.faults.items()),
            "crash_points": {
                "struck": struck,
                "reachable": reachable,
                "by_point": [
                    {
                        "point": point,
                        "phase": phase,
                        "visited": self.visited[point, phase],
                        "struck": self.struck[point, phase],
                    }
                    for point, phase in self.reachable
                ],
            },
            "sometimes": {
                name: {"applied": self.applied[name], "happened": self.happened[name]} for name in sorted(self.applied)
            },
            "not_judged": _ordered(self.skipped.items()),
        }


_COUNTERS = ("outcomes", "modes", "visited", "struck", "faults", "applied", "happened", "skipped")


def _spread(spread: CountSpread) -> dict[str, int]:
    return {"min": spread.least, "mean": spread.mean, "max": spread.greatest}


def _ordered(items: Iterable[tuple[str, int]]) -> dict[str, int]:
    return dict(sorted(items))
