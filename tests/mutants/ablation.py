"""The ablation page: ``python -m tests.mutants.ablation`` hunts all mutants and writes the tables of
``docs/ablation.md``; the prose of the page stays as it is.

With names of mutants as arguments only those are hunted, and their rows replace the old ones.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from tests.mutants.areas import BY_AREA, AreaMutant
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.hunt import MOST_RUNS, MOST_SECONDS, AreaCatch, hunt, hunt_in_area
from tests.mutants.mutant import Mutant

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ablation.md"

AREAS = "## By area, with default settings"
NOT_FOUND = "not found"

Row = tuple[str, ...]


def rows_of(page: str, heading: str | None = None) -> list[Row]:
    """The cells of each row of the table in a page: the first one, or the one below a heading."""
    part = page.partition(AREAS)[2 if heading == AREAS else 0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[1:]]


def _cell(text: str) -> str:
    words = text.split(";", maxsplit=1)[0].replace("|", "/").replace("\n", " ").replace("<", "&lt;")
    return words if len(words) < 120 else f"{words[:120]}…"


def _line(row: Row) -> str:
    return f"| {' | '.join(row)} |\n"


def _hunted(mutant: Mutant) -> tuple[Row, str | None]:
    catch = hunt(mutant)
    about = (mutant.name, mutant.safeguard, mutant.source)
    if catch is None:
        return (*about, NOT_FOUND, "", f"{MOST_RUNS} runs"), "not found"
    print(f"{mutant.name}: run {catch.runs}, {catch.seconds:.1f} s, {catch.invariant}", flush=True)
    row = (*about, str(catch.runs), catch.invariant, _cell(catch.text))
    return row, None if catch.invariant in mutant.caught_by else f"named {catch.invariant}"


def is_explained(mutant: AreaMutant, catch: AreaCatch) -> bool:
    """Whether the right invariant named the mutant in time."""
    return catch.invariant in mutant.caught_by and catch.seconds <= MOST_SECONDS


def _hunted_in_area(mutant: AreaMutant) -> tuple[Row, str | None]:
    catch = hunt_in_area(mutant)
    about = (mutant.area, mutant.name, mutant.source, mutant.on)
    about_it = f"{mutant.name}: run {catch.runs}, {catch.seconds:.1f} s, {catch.invariant}"
    print(f"{about_it}: {catch.text[:200]!r}", flush=True)
    if is_explained(mutant, catch):
        assert catch.invariant is not None
        row = (*about, str(catch.runs), f"{catch.seconds:.0f}", catch.invariant, _cell(catch.text))
        return row, "found, so why_not is not true any more" if mutant.why_not else None
    row = (*about, f"{NOT_FOUND} in {catch.runs}", f"{catch.seconds:.0f}", "", mutant.why_not)
    return row, None if mutant.why_not else f"not found, or named wrongly ({catch.invariant}), and why_not says not why"


def _with_reason(mutant: AreaMutant, row: Row) -> Row:
    """A row that was kept says why today."""
    return (*row[:-1], mutant.why_not) if row[4].startswith(NOT_FOUND) else row


def page_of(page: str, rows: list[Row], by_area: list[Row]) -> str:
    """The page with these rows in its two tables; its prose is kept."""
    found = sum(not row[4].startswith(NOT_FOUND) for row in by_area)
    page = re.sub(
        r"\*\*\d+ of \d+ are found and explained within \d+ s",
        f"**{found} of {len(by_area)} are found and explained within {int(MOST_SECONDS)} s",
        page,
    )
    tables, lines, is_row = iter((rows, by_area)), [], False
    for line in page.splitlines(keepends=True):
        if line.startswith("|---"):
            lines += [line, *map(_line, next(tables))]
        elif not (is_row and line.startswith("| ")):
            lines.append(line)
        is_row = line.startswith("|---") or (is_row and line.startswith("| "))
    return "".join(lines)


def main(names: list[str]) -> int:
    """Search for all of them, or for those of these names, and write the page. Exit code 1 when one was not found, or
    not explained, and no reason is given."""
    started = time.monotonic()
    known = {mutant.name for mutant in (*CATALOGUE, *BY_AREA)}
    for name in names:
        if name not in known:
            print(f"there is no mutant {name!r}; there are: {', '.join(sorted(known))}")
            return 2
    rows: dict[str, Row] = {}
    by_area: dict[str, Row] = {}
    wrong: list[str] = []
    for mutant in (*CATALOGUE, *BY_AREA):
        if names and mutant.name not in names:
            continue
        if isinstance(mutant, AreaMutant):
            by_area[mutant.name], problem = _hunted_in_area(mutant)
        else:
            rows[mutant.name], problem = _hunted(mutant)
        if problem is not None:
            wrong.append(f"{mutant.name}: {problem}")
    print(f"{time.monotonic() - started:.0f} s")
    if wrong:
        print("\n".join(wrong))
    if wrong and not names:
        return 1
    # Read now: another process may have hunted others meanwhile. A mutant without a row is hunted another time.
    page = PAGE.read_text()
    rows = {row[0]: row for row in rows_of(page)} | rows
    by_area = {row[1]: row for row in rows_of(page, AREAS)} | by_area
    PAGE.write_text(
        page_of(
            page,
            [rows[one.name] for one in CATALOGUE if one.name in rows],
            [_with_reason(one, by_area[one.name]) for one in BY_AREA if one.name in by_area],
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
