"""Sinks that commit in another system: ``two_phase_commit`` within one operator; ``committing_sink`` in several, with
writers, ``committer`` operators around ``committer_machine`` and ``global_committer_machine``, and their books
(``committables``, ``committable_collector``). ``commit_rules`` are the rules that differ between versions of Flink.
"""

from __future__ import annotations

from operators.transactions.commit_rules import CommitRules
from operators.transactions.committables import COMMITTABLE, END_OF_INPUT, CommitRequest, messages, summary
from operators.transactions.committer_machine import Committer
from operators.transactions.committing_sink import CommittingSink, SinkPart, SinkWriter, WriteError, part_options
from operators.transactions.two_phase_commit import (
    Transaction,
    TransactionLostError,
    TwoPhaseCommitSinkOperator,
    check_timeouts,
)

__all__ = [
    "COMMITTABLE",
    "CommitRequest",
    "CommitRules",
    "Committer",
    "CommittingSink",
    "END_OF_INPUT",
    "SinkPart",
    "SinkWriter",
    "Transaction",
    "TransactionLostError",
    "TwoPhaseCommitSinkOperator",
    "WriteError",
    "check_timeouts",
    "messages",
    "part_options",
    "summary",
]
