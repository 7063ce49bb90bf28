"""``deduplication`` and ``top_n``, and the records of ``changes`` that they and the regular join emit.
"""

from __future__ import annotations

from operators.ranking.changes import DELETE, INSERT, adds, find_row, materialize
from operators.ranking.deduplication import deduplicator
from operators.ranking.top_n import TopNOperator, greatest

__all__ = [
    "DELETE",
    "INSERT",
    "TopNOperator",
    "adds",
    "deduplicator",
    "find_row",
    "greatest",
    "materialize",
]
