"""One case carried out and judged: ``runner`` makes its processes in the world of a ``job_under_test`` and tells each
``invariant``. ``references`` says what a job must commit, ``measure`` how large it is. ``selfcheck`` and ``fences``
find what is not deterministic.
"""

from __future__ import annotations

from engine.explore.run.expected import Expected
from engine.explore.run.fences import fenced
from engine.explore.run.file_outputs import directory_in, without_rows
from engine.explore.run.invariant import Invariant, Violation
from engine.explore.run.job_sequence import SAVEPOINTS_DIR, Jobs, Start
from engine.explore.run.job_under_test import OUTPUT_DIR, SinkInMemory, Subject, World
from engine.explore.run.measure import Measure
from engine.explore.run.references import RUNS, Reference, calm_cases
from engine.explore.run.runner import (
    ASSERTION,
    LIVENESS,
    Bounds,
    CaseView,
    CheckpointTrigger,
    FinishedCase,
    choices_of,
    run_case,
)
from engine.explore.run.selfcheck import SelfCheckReport, Surroundings, self_check
from engine.explore.run.tape import TraceTape, trace_digest

__all__ = [
    "ASSERTION",
    "LIVENESS",
    "OUTPUT_DIR",
    "RUNS",
    "SAVEPOINTS_DIR",
    "Bounds",
    "CaseView",
    "CheckpointTrigger",
    "Expected",
    "FinishedCase",
    "Invariant",
    "Jobs",
    "Measure",
    "Reference",
    "SelfCheckReport",
    "SinkInMemory",
    "Start",
    "Subject",
    "Surroundings",
    "TraceTape",
    "Violation",
    "World",
    "calm_cases",
    "choices_of",
    "directory_in",
    "fenced",
    "run_case",
    "self_check",
    "trace_digest",
    "without_rows",
]
