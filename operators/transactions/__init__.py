"""Sinks that commit in another system. ``two_phase_commit`` uses one operator. ``committing_sink`` uses several:
writers, ``committer`` operators around ``committer_machine`` and ``global_committer_machine``, and their books
(``committables``, ``committable_collector``). ``commit_rules`` are the rules that differ between versions of Flink.
"""

from __future__ import annotations

from operators.transactions.commit_rules import CommitRules as CommitRules
from operators.transactions.committables import (
    COMMITTABLE as COMMITTABLE,
    END_OF_INPUT as END_OF_INPUT,
    CommitRequest as CommitRequest,
    messages as messages,
    summary as summary,
)
from operators.transactions.committer_machine import Committer as Committer
from operators.transactions.committing_sink import (
    CommittingSink as CommittingSink,
    SinkPart as SinkPart,
    SinkWriter as SinkWriter,
    WriteError as WriteError,
    part_options as part_options,
)
from operators.transactions.two_phase_commit import (
    Transaction as Transaction,
    TransactionLostError as TransactionLostError,
    TwoPhaseCommitSinkOperator as TwoPhaseCommitSinkOperator,
    check_timeouts as check_timeouts,
)
