"""Run cases of a job under test, and compare runs: with an undisturbed run, and with a repetition of themselves."""

from __future__ import annotations

from engine.explore.cases import Case as Case, parse_savepoint as parse_savepoint
from engine.explore.opinion import (
    CountDifference as CountDifference,
    OutputComparison as OutputComparison,
    compare_by_key as compare_by_key,
    compare_outputs as compare_outputs,
)
from engine.explore.run import (
    SelfCheckReport as SelfCheckReport,
    Subject as Subject,
    Surroundings as Surroundings,
    run_case as run_case,
    self_check as self_check,
)
from engine.faults.fault import parse_fault as parse_fault
