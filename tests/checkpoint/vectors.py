"""Recorded conformance vectors, as pytest parameters."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_DATA = Path(__file__).parent.parent / "conformance" / "data"

Vector = dict[str, Any]


@cache
def load(file_name: str) -> list[Vector]:
    """All vectors of one file."""
    content = json.loads((_DATA / file_name).read_text(encoding="utf-8"))
    vectors: list[Vector] = content["vectors"]
    return vectors


def named(file_name: str) -> dict[str, Vector]:
    """The vectors of one file by name."""
    return {vector["name"]: vector for vector in load(file_name)}


def of_kind(kind: str, file_name: str = "coordinator.json") -> pytest.MarkDecorator:
    """A decorator that runs a test for every vector of ``kind``."""
    vectors = [vector for vector in load(file_name) if vector["kind"] == kind]
    assert vectors, f"no vector of kind {kind}"
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])
