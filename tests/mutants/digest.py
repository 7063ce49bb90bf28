"""``python -m tests.mutants.digest MUTANT SEED``: the trace digest of one run, with the mutant switched on."""

from __future__ import annotations

import sys

from engine.explore.cases import Case
from engine.explore.run import TraceTape, run_case
from tests.mutants.catalogue import named

if __name__ == "__main__":
    mutant, tape = named(sys.argv[1]), TraceTape()
    with mutant.patch():
        run_case(mutant.subject(), Case(sys.argv[2], mutant.config), instruments=[tape.append])
    print(tape.digest())
