"""A type checker's view of the packages from a job file outside the checkout, for each way to install them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.project import PACKAGES, ROOT

# With mistakes: an argument of FileSink, and three settings of runs.
JOB_FILE = """\
from engine import CollectionSource, FileSink, Job
from operators.basic import aggregates
from spark_bridge import spark_transform
from state_backends import ValueStateDescriptor


def job() -> Job:
    job = Job("wordcount")
    words = job.source(CollectionSource(["to", "be"]), name="words")
    reveal_type(words)
    words.sink(FileSink(5))
    return job


result = job().run(mode="unaligned", min_pause="5ms", cost={"slow_links": {"words[0]": "2ms"}}, kills=["words@3ms"])
reveal_type(result.execution.checkpoints.completed)
job().run(min_pauze="5ms")
job().run(min_pause=5)
job().run(cost={"link_latenzy": "5ms"})
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An empty virtual environment, without pip."""
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    return place


def _install_as_make_does(environment: Path) -> None:
    make = shutil.which("make")
    if make is None or os.name != "posix":
        pytest.skip("needs make")
    command = [make, "-s", f"VENV={environment}", f"{environment}/.ready-packages"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def _install_what_a_wheel_holds(environment: Path) -> None:
    pytest.importorskip("setuptools")
    source = environment / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (packages,) = environment.glob("lib/python*/site-packages")
    build = "from setuptools import setup; setup()"
    subprocess.run(
        [sys.executable, "-c", build, "build_py", "--build-lib", str(packages)],
        cwd=source,
        check=True,
        capture_output=True,
    )


def _ask(environment: Path, directory: Path, program: str) -> str:
    command = [str(environment / "bin/python"), "-c", program]
    return subprocess.run(command, cwd=directory, env={}, capture_output=True, text=True, check=True).stdout


def test_make_shows_the_packages_and_nothing_else(environment: Path, tmp_path: Path) -> None:
    """The environment that make builds finds the typed packages on a static path, beside no tests or examples."""
    _install_as_make_does(environment)

    program = f"""
import pathlib, sys
for place in map(pathlib.Path, sys.path):
    for name in {[*PACKAGES, "tests", "benchmarks", "examples"]}:
        if (place / name / "__init__.py").is_file():
            print(name, (place / name / "py.typed").is_file(), (place / name).resolve())
"""
    assert _ask(environment, tmp_path, program).splitlines() == [f"{name} True {ROOT / name}" for name in PACKAGES]


@pytest.mark.slow
@pytest.mark.parametrize("install", [_install_as_make_does, _install_what_a_wheel_holds], ids=["make", "wheel"])
def test_a_job_file_is_checked_against_our_types(
    environment: Path, tmp_path: Path, install: Callable[[Path], None]
) -> None:
    """mypy knows the types that a job file outside the checkout gets from us, and finds a mistake in their use."""
    pytest.importorskip("mypy")
    install(environment)
    (tmp_path / "wordcount.py").write_text(JOB_FILE, "utf-8")

    python = str(environment / "bin/python")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "wordcount.py"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout.splitlines()[:-1] == [
        'wordcount.py:10: note: Revealed type is "engine.graph.stream.Stream"',
        'wordcount.py:11: error: Argument 1 to "FileSink" has incompatible type "int"; expected "str"  [arg-type]',
        'wordcount.py:16: note: Revealed type is "int"',
        'wordcount.py:17: error: Unexpected keyword argument "min_pauze" for "run" of "Job"; did you mean "min_pause"?'
        "  [call-arg]",
        'wordcount.py:17: note: "run" defined in "engine.graph.job"',
        'wordcount.py:18: error: Argument "min_pause" to "run" of "Job" has incompatible type "int"; expected "str"'
        "  [arg-type]",
        'wordcount.py:19: error: Extra key "link_latenzy" for TypedDict "CostOptions"  [typeddict-unknown-key]',
    ]
