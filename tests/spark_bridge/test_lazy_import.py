"""Importing the bridge costs nothing and needs nothing; a missing package is reported when it is needed."""

from __future__ import annotations

import socket
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import pytest

from spark_bridge import session
from spark_bridge.errors import PySparkMissingError, SparkBridgeError


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_import_loads_neither_spark_nor_arrow() -> None:
    """`import spark_bridge` leaves PySpark, Py4J, PyArrow and pandas unimported."""
    answer = run_python(
        "import sys, spark_bridge\nprint(sorted({'pyspark', 'py4j', 'pyarrow', 'pandas', 'numpy'} & set(sys.modules)))"
    )

    assert (answer.stdout, answer.stderr) == ("[]\n", "")


def test_import_works_where_spark_is_not_installed() -> None:
    """The bridge can be imported without PySpark, and the first use says which extra to install."""
    answer = run_python(
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "import importlib.util, spark_bridge\n"
        "found = importlib.util.find_spec\n"
        "spark_bridge.session.find_spec = lambda name: None if name == 'pyspark' else found(name)\n"
        "try:\n"
        "    spark_bridge.run_batch(lambda frame: frame, [], 'a int')\n"
        "except spark_bridge.PySparkMissingError as error:\n"
        "    print(error)\n"
    )

    assert (answer.stdout, answer.stderr) == (
        "pyspark not installed: Spark is an extra. Install it with: pip install 'weirstream[spark]'\n",
        "",
    )


def test_missing_pyarrow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyArrow is as necessary as PySpark, and the error names it when it is missing."""

    def without_pyarrow(name: str) -> ModuleSpec | None:
        return None if name == "pyarrow" else find_spec(name)

    monkeypatch.setattr(session, "find_spec", without_pyarrow)

    with pytest.raises(PySparkMissingError, match=r"^pyarrow not installed"):
        session.require_pyspark()


@pytest.mark.parametrize("installed", ["3.5.9", "4.0.2", "4.0.0.dev1"])
def test_an_old_pyspark_is_refused(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it starts anything: the function that exchanges rows came with 4.1."""
    monkeypatch.setattr(session, "version", lambda _name: installed)
    with pytest.raises(PySparkMissingError, match=f"^PySpark {installed} is installed, and Weir needs 4.1 or newer"):
        session.require_pyspark()


@pytest.mark.parametrize("installed", ["4.1.0", "4.10.1", "5.0.0rc1"])
def test_a_new_pyspark_is_taken(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are numbers, not text."""
    monkeypatch.setattr(session, "version", lambda _name: installed)
    session.require_pyspark()


def test_a_master_that_does_not_answer_is_named() -> None:
    """Spark itself would try for a minute. One of several masters is enough."""
    with socket.socket() as free, socket.socket() as listening:
        free.bind(("127.0.0.1", 0))
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        gone, there = (f"127.0.0.1:{one.getsockname()[1]}" for one in (free, listening))
        words = rf"^no Spark master answers at spark://{gone} \({gone}: Connection refused\)\n  fix"
        with pytest.raises(SparkBridgeError, match=words):
            session.check_answers(f"spark://{gone}")
        session.check_answers(f"spark://{gone},{there}")
    session.check_answers("local[2]")
