"""Patterns over the records of a key: ``sequence`` describes the wanted records, ``nfa`` is the automaton that finds
them (a pure machine), ``pattern_operator`` runs it in the order of event time (Flink: ``CepOperator``).
"""

from __future__ import annotations

from operators.patterns.pattern_operator import pattern_operator as pattern_operator
from operators.patterns.sequence import Pattern as Pattern
