"""Fixtures shared by the tests of the bridge: one Spark session and one preparation of the flights per test run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from examples.flights_data import FlightFiles, prepare
from spark_bridge.session import BRIEF_LIFE, get_session, stop_session
from tests.spark_bridge.transforms import Calls, without_spark


@pytest.fixture(scope="session")
def start_of_session() -> Iterator[tuple[Any, str]]:
    """The session, and the text written to file descriptor 2 while it started and ran a first query."""
    with tempfile.TemporaryFile() as captured, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", BRIEF_LIFE)
        terminal = os.dup(2)
        os.dup2(captured.fileno(), 2)
        try:
            session = get_session()
            session.range(3).count()
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
        captured.seek(0)
        printed = captured.read().decode()
    yield session, printed
    stop_session()


@pytest.fixture(scope="session")
def spark(start_of_session: tuple[Any, str]) -> Any:
    """The session of the test run; starting it takes 6 to 10 seconds."""
    return start_of_session[0]


@pytest.fixture(scope="session")
def flight_files(tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    """The flights of 2013, prepared once per test run (about 2.5 seconds)."""
    return prepare(tmp_path_factory.mktemp("flights") / "prepared")


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Batches run in Python, and are written down."""
    with without_spark() as made:
        yield made
