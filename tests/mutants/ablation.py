"""The ablation table: ``python -m tests.mutants.ablation`` searches for all mutants and writes ``docs/ablation.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.hunt import MOST_RUNS, hunt

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ablation.md"

_HEAD = """\
# What each safeguard is for

A safeguard that can be taken away without anybody noticing is a comment. So each of the ones below is taken away, by a
switch in the tests that puts back a mistake which somebody really made, and the search of `weir explore` has to find
out. The table says in which run of the campaign it did, and which [invariant](invariants.md) it named first.

The same campaigns on the engine as it is find nothing. `make test-all` repeats all of this; the table is written by
`python -m tests.mutants.ablation`.

| Mistake | Safeguard taken away | After | Found in run | Named | In the report's words |
|---|---|---|---|---|---|
"""


def rows_of(page: str) -> list[tuple[str, ...]]:
    """The cells of each row of the table in a page."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[1:]]


def main() -> int:
    """Search for all of them, and write the page. Exit code 1 when one was not found, or not explained."""
    rows, wrong = [], []
    for mutant in CATALOGUE:
        catch = hunt(mutant)
        if catch is None or catch.invariant not in mutant.caught_by:
            wrong.append(mutant.name)
            continue
        words = catch.text.split(";")[0].replace("|", "/").replace("\n", " ")
        words = words if len(words) < 120 else f"{words[:120]}…"
        found = [mutant.name, mutant.safeguard, mutant.source, str(catch.runs), catch.invariant, words]
        rows.append(f"| {' | '.join(found)} |")
        print(f"{mutant.name}: run {catch.runs}, {catch.seconds:.1f} s, {catch.invariant}")
    if wrong:
        print(f"not found within {MOST_RUNS} runs, or named wrongly: {', '.join(wrong)}")
        return 1
    PAGE.write_text(_HEAD + "\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
