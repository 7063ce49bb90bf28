"""The parts of a case, which shrinking removes: how many it has, and the case without one of them.

Parts are the records of its input, faults, savepoints, checkpoints triggered at instants, and choices of its schedule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.explore.cases import Case, Ranges, case_to_plain


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a case: records of the input, faults, checkpoints triggered at instants, choices other than 0,
    savepoints."""

    records: int
    faults: int
    checkpoints: int
    choices: int
    savepoints: int = 0

    def __str__(self) -> str:
        parts = (
            counted(self.records, "record"),
            counted(self.faults, "fault"),
            counted(self.checkpoints, "checkpoint"),
            counted(self.choices, "choice"),
            *([counted(self.savepoints, "savepoint")] if self.savepoints else []),
        )
        return ", ".join(parts)


def counted(count: int, noun: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size_of(case: Case, records: Mapping[str, int]) -> Size:
    """The size of a case. ``records``: how many each split has."""
    instants, savepoints = case.checkpoints or (), case.savepoints
    return Size(len(records_of(case, records)), len(case.faults), len(instants), len(case.schedule), len(savepoints))


def removals(case: Case, records: Mapping[str, int]) -> Iterator[tuple[str, Case]]:
    """Every case without one record, fault, savepoint, checkpoint or choice, and the name of that part. ``records``:
    how many each split has."""
    for key, number in records_of(case, records):
        gone = [one for first, end in case.dropped.get(key, ()) for one in range(first, end)]
        more = {**case.dropped, key: ranges_of(sorted([*gone, number]))}
        yield f"record {number} of {key}", replace(case, dropped={one: more[one] for one in records if one in more})
    for at, fault in enumerate(case.faults):
        yield f"fault {fault}", replace(case, faults=(*case.faults[:at], *case.faults[at + 1 :]))
    for at, order in enumerate(case.savepoints):
        yield f"savepoint {order}", replace(case, savepoints=(*case.savepoints[:at], *case.savepoints[at + 1 :]))
    instants = case.checkpoints or ()
    for at, instant in enumerate(instants):
        yield f"checkpoint at {instant} ns", replace(case, checkpoints=(*instants[:at], *instants[at + 1 :]))
    for number, value in sorted(case.schedule.items()):
        schedule = {one: other for one, other in case.schedule.items() if one != number}
        yield f"choice {number} = {value}", replace(case, schedule=schedule)


def case_key(case: Case) -> str:
    """The same text for cases that are the same run."""
    return json.dumps(case_to_plain(case), sort_keys=True)


def records_of(case: Case, records: Mapping[str, int]) -> list[tuple[str, int]]:
    """The remaining records, split by split."""
    return [
        (key, number)
        for key, count in records.items()
        for number in range(count)
        if not any(first <= number < end for first, end in case.dropped.get(key, ()))
    ]


def ranges_of(numbers: Sequence[int]) -> Ranges:
    """Ascending numbers as half-open ranges."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    return tuple(ranges)
