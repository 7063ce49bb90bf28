"""Studies: one question, asked of many runs. ``sweep`` runs a function for many sets of arguments, ``study_table`` has
the results with means and plots; ``case_grid``, ``case_processes``, ``case_executors``, ``row_measures``,
``study_file`` and ``intervals`` are its parts. ``advice`` says how often a job should take a checkpoint, by the
formulas of ``best_intervals`` with the costs of ``job_costs``, and how many tasks it needs (``true_rates``). The laws
of chance that a study needs are here, too.
"""

from __future__ import annotations

from engine.elements.arrival_processes import (
    ArrivalProcess as ArrivalProcess,
    Periodic as Periodic,
    Poisson as Poisson,
    Trace as Trace,
)
from engine.elements.failure_laws import Failures as Failures
from engine.elements.laws import (
    Constant as Constant,
    Empirical as Empirical,
    Exponential as Exponential,
    Law as Law,
    LogNormal as LogNormal,
    Pareto as Pareto,
    Uniform as Uniform,
    parse_law as parse_law,
)
from engine.study.advice import Advice as Advice, advise as advise
from engine.study.best_intervals import (
    best_period as best_period,
    daly_work as daly_work,
    expected_makespan as expected_makespan,
    lambert_w as lambert_w,
    young_work as young_work,
)
from engine.study.study_file import StudyIdentity as StudyIdentity
from engine.study.study_table import (
    StudyTable as StudyTable,
    check_picture as check_picture,
    read_study as read_study,
    row_text as row_text,
)
from engine.study.sweep import sweep as sweep
from engine.study.true_rates import moved_share as moved_share, rescaling as rescaling
from operators.sources import Arrivals as Arrivals
