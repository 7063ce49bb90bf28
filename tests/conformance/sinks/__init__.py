"""Replays of the vectors about sinks and sources: one function per kind.

Each takes a vector and returns its mismatches. It raises ``MalformedVector`` for any departure from the format.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.compare import Vector
from tests.conformance.sinks import (
    acking,
    bucketing,
    committers,
    compaction,
    file_sinks,
    file_sources,
    partition_commit,
    staging,
    two_phase,
)

SINK_KINDS: dict[str, Callable[[Vector], list[str]]] = {
    **acking.KINDS,
    **bucketing.KINDS,
    **committers.KINDS,
    **compaction.KINDS,
    **file_sinks.KINDS,
    **file_sources.KINDS,
    **partition_commit.KINDS,
    **staging.KINDS,
    **two_phase.KINDS,
}
