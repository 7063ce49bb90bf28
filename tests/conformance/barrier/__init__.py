"""Replays barrier vectors against the engine: ``check`` reports every mismatch."""

from __future__ import annotations

from tests.conformance.barrier.compare import mismatches
from tests.conformance.barrier.format import check_format
from tests.conformance.barrier.input_side import InputReplay
from tests.conformance.barrier.observed import Vector
from tests.conformance.barrier.output_side import OutputReplay


def check(vector: Vector) -> list[str]:
    """One text per mismatch (field, expected, observed); none when the engine does what ``vector`` expects.

    Raises ``MalformedVector`` for a scope, mode, operation, kind of barrier or field that the format does not have.
    """
    check_format(vector)
    vector = {"scope": "input", **vector}
    replay = OutputReplay(vector) if vector["scope"] == "output" else InputReplay(vector)
    return mismatches(vector, replay.run())
