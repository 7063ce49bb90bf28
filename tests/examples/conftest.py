"""Flights for the tests of this directory, prepared once per test run, and one run of the job on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.flights_data import FlightFiles, prepare
from examples.flights_run import Run
from spark_bridge import session_is_running, stop_session
from tests.examples.small_flights import delay_of, run_small, write_part


@pytest.fixture(scope="session")
def small_flights(tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    """Every 97th flight of two months, and all that left more than six hours late."""

    def wanted(number: int, flight: dict[str, str]) -> bool:
        return flight["month"] in ("1", "2") and (number % 97 == 0 or delay_of(flight) > 360)

    directory = tmp_path_factory.mktemp("small-flights")
    return prepare(directory / "prepared", source=write_part(directory / "published", wanted))


@pytest.fixture(scope="session")
def one_airport(tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    """A year at one airport: every 25th flight, and all that left more than four hours late. Other splits are empty."""

    def wanted(number: int, flight: dict[str, str]) -> bool:
        return flight["origin"] == "JFK" and (number % 25 == 0 or delay_of(flight) > 240)

    directory = tmp_path_factory.mktemp("one-airport")
    return prepare(directory / "prepared", source=write_part(directory / "published", wanted))


@pytest.fixture(scope="session")
def undisturbed(small_flights: FlightFiles) -> Run:
    return run_small(small_flights)


@pytest.fixture
def own_spark() -> Iterator[None]:
    """A session that this test starts is stopped after it: other tests watch theirs start."""
    was_running = session_is_running()
    yield
    if not was_running:
        stop_session()
