"""What a function of a job may do with the tuple in hand, in a run that tracks records (mode ``acking``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class RecordTracking(Protocol):
    """The tracking of one task, for the operators in it. A claim is opaque; each is released once, in either way."""

    def claim(self) -> Any:
        """Claim the record in hand: it counts as handled only after the claim is released."""

    def acknowledge(self, claim: Any) -> None:
        """Release: the record is handled (Storm: ``OutputCollector.ack``)."""

    def fail(self, claim: Any) -> None:
        """Release: the record cannot be handled, and its source sends it again (Storm: ``OutputCollector.fail``)."""

    def restart_timeout(self, claim: Any) -> None:
        """The record takes long: its timeout begins anew (Storm: ``OutputCollector.resetTimeout``)."""

    def emit_for(self, claims: Sequence[Any], emit: Callable[[], None]) -> None:
        """Call ``emit``; the records it emits are anchored to those of ``claims``, which are not released."""
