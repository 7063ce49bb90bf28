"""The rules of committers that differ between versions of Flink, or from ours.

Our rules differ in three points; in each, Flink's rules allow an error:

* **At the end of the input** writers name the checkpoint after the last one that they have seen. Only that checkpoint
  or a later one commits these committables. Where "the next notification" commits everything, a late notification for a
  checkpoint from *before* the end publishes records that a restore from that checkpoint produces again.
* **After a restore** from checkpoint ``n`` the books of later checkpoints are dropped. They exist only without
  alignment of barriers (at-least-once), and their records are read again. A file in them may have been cut and written
  to again, so they must not be kept.
* **Late committables**, of a checkpoint that is complete already, are committed when their subtask has sent all that it
  has announced. Until then they wait, without an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.elements.errors import check_whole


@dataclass(frozen=True, slots=True)
class CommitRules:
    """``max_retries``              how often a request may be postponed, in rounds without a delay; then the task
                                 fails. With a delay there is no limit;
    ``retry_delay_ms``           ``None``, or how long a postponed request waits for its next round;
    ``waits_for_late``           whether complete subtasks are committed without the others, and the others when they
                                are complete; otherwise an incomplete checkpoint is an error;
    ``older_may_be_incomplete``  whether only the newest complete checkpoint may wait like that;
    ``next_covers_end``          whether any notification after the end of the input commits everything;
    ``keeps_uncovered``          whether a restore keeps the books of later checkpoints.

    Raises :class:`engine.elements.errors.ConfigurationError` for numbers below 0.
    """

    max_retries: int = 10
    retry_delay_ms: int | None = None
    waits_for_late: bool = True
    older_may_be_incomplete: bool = False
    next_covers_end: bool = False
    keeps_uncovered: bool = False

    def __post_init__(self) -> None:
        check_whole("max_retries", self.max_retries, 0)
        check_whole("retry_delay_ms", self.retry_delay_ms, or_none=True)


FLINK_2 = CommitRules(waits_for_late=False, next_covers_end=True, keeps_uncovered=True)
"""Flink 2: an incomplete checkpoint is an error."""

FLINK_1_15 = CommitRules(retry_delay_ms=1000, older_may_be_incomplete=True, next_covers_end=True, keeps_uncovered=True)
"""Flink 1.15 to 1.20: a postponed request is tried again every second, for ever."""
