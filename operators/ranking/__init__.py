"""``deduplication`` and ``top_n``, and the records of ``change_records`` that they and the regular join emit."""

from __future__ import annotations

from operators.ranking.change_records import (
    DELETE as DELETE,
    INSERT as INSERT,
    adds as adds,
    find_row as find_row,
    materialize as materialize,
)
from operators.ranking.deduplication import deduplicator as deduplicator
from operators.ranking.top_n import TopNOperator as TopNOperator, greatest as greatest
