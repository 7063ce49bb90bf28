"""Settings of record acking, and its errors, after which a restart cannot help."""

from __future__ import annotations

from dataclasses import dataclass

from engine.elements.errors import WeirError
from engine.elements.setting_fields import setting, settle


class ReplayLimitError(WeirError):
    """A record was sent again and again, and never acknowledged."""


class UnacknowledgedError(WeirError):
    """Records were lost, and no source will ever send them again."""


@dataclass(frozen=True, slots=True)
class AckingSettings:
    """How records are tracked in mode ``acking``. A time is a whole number of virtual ns, or its text: ``"30s"``."""

    ackers: int | None = setting(
        None, "In mode acking: how many track records; 0 = none is tracked, and each counts as acknowledged when it is"
        " emitted: at most once.",
        least=0, none="one per worker, that is as many as the widest vertex has subtasks", option="ackers",
    )  # fmt: skip
    timeout_ns: int | None = setting(
        30_000_000_000,
        "In mode acking: a record that is not acknowledged is sent again after once to twice this time.",
        least=1, option="acker_timeout",
        none="never: the job waits for the records of a dead task, and fails in the end",
    )  # fmt: skip
    max_pending: int | None = setting(
        None,
        "In mode acking: unacknowledged records of one source subtask. It bounds the memory of the source.",
        least=1, none="any number", option="max_spout_pending",
    )  # fmt: skip
    max_replays: int = setting(
        100, "In mode acking: a record that was sent again so often without an acknowledgement fails the job.", least=1
    )
    recovery_ns: int = setting(
        10_000_000, "Time between the death of an acker and its successor, whose memory is empty.", least=0
    )

    def __post_init__(self) -> None:
        settle(self, "acking: ")
