"""Checkpoints and savepoints of runs on Spark, by the command line: they are looked into, compared, copied, and started
from, with another parallelism and another backend. The batches run in this process."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import spark_bridge.pipeline
from engine.cli import main
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import local_execution

JOB = """
import os
from engine import CollectionSource, FileSink, Job

def fussy(number):
    if number == 150 and os.path.exists("trap"):
        raise ValueError("not this one")
    return number

def job(name="sums"):
    job = Job(name, parallelism=2, max_parallelism=8)
    numbers = job.source(CollectionSource(range(300), splits=2), name="numbers").map(fussy, name="fussy", uid="fussy")
    sums = numbers.key_by(lambda number: number % 7, value=lambda number: (number % 7, 1))
    sums = sums.reduce(lambda one, other: (one[0], one[1] + other[1]), name="sum", uid="sum")
    return sums.sink(FileSink("sums"), name="out", uid="out")
"""
EXPECTED = Counter({(".", f"[{key},{count + 1}]"): 1 for key in range(7) for count in range(len(range(key, 300, 7)))})
ON_SPARK = ("--on", "spark", "--checkpoint-interval", "20rec")

Weir = Callable[..., str]


@pytest.fixture
def weir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Weir]:
    """Runs a command in a directory with the job file, and gives what it prints. The exit code must be ``code``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(spark_bridge.pipeline, "spark_execution", local_execution)
    (tmp_path / "sums.py").write_text(JOB)
    before = set(sys.modules)

    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, list(arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result.output

    yield run
    for name in [one for one in sys.modules if one.startswith("weir_job_") and one not in before]:
        del sys.modules[name]


def _stopped(weir: Weir, *options: str, on: tuple[str, ...] = ON_SPARK) -> None:
    """A run that has failed in its middle, with checkpoints in ``st``; the next one will not fail."""
    Path("trap").touch()
    weir("run", "sums.py", "--storage", "st", *on, *options, code=12)
    Path("trap").unlink()


def _committed(directory: str = "st/out") -> Counter[tuple[str, str]]:
    return jobs.committed(Path(directory) / "sums")


@pytest.mark.parametrize(
    ("backend", "other", "parallelism"),
    [("heap", "lsm", "3"), ("lsm", "heap", "1"), ("changelog", "changelog", "3"), ("heap", "changelog", "4")],
)
def test_a_savepoint_of_batches_starts_a_run_with_another_backend_and_parallelism(
    weir: Weir, backend: str, other: str, parallelism: str
) -> None:
    """In batches, and in the simulator."""
    _stopped(weir, "--state-backend", backend)
    path = weir("savepoint", "st").strip().splitlines()[-1]
    options = ("--from", path, "--state-backend", other, "--parallelism", parallelism, "--checkpoint-interval", "20rec")
    for name, on in (("batches", ("--on", "spark")), ("simulator", ())):
        shutil.copytree("st/out", f"{name}/out")
        told = weir("run", "sums.py", "--storage", name, "--out", f"{name}/out", *options, *on)
        assert "restored checkpoint 3" in told, told
        assert _committed(f"{name}/out") == EXPECTED


@pytest.mark.parametrize("place", ["st", "st/sums/chk-3"])
def test_a_run_in_batches_starts_from_a_checkpoint_of_another_run(weir: Weir, place: str) -> None:
    """Named by itself, or as the newest of its storage directory; the other run stays as it is."""
    _stopped(weir)
    shutil.copytree("st/out", "again/out")
    before = weir("inspect", "st", "--json")
    weir("run", "sums.py", "--from", place, "--storage", "again", "--out", "again/out", *ON_SPARK)
    assert _committed("again/out") == EXPECTED
    assert weir("inspect", "st", "--json") == before


def test_a_savepoint_of_the_simulator_starts_a_run_in_batches(weir: Weir) -> None:
    """Taken while the job runs there."""
    weir("run", "sums.py", "--storage", "st", "--checkpoint-interval", "20rec", "--stop-with-savepoint", "130us")
    assert _committed() < EXPECTED
    (path,) = Path("st/savepoints").iterdir()
    shutil.copytree("st/out", "again/out")
    weir("run", "sums.py", "--from", str(path), "--storage", "again", "--out", "again/out", *ON_SPARK)
    assert _committed("again/out") == EXPECTED


@pytest.mark.parametrize("parallelism", ["1", "3"])
def test_a_run_in_batches_starts_from_a_checkpoint_with_records_in_flight(weir: Weir, parallelism: str) -> None:
    """They are replayed first."""
    slow = ("--mode", "unaligned", "--batch-size", "4", "--set", "cost.record_ns=3000", "--set", "channel_capacity=8")
    _stopped(weir, *slow, on=("--checkpoint-interval", "20rec"))
    path = weir("savepoint", "st").strip().splitlines()[-1]
    assert "in flight" in weir("inspect", path, "--operator", "sum"), "no record was in flight"
    shutil.copytree("st/out", "again/out")
    options = ("--storage", "again", "--out", "again/out", "--parallelism", parallelism)
    weir("run", "sums.py", "--from", path, *options, *ON_SPARK)
    assert _committed("again/out") == EXPECTED


def test_checkpoints_of_both_worlds_compare(weir: Weir) -> None:
    """The same records read give the same keyed state."""
    _stopped(weir)
    Path("trap").touch()
    weir("run", "sums.py", "--storage", "sim", "--checkpoint-interval", "20rec", "--batch-size", "1", code=12)
    assert "sum" in weir("inspect", "st/sums/chk-3")
    weir("inspect", "st/sums/chk-3", "--diff", "st/sums/chk-3")
    weir("inspect", "st/sums/chk-2", "--diff", "st/sums/chk-3", code=1)
