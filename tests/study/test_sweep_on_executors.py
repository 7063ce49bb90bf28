"""A sweep on executors has the rows of processes: here a stand-in takes the place of Spark's executors."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import ConfigurationError
from engine.elements.errors import MissingDependencyError, OverloadError
from engine.study import read_study, sweep
from tests.study.test_sweep import totals

PLACE = "WEIR_TEST_PLACE"


class Executors:
    """One Python worker. Of those cases that are given to it together the last one ends first."""

    opened: list[Executors]

    def __init__(self, session: object, make: Callable[[], Callable[..., Any]], work: object, *, most: int) -> None:
        self.run, self.is_open = make(), True
        assert most == 1, "a row would wait for other cases of its task"
        self.opened.append(self)

    def __enter__(self) -> Executors:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False

    def as_they_end(self, items: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        for number, item in reversed(list(enumerate(items))):
            os.environ[PLACE] = "there"
            outcome = self.run(*item)
            del os.environ[PLACE]
            yield number, outcome


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> list[Executors]:
    """Those that were started."""
    monkeypatch.setattr(Executors, "opened", [], raising=False)
    monkeypatch.setattr("spark_bridge.executor_pool.ExecutorPool", Executors)
    monkeypatch.setattr("spark_bridge.executor_pool.pool_session", lambda *_: "a session")
    monkeypatch.setattr("spark_bridge.pipeline.check_installed", lambda: None)
    return Executors.opened


@pytest.mark.usefixtures("executors")
def test_rows_are_those_of_processes() -> None:
    """In the order of the cases, whichever ends first."""
    spread = sweep(totals, mode=["aligned", "none"], seed=range(2), on="spark")

    assert [row["status"] for row in spread] == ["ok", "ok", "failed", "failed"]
    assert list(spread) == list(sweep(totals, mode=["aligned", "none"], seed=range(2), jobs=2))


@pytest.mark.usefixtures("executors")
def test_a_case_that_fails_is_a_row_and_changes_no_other() -> None:
    """Each has a process of its own there, too: it may die, be overloaded, or leave something behind."""
    seen: list[int] = []

    def study(x: int) -> int:
        seen.append(x)
        if x == 1:
            raise OverloadError("too many")
        if x == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(seen)

    table = sweep(study, x=range(4), on="spark=local[4]")

    assert [row["status"] for row in table] == ["ok", "overloaded", "died", "ok"]
    assert table[2]["error"] == "its process died (exit code -9)"
    assert [table[0]["value"], table[3]["value"]] == [1, 1]


def test_an_interrupted_sweep_goes_on_in_either_place(executors: list[Executors], tmp_path: Path) -> None:
    """Rows are on disk as cases end, and the executors stop at once."""
    out, ran = tmp_path / "out.parquet", tmp_path / "ran"

    def study(x: int) -> int:
        with ran.open("a") as file:
            file.write(f"{x}{os.environ.get(PLACE, 'here')} ")
        return x

    def stop(done: int, of: int, row: object) -> None:
        assert [row["x"] for row in read_study(out)] == [0, 5, 4][:done]
        if done == 3:
            assert executors[0].is_open
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupted:
        sweep(study, x=range(6), out=out, progress=stop, on="spark")
    # Though the traceback still refers to the sweep.
    assert interrupted.tb is not None
    assert not executors[0].is_open
    assert ran.read_text().split() == ["0here", "0there", "5there", "4there"]
    ran.unlink()
    assert [row["value"] for row in sweep(study, x=range(3), out=out, on="spark")] == [0, 1, 2]
    # One that has a row, to see that it still gives it, and what is left.
    assert sorted(ran.read_text().split()) == ["0there", "1there", "2there"]
    ran.unlink()
    assert [row["value"] for row in sweep(study, x=range(6), out=out)] == [0, 1, 2, 3, 4, 5]
    assert ran.read_text().split() == ["0here", "3here"]
    # With nothing left to run, no executor is asked for.
    assert len(sweep(study, x=range(6), out=out, on="spark")) == 6
    assert len(executors) == 2


@pytest.mark.usefixtures("executors")
def test_a_study_that_depends_on_where_it_runs_is_refused() -> None:
    """The first case runs here and there; the others do not run."""

    def study(x: int) -> dict[str, Any]:
        assert x == 1
        return {"x2": 2, "place": os.environ.get(PLACE, "here")}

    with pytest.raises(
        ConfigurationError,
        match=r"(?s)run twice with x=1, here and on an executor, it gave place = 'here' and 'there'; .* find them, too",
    ):
        sweep(study, x=[1, 2], on="spark")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "spark", "jobs": 2}, "jobs=2 and on='spark' exclude each other: on Spark all cores of executors"),
        ({"on": "sprak"}, "'sprak' is no place to run a job"),
        ({"on": ["spark"]}, "sweep: on is .'spark'. of type list; write on='spark'"),
    ],
)
def test_places_that_cannot_be_are_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Before anything is created."""
    with pytest.raises(ConfigurationError, match=message):
        sweep(totals, mode="aligned", seed=1, out=tmp_path / "out.jsonl", **arguments)
    assert not list(tmp_path.iterdir())


def test_a_sweep_on_spark_misses_java_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is created."""
    monkeypatch.setattr("spark_bridge.session._running", None)
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    with pytest.raises(MissingDependencyError, match="JAVA_HOME is /no/java, but there is no such directory"):
        sweep(totals, mode="aligned", seed=1, out=tmp_path / "out.jsonl", on="spark")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("executors")
def test_a_sweep_in_the_simulator_needs_no_executors() -> None:
    """As for a run: `simulator` is the place that has no other name."""
    assert sweep(lambda x: x, x=1, on="simulator")[0]["value"] == 1
    assert not Executors.opened
