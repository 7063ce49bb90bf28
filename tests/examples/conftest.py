"""Flights for the tests of this directory, prepared once per test run, and a job in which Python stands in for Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.flights_data import FlightFiles, prepare
from examples.flights_proof import Run, run_flights
from spark_bridge import session_is_running, stop_session
from tests.examples.small_flights import python_for_spark, write_part

LONG_DELAY_MINUTES = 360


@pytest.fixture(scope="session")
def small_flights(tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    """Every 97th flight of two months, and all that left more than six hours late."""

    def wanted(number: int, flight: dict[str, str]) -> bool:
        delay = flight["dep_delay"]
        return number % 97 == 0 or (delay not in ("", "NA") and int(delay) > LONG_DELAY_MINUTES)

    directory = tmp_path_factory.mktemp("small-flights")
    return prepare(directory / "prepared", source=write_part(directory / "published", wanted, {"1", "2"}))


@pytest.fixture(scope="session")
def one_airport(tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    """Twelve days at one airport; the other two splits are empty."""

    def wanted(number: int, flight: dict[str, str]) -> bool:
        return flight["origin"] == "LGA" and int(flight["day"]) <= 12

    directory = tmp_path_factory.mktemp("one-airport")
    return prepare(directory / "prepared", source=write_part(directory / "published", wanted, {"1"}))


@pytest.fixture(scope="session")
def undisturbed(small_flights: FlightFiles, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The small flights, run without a fault."""
    with python_for_spark():
        return run_flights(small_flights, tmp_path_factory.mktemp("undisturbed"), "aligned", seed="7", interval="40us")


@pytest.fixture
def without_spark() -> Iterator[None]:
    """Batches run in Python as long as a test holds this."""
    with python_for_spark():
        yield


@pytest.fixture
def own_spark() -> Iterator[None]:
    """A session that this test starts is stopped after it: other tests watch theirs start."""
    was_running = session_is_running()
    yield
    if not was_running:
        stop_session()
