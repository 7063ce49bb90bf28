"""Errors of record acking after which a restart cannot help."""

from __future__ import annotations

from engine.elements.errors import WeirError


class ReplayLimitError(WeirError):
    """A record was sent again and again, and never acknowledged."""


class UnacknowledgedError(WeirError):
    """Records were lost, and nothing will ever send them again."""
