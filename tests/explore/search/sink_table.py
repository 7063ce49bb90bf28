"""The table of ``docs/sinks-under-crashes.md``: ``python -m tests.explore.search.sink_table`` counts and writes it."""

from __future__ import annotations

import sys
from pathlib import Path

from examples import sinks
from tests.explore.search.sink_deaths import POINTS, RECOVERING, deaths, places, subject_of, visits

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sinks-under-crashes.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of the table -->\n"
SHOWN = tuple(
    point for point in POINTS if point.startswith(("sink.", "operator.", "restore.")) and point != "sink.abort"
)
MODE = "aligned"


def table() -> str:
    """How often each point is come by, sink by sink, in a run with a death to recover from."""
    lines = [f"| Sink | {' | '.join(f'`{point}`' for point in SHOWN)} | Deaths |", f"|---|{'---:|' * (len(SHOWN) + 1)}"]
    for sink in sinks.SINKS:
        subject = subject_of(sink)
        seen = visits(subject, MODE, RECOVERING[0])
        counts = [str(seen.get((point, "before"), "")) for point in SHOWN]
        cases = sum(1 for _ in deaths(places(subject, MODE)))
        cases += sum(1 for first in RECOVERING for _ in deaths(places(subject, MODE, first)))
        lines.append(f"| `{sink}` | {' | '.join(counts)} | {cases} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the table into its page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
