"""Carry out and judge one case: ``runner`` makes its processes in the world of a ``job_under_test``, ``hearing``
informs each ``invariant``, ``case_outcome`` is the result. ``references`` computes what a job must commit, ``measure``
its size. ``fences`` find nondeterminism.
"""

from __future__ import annotations

from engine.explore.run.case_outcome import (
    ASSERTION as ASSERTION,
    LIVENESS as LIVENESS,
    CaseView as CaseView,
    FinishedCase as FinishedCase,
)
from engine.explore.run.digest import trace_digest as trace_digest
from engine.explore.run.expected import Expected as Expected
from engine.explore.run.fences import fenced as fenced
from engine.explore.run.file_outputs import (
    FileOutput as FileOutput,
    directory_in as directory_in,
    output_of as output_of,
    without_rows as without_rows,
)
from engine.explore.run.invariant import Invariant as Invariant, Violation as Violation, hears as hears
from engine.explore.run.job_sequence import SAVEPOINTS_DIR as SAVEPOINTS_DIR, Jobs as Jobs, Start as Start
from engine.explore.run.job_under_test import (
    OUTPUT_DIR as OUTPUT_DIR,
    SinkInMemory as SinkInMemory,
    Subject as Subject,
    World as World,
)
from engine.explore.run.measure import Measure as Measure
from engine.explore.run.references import RUNS as RUNS, Reference as Reference, calm_cases as calm_cases
from engine.explore.run.runner import (
    Bounds as Bounds,
    CheckpointTrigger as CheckpointTrigger,
    choices_of as choices_of,
    injector_of as injector_of,
    run_case as run_case,
)
