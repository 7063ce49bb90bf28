"""The rules of every two-phase-commit sink: at each crash point, after a change of parallelism, and at the end.

``N`` is the last completed checkpoint throughout.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest


class TwoPhaseCrashes:
    """A fixture ``cluster_of(parallelism, **options)`` makes the clusters."""

    at_once: ClassVar[dict[str, Any]] = {}
    """Options with which each row is written at once."""

    def test_nothing_is_visible_before_its_checkpoint_has_completed(self, cluster_of: Any) -> None:
        """Rows are written, then pre-committed, and only committed with the notification."""
        cluster = cluster_of(**self.at_once)
        cluster.write(1, 2)
        assert cluster.visible() == []
        checkpoint = cluster.snapshot()
        assert cluster.visible() == []
        cluster.tasks[0].complete(checkpoint.id)
        assert cluster.visible() == [1, 2]

    def test_a_crash_before_the_pre_commit_aborts_what_was_written_since(self, cluster_of: Any) -> None:
        """The transaction that was current at N is aborted at once, and its rows come again: no reader is held up."""
        cluster = cluster_of(**self.at_once)
        cluster.write(1)
        cluster.checkpoint(0)
        cluster.write(2)
        cluster.crash()
        assert cluster.visible() == [1]
        cluster.write(2)
        cluster.checkpoint(0)
        assert cluster.visible() == [1, 2]

    def test_a_crash_after_a_pre_commit_whose_checkpoint_did_not_complete_aborts_it(self, cluster_of: Any) -> None:
        """The one that N+1 pre-committed was current at N; the one begun with N+1 is in no state, and is taken over."""
        cluster = cluster_of()
        cluster.write(1)
        cluster.checkpoint(0)
        cluster.write(2)
        cluster.snapshot()
        cluster.write(3)
        cluster.crash()
        assert cluster.visible() == [1]
        cluster.write(2, 3)
        cluster.checkpoint(0)
        assert cluster.visible() == [1, 2, 3]
        cluster.tasks[0].close()
        assert cluster.unfinished() == []

    def test_a_crash_between_completion_and_notification_commits_at_restore(self, cluster_of: Any) -> None:
        """The state of N names the transactions to commit."""
        cluster = cluster_of()
        cluster.write(1)
        cluster.checkpoint()
        cluster.write(2)
        assert cluster.visible() == []
        cluster.crash()
        assert cluster.visible() == [1]
        assert cluster.counter("numTransactionsRecovered") == 1

    def test_a_notification_makes_up_for_those_that_were_lost(self, cluster_of: Any) -> None:
        """Everything up to the checkpoint is committed, and nothing after it."""
        cluster = cluster_of()
        cluster.write(1)
        cluster.checkpoint()
        cluster.write(2)
        second = cluster.checkpoint()
        cluster.write(3)
        cluster.snapshot()
        cluster.tasks[0].complete(second.id)
        assert cluster.visible() == [1, 2]

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (4, 2), (2, 3)])
    def test_after_a_change_of_parallelism_everything_is_decided(
        self, cluster_of: Any, before: int, after: int, reverse: bool
    ) -> None:
        """Whichever new subtask starts first: it aborts no transaction that another one is still to commit."""
        cluster = cluster_of(before)
        cluster.write(*range(8))
        cluster.checkpoint(*range(before - 1))
        cluster.write(*range(8, 16))
        cluster.snapshot()
        cluster.write(*range(16, 24))
        cluster.crash(after, sorted(range(after), reverse=reverse))
        assert cluster.visible() == list(range(8))
        cluster.write(*range(8, 16))
        cluster.checkpoint(*range(after))
        assert cluster.visible() == list(range(16))
        for task in cluster.tasks:
            task.close()
        assert cluster.unfinished() == []

    def test_everything_is_committed_at_the_end(self, cluster_of: Any) -> None:
        """The last checkpoint after ``finish`` covers the rest, and no transaction begins after that."""
        cluster = cluster_of()
        cluster.write(1)
        cluster.tasks[0].finish()
        assert cluster.visible() == []
        cluster.checkpoint(0)
        assert cluster.visible() == [1]
        cluster.tasks[0].close()
        assert cluster.unfinished() == []
