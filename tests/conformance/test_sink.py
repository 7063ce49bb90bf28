"""Sinks and sources against recorded vectors, and a test of the replay itself."""

from __future__ import annotations

import json

import pytest

from tests.conformance.compare import Vector
from tests.conformance.runner import DATA, Verdict, load, replay
from tests.conformance.sinks import SINK_KINDS

VECTORS: list[Vector] = load(DATA / "sink.json") + load(DATA / "written" / "sink.json")


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vector(vector: Vector) -> None:
    """The engine does what the vector says, whether it was recorded or written from the rules; no vector is skipped."""
    result = replay(vector)

    assert result.verdict is Verdict.PASSED, result


def test_every_documented_kind_has_a_replay() -> None:
    """Every kind of the format has a replay, and every replay has a kind of the format."""
    assert SINK_KINDS.keys() == json.loads((DATA / "sink.json").read_text(encoding="utf-8"))["kinds"].keys()
