"""Importing the bridge costs nothing and needs nothing; a missing package is reported when it is needed."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import pytest

from spark_bridge import session
from spark_bridge.errors import PySparkMissingError


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
