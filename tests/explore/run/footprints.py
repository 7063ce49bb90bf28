"""``python -m tests.explore.run.footprints SEED...``: what the standard scenario leaves, one line for each seed.

The case of a seed is drawn like a run of a campaign: configuration, schedule and faults. A line holds one digest over
choices, events, files and output. Two processes that print other lines for one seed are not deterministic.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from pathlib import Path

from engine.cli.cases import load_subject
from engine.explore.cases import Case
from engine.explore.invariants import Footprint
from engine.explore.run import Measure, Subject, run_case, trace_digest
from engine.explore.search import Swarm
from engine.explore.search.swarm import draw_case
from engine.explore.shrink import concretised
from engine.observe.trace_events import TraceEvent

STANDARD = Path(__file__).resolve().parents[3] / "examples" / "standard_scenario.py"


def standard() -> Subject:
    return load_subject(str(STANDARD), {})


def case_of(subject: Subject, seed: str) -> Case:
    """The case that a campaign would draw from a seed."""
    return draw_case(Swarm(), Measure.of(subject), seed)


def footprint(subject: Subject, case: Case) -> Footprint:
    trace: list[TraceEvent] = []
    return Footprint.of(run_case(subject, case, instruments=[trace.append]), trace_digest(trace))


def line(subject: Subject, seed: str) -> str:
    """The line of one seed: of the case as it was drawn, and of the same in exact faults and choices."""
    case = case_of(subject, seed)
    drawn = footprint(subject, case)
    exact = footprint(subject, concretised(run_case(subject, case)))
    digests = [blake2b(repr(one).encode(), digest_size=16).hexdigest() for one in (drawn, exact)]
    return f"{seed} {' '.join(digests)} {exact.trace_digest == drawn.trace_digest}"


if __name__ == "__main__":
    job = standard()
    for seed in sys.argv[1:]:
        print(line(job, seed))
