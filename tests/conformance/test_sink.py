"""Sinks and sources against recorded vectors, and the replay of those against itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.compare import Vector
from tests.conformance.runner import Verdict, replay
from tests.conformance.sinks import SINK_KINDS

DATA = json.loads((Path(__file__).parent / "data" / "sink.json").read_text(encoding="utf-8"))
RECORDED: list[Vector] = DATA["vectors"]


@pytest.mark.parametrize("vector", RECORDED, ids=[vector["name"] for vector in RECORDED])
def test_recorded_vector(vector: Vector) -> None:
    """The engine does what the vector says; none is skipped."""
    result = replay(vector)

    assert result.verdict is Verdict.PASSED, result


def test_every_documented_kind_has_a_replay() -> None:
    """Nothing that the format documents is unknown, and nothing unknown to the format is replayed."""
    assert SINK_KINDS.keys() == DATA["kinds"].keys()
