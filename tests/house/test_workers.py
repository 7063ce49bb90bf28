"""One Spark session serves a test run: the tests that need it share a worker, and so do those of one file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.house.distribution import FilesTogether
from tests.house.project import ROOT

TESTS = """
import os, pytest, time

@pytest.fixture
def spark():
    return None

def note(kind):
    with open(f"{kind}-{os.environ['PYTEST_XDIST_WORKER']}", "a"):
        pass

@pytest.mark.spark
@pytest.mark.parametrize("n", range(6))
def test_marked(n):
    note("spark")

@pytest.mark.parametrize("n", range(6))
def test_unmarked(n, spark, request):
    assert request.node.get_closest_marker("spark")
    note("spark")

@pytest.mark.parametrize("n", range(12))
def test_other(n):
    note("other")
    # The other worker has time to take some of these, if they are to be had.
    time.sleep(0.02)
"""


def test_spark_tests_share_a_worker(tmp_path: Path) -> None:
    """Tests marked spark, and those that use the fixture unmarked, run in one worker; others with their file."""
    (tmp_path / "conftest.py").write_bytes((ROOT / "tests/conftest.py").read_bytes())
    (tmp_path / "test_some.py").write_text(TESTS)
    settings = ["-c", os.devnull, "--rootdir", str(tmp_path), "-o", "markers=spark: needs Spark"]
    workers = ["-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(ROOT)  # for what the conftest imports
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *settings, *workers, "test_some.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert len(list(tmp_path.glob("spark-*"))) == 1
    assert len(list(tmp_path.glob("other-*"))) == 1
    assert "24 passed" in finished.stdout


def test_a_group_is_dealt_out_before_files() -> None:
    """It takes longest: begun last, it would leave the other workers without anything to do."""
    files = ("test_a.py", "test_b.py")
    tests = [*(f"{file}::test" for file in files), "test_c.py::test@spark"]
    given: list[int] = []

    class Node:
        """A worker that takes every test."""

        send_runtest_some = staticmethod(given.extend)

    node: Any = Node()
    deal = FilesTogether(SimpleNamespace(option=SimpleNamespace(), getvalue=lambda name: ["popen"]), None)
    deal.registered_collections[node] = tests
    deal.workqueue.update((deal._split_scope(test), {test: False}) for test in tests)
    while deal.workqueue:
        deal._assign_work_unit(node)

    assert given == [2, 0, 1]


def test_make_groups_the_workers() -> None:
    """The commands that run tests use the distribution that honours the groups."""
    lines = [line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if "pytest -n" in line]

    assert len(lines) == 2
    assert all("--dist loadgroup" in line for line in lines)
