"""Replays of the vectors about record acking."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.compare import Vector

KINDS: dict[str, Callable[[Vector], list[str]]] = {}
