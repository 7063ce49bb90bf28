"""Runs every validation target at full size, prints the table, and writes docs/validation.md: ``make validate``.

Names of targets run only those, and write nothing: ``python -m tests.validation.page V1 V5``. ``--quick`` runs at the
sizes of ``make test``, and the page says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.house.project import ROOT
from tests.validation.targets import Figure, Measured, Target, all_targets, measure

PAGE = ROOT / "docs/validation.md"
WORKERS = 2

HEAD = """\
# Validation

After this page you can say which figures from theory and from publications Weir reproduces, how exactly, and
with how many lines of a study. `make validate` runs all of it and writes this page:

```sh
make validate
```

A relative error is within the tolerance, or the row says **missed** and why. No study was tuned to pass: the
settings are those of the source, and seeds are counted from 0. The link of an id leads to the test. Its
docstring has the formula with its source. `lines` are those of the study. `make test` runs each target at a
small size. There a mean may also differ by four standard errors.

"""

QUICK = """\
**Rows with a star are of small sizes**, as in `make test` and `make validate ARGS=--quick`. Those above their
tolerance are within four standard errors. Some of their figures need full size and are not here.

"""

NOT_EXPRESSED = {
    "V18": "a sliding window whose full size and changelog are those of the published run was not tried",
    "V24": "the pause that one checkpoint costs is not published, so that there is nothing to compare but a fit",
    "V25": "there are no standby tasks and no rebalancing as in Kafka Streams",
    "V26": "there are no uncoordinated checkpoints; V27, V28, V29, V30 and V31 lack them as well",
    "V33": "micro-batches run on Spark only, and their time is not simulated",
}
"""Questions that lack a part of the model."""

TAIL = """
## Not in the table

{missing}

Links on: [studies](studies.md), [time and choices](time-and-choices.md), [limits](limits.md).
"""

COLUMNS = ("id", "question", "case", "expected", "measured", "error", "tolerance", "seeds", "lines", "seconds")


def rows_of(one: Target, measured: Measured) -> Iterator[list[str]]:
    """The rows of a target. Only the first one has what all of them share."""
    shared = [f"[{one.id}](../tests/validation/{one.module}.py)", one.question]
    seeds = f"{one.seeds:,}" if measured.full else f"{one.quick_seeds:,} *"
    last = [seeds, str(one.lines), f"{measured.seconds:.1f}"]
    for figure in measured.figures:
        yield [*shared, *_numbers(one, figure), *last]
        shared, last = ["", ""], ["", "", ""]


def _numbers(one: Target, figure: Figure) -> list[str]:
    why = one.missed.get(figure.case)
    case = figure.case if why is None else f"{figure.case}; **missed**: {why}"
    tolerance = "exact" if figure.tolerance == 0 else f"{100 * figure.tolerance:.3g} %"
    # What floating point leaves of an equality is no error.
    error = "0 %" if figure.error < 1e-12 else f"{100 * figure.error:.3g} %"
    return [case, number_text(figure.expected), number_text(figure.measured), error, tolerance]


def number_text(value: float) -> str:
    """With four digits; whole numbers in full."""
    if value == round(value) and abs(value) < 10**15:
        return f"{round(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1_000 else f"{value:.4g}"


def page_of(measured: Mapping[str, Measured], targets: Mapping[str, Target]) -> str:
    """The page."""
    missing = "\n".join(f"* {id}: {why}." for id, why in NOT_EXPRESSED.items())
    star = "" if all(one.full for one in measured.values()) else QUICK
    return HEAD + star + table_of(measured, targets) + TAIL.format(missing=missing)


def table_of(measured: Mapping[str, Measured], targets: Mapping[str, Target]) -> str:
    """The table in Markdown."""
    lines = [list(COLUMNS), ["---"] * len(COLUMNS)]
    for id, one in targets.items():
        lines += rows_of(one, measured[id])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(names: list[str]) -> int:
    """The exit code: 1 when a figure is outside of its tolerance without a reason."""
    full, names = "--quick" not in names, [name for name in names if name != "--quick"]
    targets = {id: one for id, one in all_targets().items() if not names or id in names}
    found, failed = dict[str, Measured](), list[str]()
    with ProcessPoolExecutor(WORKERS, get_context("fork")) as workers:
        # In the order of the targets, each as soon as it has ended.
        for (id, one), measured in zip(
            targets.items(), workers.map(partial(measure, full=full), targets), strict=True
        ):
            found[id] = measured
            print(table_of({id: measured}, {id: one}).split("|\n", 2)[2], end="", flush=True)
            failed += [
                f"{id} {figure.case}: error {figure.error:.2%}, tolerance {figure.tolerance:.2%}"
                for figure in measured.figures
                if not (figure.holds if full else figure.is_plausible) and figure.case not in one.missed
            ]
    if not names:
        PAGE.write_text(page_of(found, targets), "utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")
    for line in failed:
        print(f"outside of its tolerance: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
