"""``python -m tests.mutants.digest MUTANT SEED``: the trace digest of one run, with the mutant switched on."""

from __future__ import annotations

import sys

from engine.explore.cases import Case
from engine.explore.run import run_case, trace_digest
from engine.observe.trace_events import TraceEvent
from tests.mutants.catalogue import named

if __name__ == "__main__":
    mutant = named(sys.argv[1])
    trace: list[TraceEvent] = []
    with mutant.patch():
        run_case(mutant.subject(), Case(sys.argv[2], mutant.config), instruments=[trace.append])
    print(trace_digest(trace))
