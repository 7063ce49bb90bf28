"""Run cases of a job under test, and compare runs: with an undisturbed run, and with a repetition of themselves."""

from __future__ import annotations

from engine.explore.cases import Case as Case, parse_savepoint as parse_savepoint
from engine.explore.opinion import OutputComparison as OutputComparison, compare_outputs as compare_outputs
from engine.explore.run import Subject as Subject, run_case as run_case
from engine.faults.fault import parse_fault as parse_fault
