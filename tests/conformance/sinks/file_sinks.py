"""Replays of the vectors about recoverable writers, rolling policies, bucket assigners and the file sink."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.compare import Vector

KINDS: dict[str, Callable[[Vector], list[str]]] = {}
