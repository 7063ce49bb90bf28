"""A second opinion on a job: its committed output, computed without the engine.

:func:`second_opinion` evaluates a plan record by record, by the meaning that the pages under ``docs/`` give to each
operator. It runs the functions of the user, but none of the engine's windows, timers, joins, states, patterns, sinks,
channels or checkpoints. So a mistake in any of those shows as a difference.

A job is evaluated in several orders. If these disagree, the job's output depends on the order of its records.
:func:`compare_outputs` lists the rows that only one of two outputs has.
"""

from __future__ import annotations

from engine.explore.opinion.opinion import (
    ORDERS as ORDERS,
    Opinion as Opinion,
    read_records as read_records,
    second_opinion as second_opinion,
    text_of as text_of,
)
from engine.explore.opinion.output_comparison import (
    OutputComparison as OutputComparison,
    compare_outputs as compare_outputs,
)
