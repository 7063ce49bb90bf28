"""Executors that cannot run a job are found before its first batch; each error names host, problem and repair."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import engine
from spark_bridge.errors import ExecutorError
from spark_bridge.pipeline import executor_checks, executor_facts
from spark_bridge.pipeline.executor_checks import check_executors, check_facts, cores_of, few_cores
from spark_bridge.pipeline.executor_facts import facts_of
from tests.spark_bridge.pipeline import jobs

GOOD: dict[str, Any] = {
    "host": "h1", "python": platform.python_version(), "executable": "/usr/bin/python3", "weir": engine.__version__,
    "imports": None, "job": None, "files": {},
}  # fmt: skip
MINE = platform.python_version()
SHORT = MINE.rpartition(".")[0]


def test_good_executors_pass() -> None:
    """Another patch version of Python is the same Python."""
    check_facts([GOOD, GOOD | {"host": "h2", "python": f"{SHORT}.99"}])


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"python": "3.9.1"},
            f"h1 runs Python 3.9.1, and the driver runs {MINE}\n    fix: install Python {SHORT} there",
        ),
        ({"weir": None}, "h1 has no Weir in /usr/bin/python3\n    fix: pip install 'weirstream[spark]=="),
        ({"weir": "0.0.1"}, f"h1 has Weir 0.0.1, and the driver has {engine.__version__}\n    fix: pip install"),
        ({"imports": "No module named 'pyarrow'"}, "h1 cannot import what its work needs: No module named 'pyarrow'"),
        (
            {"job": "ModuleNotFoundError: No module named 'm'"},
            "h1 cannot load the job: ModuleNotFoundError: No module na",
        ),
        (
            {"files": {"/s/j/f": "Permission denied"}},
            "h1 does not share /s/j with the driver: /s/j/f: Permission denied",
        ),
    ],
    ids=lambda one: "" if isinstance(one, str) else next(iter(one)),
)
def test_what_is_wrong_with_an_executor(facts: dict[str, Any], words: str) -> None:
    """One bad host among good ones is enough, and what it tells twice is said once."""
    bad = GOOD | facts
    with pytest.raises(ExecutorError) as caught:
        check_facts([GOOD | {"host": "h2"}, bad, bad])
    first, *rest = str(caught.value).split("\n", 1)
    assert first == "executors cannot run the job, so nothing was started:"
    assert rest[0].startswith(f"  {words}")
    assert rest[0].count("h1 ") == 1
    assert "h2" not in rest[0]


def test_a_cluster_with_fewer_cores_than_subtasks() -> None:
    """It is noted, with the stage and both ways out; enough cores are no news."""
    plan = jobs.word_count(3).plan()
    assert few_cores(plan, 3) is None
    note = few_cores(plan, 1)
    assert note is not None
    assert re.fullmatch(
        r"executors have 1 core, and stage \d has \d subtasks, which run one after the other\n"
        r"  fix: give the cluster \d cores, or run the job with --parallelism 1",
        note,
    )


@pytest.mark.slow
def test_the_cores_of_a_session(spark: Any) -> None:
    """Two, as its master says."""
    assert cores_of(spark) == 2


def test_an_executor_without_weir_can_tell_so() -> None:
    """The facts need the standard library only: no Weir, no site-packages."""
    program = f"import runpy; print(runpy.run_path({executor_facts.__file__!r})['facts_of']({{}}, b'', [])['weir'])"
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False, cwd="/"
    )
    assert (answer.stdout, answer.stderr) == ("None\n", "")


def test_files_that_an_executor_does_not_share(tmp_path: Path) -> None:
    """Missing, of somebody else, or in a directory that cannot be written."""
    good, other = tmp_path / "good", tmp_path / "other"
    good.write_text("mine")
    other.write_text("not mine")
    asked = {str(good): "mine", str(other): "mine", str(tmp_path / "none" / "x"): "mine", "/proc/version": "mine"}
    assert facts_of(asked, b"", [])["files"] == {
        str(other): "another file has this path there",
        str(tmp_path / "none" / "x"): "No such file or directory",
        "/proc/version": "another file has this path there",
    }


def test_a_module_that_the_work_needs() -> None:
    """The first one that is missing; without one, the job is looked at."""
    assert facts_of({}, b"", ["wave", "no_such_module", "no_other"])["imports"] == "No module named 'no_such_module'"
    told = facts_of({}, b"no job", ["wave"])
    assert told["imports"] is None
    assert "UnpicklingError" in told["job"]


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_real_executors(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They pass, but not with a module that only the driver has, nor without a shared directory. Nothing is left, of a
    driver that died in its check neither."""
    directories = [str(tmp_path / "state"), str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".weir-probe").write_text(f"driver 1 in {directories[1]}\n")
    check_executors(spark, directories, ".weir-probe", 2, (len, Path))
    assert [os.listdir(one) for one in directories] == [[], []]

    module = ModuleType("only_on_the_driver")
    exec("def twice(x):\n    return 2 * x", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    job = functools.partial(module.twice, 1)
    with pytest.raises(
        ExecutorError, match=r"cannot load the job: ModuleNotFoundError: No module named 'only_on_the_dr"
    ):
        check_executors(spark, directories, ".weir-probe", 2, job)

    @contextmanager
    def elsewhere(_directories: Any, _name: str, _driver: int) -> Iterator[dict[str, str]]:
        yield {"/no/such/place/probe": "x"}

    monkeypatch.setattr(executor_checks, "_files", elsewhere)
    with pytest.raises(ExecutorError, match=r"does not share /no/such/place with the driver: .*No such file"):
        check_executors(spark, directories, ".weir-probe", 2, len)
