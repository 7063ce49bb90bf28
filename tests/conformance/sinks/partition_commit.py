"""Replays of the vectors about the partitions of a table, their commit and the compaction of their files."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.compare import Vector

KINDS: dict[str, Callable[[Vector], list[str]]] = {}
