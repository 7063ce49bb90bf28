"""Fixtures of the state backend tests."""

from __future__ import annotations

import pytest

from tests.state_backends.differential.backends import Maker


# Of the module, because hypothesis runs a test many times with one fixture.
@pytest.fixture(scope="module", params=["heap", "memory", "lsm"])
def make(request: pytest.FixtureRequest) -> Maker:
    """A test with this fixture runs for each of these backends."""
    return Maker(request.param)
