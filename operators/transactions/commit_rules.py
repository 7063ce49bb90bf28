"""The rules by which committers go, where they differ between versions of Flink and from ours.

Ours differ in three points, each because of a mistake that the others allow:

* **At the end of the input** writers name the checkpoint after the last one that they have seen, and only a checkpoint
  from that one on commits what they name. Where "the next notification" commits everything, a late notification of a
  checkpoint from *before* the end publishes what a restore from it produces again.
* **After a restore** from checkpoint ``n`` what is booked for later checkpoints is dropped. It is only there where
  barriers do not hold records back (at-least-once), and its records are read again. It must not be kept: the file that
  it names may have been cut and may be being written to.
* **Late committables**, of a checkpoint that is complete already, are committed when all that their subtask has
  announced is there, and are no error before.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.elements.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class CommitRules:
    """``max_retries``              how often a request may be put off, in rounds that follow each other at once; then
                                 the task fails. With a delay there is no limit;
    ``retry_delay_ms``           ``None``, or what a request that was put off waits for its next round;
    ``waits_for_late``           whether subtasks that have sent everything are committed without the others, and those
                                when they have; otherwise an incomplete checkpoint is an error;
    ``older_may_be_incomplete``  whether that waiting is for the newest complete checkpoint only;
    ``next_covers_end``          whether any notification behind the end of the input commits everything;
    ``keeps_uncovered``          whether a restore keeps what is booked for later checkpoints.

    Raises :class:`engine.elements.errors.ConfigurationError` for numbers below 0.
    """

    max_retries: int = 10
    retry_delay_ms: int | None = None
    waits_for_late: bool = True
    older_may_be_incomplete: bool = False
    next_covers_end: bool = False
    keeps_uncovered: bool = False

    def __post_init__(self) -> None:
        if type(self.max_retries) is not int or self.max_retries < 0:
            raise ConfigurationError(f"max_retries is {self.max_retries!r}; it must be a whole number from 0 on")
        if self.retry_delay_ms is not None and (type(self.retry_delay_ms) is not int or self.retry_delay_ms < 1):
            raise ConfigurationError(
                f"retry_delay_ms is {self.retry_delay_ms!r}; it must be a whole number of ms from 1 on, or None"
            )


FLINK_2 = CommitRules(waits_for_late=False, next_covers_end=True, keeps_uncovered=True)
"""Flink 2: an incomplete checkpoint is an error."""

FLINK_1_15 = CommitRules(retry_delay_ms=1000, older_may_be_incomplete=True, next_covers_end=True, keeps_uncovered=True)
"""Flink 1.15 to 1.20: what was put off is tried again every second, for ever."""
