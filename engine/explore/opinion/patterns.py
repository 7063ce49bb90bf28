"""Patterns."""

from __future__ import annotations

from collections.abc import Callable

from engine.explore.opinion.elements import Spec, Step

STEPS: dict[str, Callable[[Spec], Step]] = {}
